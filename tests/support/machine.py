"""A place to run the installed command from, as an operator would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil

from stack import stack_home
from tests.support import run

COMMAND = Path(sys.executable).with_name("driftless")
TERM = signal.SIGTERM
T = TypeVar("T")


def until(what: str, probe: Callable[[], T], seconds: float = 60) -> T:
    """Ask again and again until the answer is true, and return it; after the deadline, fail saying what was awaited."""
    deadline = time.monotonic() + seconds
    while True:
        asked = time.monotonic()
        if found := probe():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:g} s still waiting for: {what}")
        # A probe that is a command takes a core: what is waited for needs it more.
        time.sleep(max(0.1, time.monotonic() - asked))


@dataclass(frozen=True)
class Result:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


class Job:
    """A command in the background, in a process group of its own. `told`: whether it was told to end."""

    command = COMMAND

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        log: Path,
        within: Sequence[str] = (),
    ) -> None:
        self.log = log
        self.arguments = arguments
        self.told = False
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [*within, self.command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=dict(environment),
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def family(self) -> list[psutil.Process]:
        """Everything it has started: the JVM, and Spark's Python workers."""
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL the command alone, as the kernel does when memory runs out; what it started must end by itself."""
        family, self.told = self.family(), True
        self.process.kill()
        self.process.wait(10)
        until("the JVM and the workers of a killed run to end", lambda: not any(map(_alive, family)), 30)

    def stop(self, seconds: float = 30, number: int = TERM) -> int:
        """Tell it to end, and wait for its exit code and for the end of what it has started."""
        family, self.told = self.family(), True
        self.signal(number)
        code = self.wait(seconds)
        until("the JVM and the workers of a stopped run to end", lambda: not any(map(_alive, family)), 30)
        return code

    def wait(self, seconds: float = 60) -> int:
        """The exit code, once it has ended."""
        self.told = True
        until(f"the end of `{self}`\n{self.output()}", lambda: not self.running, seconds)
        return self.process.returncode

    def destroy(self) -> None:
        """End whatever is left of it."""
        self.told = True
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        finally:
            self.process.wait(10)

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def __str__(self) -> str:
        return f"driftless {' '.join(self.arguments)}"


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@dataclass
class Machine:
    """A place to run the command from: a working directory with a sync.yaml, and a home, with nothing else in them.

    `within`: of a network of its own; see tests/support/network.py.
    """

    folder: Path
    sync: Mapping[str, Any]
    environment: Mapping[str, str]
    jobs: list[Job] = field(default_factory=list)
    within: Sequence[str] = ()
    _started: int = 0

    def __post_init__(self) -> None:
        (self.folder / "home").mkdir(parents=True)
        self.write()

    def write(self) -> None:
        # JSON is YAML too.
        (self.folder / "sync.yaml").write_text(json.dumps(self.sync, indent=2))

    def __call__(self, *arguments: str, seconds: float = 120) -> Result:
        """Run a command to its end."""
        done = subprocess.run(
            [*self.within, COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self.environ(),
            timeout=seconds,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def run(self, *names: str) -> Job:
        """Start `driftless run NAME...`."""
        job = self.start("run", *names)
        self.jobs.append(job)
        return job

    def start(self, *arguments: str) -> Job:
        """Start a command in the background."""
        self._started += 1
        log = self.folder / f"{arguments[0]}-{self._started}.log"
        return Job(arguments, folder=self.folder, environment=self.environ(), log=log, within=self.within)

    def environ(self) -> dict[str, str]:
        wanted = ["PATH", "JAVA_HOME", "LANG", "PYTHONPATH", "DRIFTLESS_JAVA_OPTIONS", run.OWNER_VARIABLE]
        wanted.append("DRIFTLESS_PUBLIC_SPARK_ONLY")  # by which `make soak` runs the chain a second time
        kept = {key: os.environ[key] for key in wanted if key in os.environ}
        # What was fetched is no state: without it, an empty home would fetch 180 MB again.
        home = {"HOME": str(self.folder / "home"), "DRIFTLESS_HOME": str(stack_home()), "COLUMNS": "200"}
        return {**kept, **home, **self.environment}
