"""What every local server has in common."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from driftless.errors import StackError
from stack.machine import artifacts
from stack.machine.home import Report, User, make_folder, require_entry, write_private
from stack.machine.java import Java, find_java, more_options
from stack.machine.keys import Keys
from stack.machine.ports import LOOPBACK
from stack.machine.process import last_lines_of

_LEARN_SECONDS = 60.0


@dataclass(frozen=True)
class Site:
    """What a server is given: its stack's folder and ports, who it runs as, and the keys of a stack that is secured."""

    stack: str
    folder: Path
    ports: Mapping[str, int]
    user: User | None
    keys: Keys | None = None

    def make(self, *parts: str) -> Path:
        """A folder of the stack that the server may write and no other user may read."""
        return make_folder(self.folder.joinpath(*parts), owner=self.user, mode=0o700)

    def address(self, port: str) -> str:
        return f"{LOOPBACK}:{self.ports[port]}"


class Server:
    """One server of one stack. The stack calls prepare, then starts the command, then asks `ready` until it answers.

    Preparing again over the data of an earlier run, orderly ended or killed, keeps the data.
    """

    name: ClassVar[str]
    port_names: ClassVar[tuple[str, ...]]
    needs: ClassVar[tuple[str, ...]] = ()
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, site: Site) -> None:
        self.site = site

    def confs(self) -> list[str]:
        """The confs of artifacts.xml that this server is made of."""
        raise NotImplementedError

    def version(self) -> str:
        return artifacts.version(self.confs()[0])

    def check(self, written_by: str | None) -> None:
        """Refuse what cannot work, before anything is fetched. `written_by` is the version that wrote the data."""

    def settings(self) -> dict[str, object]:
        """What its configuration file says. docker-compose.yml says the same, and a test holds the two together."""
        raise NotImplementedError

    def prepare(self, report: Report) -> None:
        """Unpack, configure, and make the data folder where there is none."""
        raise NotImplementedError

    def command(self) -> Sequence[str | Path]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """A small environment of our own: the caller's may hold secrets and options meant for other programs."""
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.site.folder),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
        }

    def ready(self) -> bool:
        """Really ask the server. False means not yet; anything else than an answer is false too."""
        raise NotImplementedError

    def open(self) -> None:
        """Let in who is to use it, once it answers: before what needs it is started. Again changes nothing."""

    def require(self, what: str, probe: Callable[[], bool]) -> None:
        """Wait until something holds that the server has been told and may learn a moment later."""
        deadline = time.monotonic() + _LEARN_SECONDS
        while not probe():
            if time.monotonic() > deadline:
                what = f"{self.name}: {what} did not work within {_LEARN_SECONDS:.0f} s"
                raise StackError(what, hint="the log tells more: try again", unreachable=True)
            time.sleep(0.2)

    def run_once(self, command: Sequence[str | Path]) -> None:
        """Run a helper of the server as its user, to its end; its last lines are in the error when it fails."""
        user = self.site.user
        try:
            answer = subprocess.run(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self.site.folder,
                env=self.environment(),
                timeout=180,
                check=False,
                umask=0o077,
                user=None if user is None else user.uid,
                group=None if user is None else user.gid,
                extra_groups=None if user is None else [],
            )
        except subprocess.TimeoutExpired as exc:
            raise StackError(
                f"{self.name}: {command[0]} did not end within 180 s",
                hint="the machine may be too busy, or its disk too slow: try again when it is not",
                unreachable=True,
            ) from exc
        if answer.returncode != 0:
            lines = last_lines_of(answer.stdout)
            raise failure(f"{self.name}: {Path(command[0]).name} failed; its last lines", lines)

    @property
    def log(self) -> Path:
        return self.site.folder / "logs" / f"{self.name}.log"

    def temporary(self) -> Path:
        """An empty folder for what the server unpacks at run time."""
        folder = self.site.folder / "tmp" / self.name
        shutil.rmtree(folder, ignore_errors=True)
        return self.site.make("tmp", self.name)

    def write(self, folder: Path, name: str, text: str) -> Path:
        """Write a file that the server alone reads."""
        write_private(folder / name, text, owner=self.site.user)
        return folder / name


class JavaServer(Server):
    """A server that runs on the JVM."""

    java_variable: ClassVar[str] = "JAVA_HOME"

    @cached_property
    def java(self) -> Java:
        java = find_java(self.java_variable)
        hint = f"set {self.java_variable} to a JDK that every user can read"
        require_entry(java.program.resolve(), self.site.user, hint=hint)
        return java

    def jvm(self, heap: str, main: str, *, logging: Path) -> list[str | Path]:
        """The command of a Kafka process, up to the arguments of its main class."""
        return [
            self.java.program,
            *jvm_options(heap),
            *more_options(),
            f"-Djava.io.tmpdir={self.temporary()}",
            f"-Dlog4j2.configurationFile={logging}",
            "-cp",
            f"{artifacts.conf_folder('kafka') / 'kafka'}/*",
            main,
        ]


def jvm_options(heap: str) -> list[str]:
    """How a Kafka process runs, wherever it does."""
    return [
        "-Xms256m",
        f"-Xmx{heap}",
        "-XX:+UseParallelGC",
        "-XX:+ExitOnOutOfMemoryError",  # a server that limps on looks alive and does nothing
        "-XX:+PerfDisableSharedMem",
        "-Djava.awt.headless=true",
        "-Dfile.encoding=UTF-8",
    ]


class PortTaken(StackError):
    """A server could not listen, though its port was free a moment before."""


def failure(what: str, lines: str) -> StackError:
    """Say what a server did with its own last words, and what those mean for the operator."""
    message = f"{what}:\n{lines}"
    if "No space left on device" in lines:
        return StackError(message, hint="the disk is full: free some space, and try again")
    if "Address already in use" in lines or "Address in use" in lines:  # by the C library that it was built with
        return PortTaken(message, hint="another program took its port: stop that one, and try again")
    return StackError(message, hint="the log tells more", unreachable=True)


def properties(settings: Mapping[str, object]) -> str:
    """A Java properties file."""
    return "".join(f"{key}={_in_properties(str(value))}\n" for key, value in settings.items())


def _in_properties(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def log4j2(levels: Mapping[str, str]) -> str:
    """Logging to standard output, which is the server's log file; the named loggers at their own levels."""
    settings = {
        "status": "error",
        "appender.out.type": "Console",
        "appender.out.name": "out",
        "appender.out.layout.type": "PatternLayout",
        "appender.out.layout.pattern": "%d{ISO8601} %-5p %c{1.} %m%n",
        "rootLogger.level": "info",
        "rootLogger.appenderRef.out.ref": "out",
    }
    for number, (name, level) in enumerate(levels.items()):
        settings |= {f"logger.{number}.name": name, f"logger.{number}.level": level}
    return properties(settings)
