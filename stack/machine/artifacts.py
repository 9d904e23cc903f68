"""Fetch what artifacts.xml names, once.

Each conf ends in a folder of its own, named by the digest of its coordinates: a folder that exists is whole, since it
is filled beside its place and renamed. Another version is another folder, so old and new stand side by side.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from pathlib import Path

from driftless.errors import StackError
from stack.machine.home import Report, disk_errors, file_lock, make_folder, require_space, stack_home
from stack.machine.java import find_java

COORDINATES = Path(__file__).parent.with_name("artifacts.xml")
SETTINGS = Path(__file__).parent.with_name("ivysettings.xml")

# Ivy asks for one file at a time and most are small; the broker's jars are half of the wait, so two lanes halve it.
_LANES = 2
_LAST_LINES = 15


def fetch(confs: Sequence[str], report: Report) -> dict[str, list[Path]]:
    """Return the files of each conf, fetched first where they are missing.

    Safe against a second process (it waits and finds the work done) and against an interruption (the next call goes on
    from the files that arrived). `postgres` means the server for this machine's platform.
    """
    folders = {conf: conf_folder(full_name(conf)) for conf in confs}
    missing = [full_name(conf) for conf, folder in folders.items() if not folder.is_dir()]
    if missing:
        root = artifacts_home()
        with disk_errors(root):
            make_folder(root)
            with file_lock(root / ".lock", lambda: report("waiting for another driftless that is fetching")):
                missing = [conf for conf in missing if not conf_folder(conf).is_dir()]
                if missing:
                    require_space(root)
                    _fetch_missing(missing, report)
    return {conf: sorted((folder / full_name(conf)).iterdir()) for conf, folder in folders.items()}


def full_name(conf: str) -> str:
    """The conf as artifacts.xml names it: `postgres` is one of several, by platform."""
    return f"postgres-{platform_name()}" if conf == "postgres" else conf


def artifacts_home() -> Path:
    """Where artifacts are kept: shared by every stack, wherever the stack's own folder is."""
    return stack_home() / "artifacts"


def conf_folder(conf: str) -> Path:
    """The folder that holds the conf's folder. Connect takes it as `plugin.path`, where a plugin is one folder down."""
    return artifacts_home() / f"{conf}-{digest(conf)}"


def digest(conf: str) -> str:
    """Twelve digits that change when any coordinate of the conf changes."""
    return hashlib.sha256("\n".join(_dependencies(conf)).encode()).hexdigest()[:12]


def version(conf: str) -> str:
    """The version of the conf's main artifact, which is the first one that is listed."""
    return _dependencies(conf)[0].split(":")[2]


def platform_name() -> str:
    """Name this machine as the PostgreSQL artifacts do."""
    machine = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64v8", "arm64": "arm64v8"}.get(
        platform.machine().lower()
    )
    system = platform.system().lower()
    if machine is None or system not in ("linux", "darwin"):
        raise StackError(
            f"no servers are published for {platform.system()} on {platform.machine()}",
            hint="point the configuration at servers that run elsewhere",
        )
    return f"{system}-{machine}"


def ivy_jar() -> Path:
    """The Ivy inside PySpark, found without importing PySpark."""
    spec = importlib.util.find_spec("pyspark")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if jars := sorted((Path(place) / "jars").glob("ivy-*.jar")):
            return jars[-1]
    raise StackError("the Ivy that comes with pyspark was not found", hint="run `make install`")


@cache
def _listing() -> dict[str, tuple[str, ...]]:
    listing: dict[str, list[str]] = {}
    for node in ET.parse(COORDINATES).getroot().iter("dependency"):  # noqa: S314 - our own file
        conf = node.attrib["conf"].split("->")[0]
        listing.setdefault(conf, []).append(":".join(node.attrib[part] for part in ("org", "name", "rev")))
    return {conf: tuple(lines) for conf, lines in listing.items()}


def _dependencies(conf: str) -> tuple[str, ...]:
    if conf not in _listing():
        raise StackError(
            f"{COORDINATES.name} has no conf {conf!r}; it has {', '.join(_listing())}",
            hint="restore that file with `git checkout`, or install driftless again",
        )
    return _listing()[conf]


def _fetch_missing(missing: list[str], report: Report) -> None:
    root = artifacts_home()
    partial = root / ".partial"
    shutil.rmtree(partial, ignore_errors=True)  # left by an interrupted fetch; Ivy's cache still has what arrived
    make_folder(partial)
    total = sum(len(_dependencies(conf)) for conf in missing)
    report(f"fetching {total} files for {', '.join(missing)} (once)")
    lanes: list[list[str]] = [[] for _ in range(min(_LANES, len(missing)))]
    for conf in sorted(missing, key=lambda conf: -len(_dependencies(conf))):
        min(lanes, key=lambda lane: sum(len(_dependencies(conf)) for conf in lane)).append(conf)
    progress = _Progress(total, report)
    runs = [_Ivy(lane, root / f".ivy-{number}", partial, progress) for number, lane in enumerate(lanes)]
    pool = ThreadPoolExecutor(len(runs))
    try:
        for done in as_completed([pool.submit(run.run) for run in runs]):
            done.result()
    finally:
        for run in runs:
            run.stop()
        pool.shutdown()
    for conf in missing:
        count = len(list((partial / conf).iterdir())) if (partial / conf).is_dir() else 0
        if count != len(_dependencies(conf)):
            raise StackError(
                f"{conf}: {count} of {len(_dependencies(conf))} files arrived",
                hint="give the command again: it fetches what is missing",
                unreachable=True,
            )
        whole = partial / f"{conf}.whole"
        make_folder(whole)
        (partial / conf).rename(whole / conf)
        whole.rename(conf_folder(conf))
    for leftover in (partial, *(run.cache for run in runs)):
        shutil.rmtree(leftover, ignore_errors=True)
    report(f"fetched {total} files in {progress.seconds():.0f} s")


class _Progress:
    """Counts files over all lanes and reports now and then."""

    def __init__(self, total: int, report: Report) -> None:
        self._total = total
        self._report = report
        self._lock = threading.Lock()
        self._done = 0
        self._started = self._said = time.monotonic()

    def one_more(self) -> None:
        with self._lock:
            self._done += 1
            if time.monotonic() - self._said > 3:
                self._said = time.monotonic()
                self._report(f"fetched {self._done} of {self._total} files")

    def seconds(self) -> float:
        return time.monotonic() - self._started


class _Ivy:
    """One run of Ivy: some confs into `<target>/<conf>/`."""

    def __init__(self, confs: list[str], cache_folder: Path, target: Path, progress: _Progress) -> None:
        self._confs = confs
        self.cache = cache_folder
        self._target = target
        self._progress = progress
        self._process: subprocess.Popen[str] | None = None

    def run(self) -> None:
        settings = os.environ.get("DRIFTLESS_IVY_SETTINGS") or SETTINGS
        pattern = f"{self._target}/[conf]/[artifact]-[revision].[ext]"
        command = [find_java().program, "-Xmx256m", "-jar", ivy_jar(), "-settings", settings, "-ivy", COORDINATES]
        command += ["-cache", self.cache, "-retrieve", pattern, "-confs", *self._confs]
        lines: list[str] = []
        self._process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            umask=0o022,  # the servers' user reads the files
        )
        with self._process as process:
            for line in process.stdout or ():
                if "[SUCCESSFUL ]" in line:
                    self._progress.one_more()
                if line.strip(" .\n") and not line.startswith("...."):
                    lines.append(line.rstrip()[:300])
        if process.returncode != 0:
            _raise_ivy(lines)

    def stop(self) -> None:
        """End Ivy if it still runs, as after Ctrl-C or when the other lane failed."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()


def _raise_ivy(lines: list[str]) -> None:
    problems = [line.strip() for line in lines if not line.strip().startswith(("|", "-", ":", "confs"))] or lines
    tail = "\n".join(f"  {line}" for line in problems[-_LAST_LINES:])
    if any("No space left on device" in line for line in lines):
        raise StackError(f"the disk is full; Ivy's last lines:\n{tail}", hint="free some space")
    raise StackError(
        f"the servers' files could not be fetched; Ivy's last lines:\n{tail}",
        hint="check the network and a proxy's JAVA_TOOL_OPTIONS, or name a mirror in your own Ivy settings file "
        "with DRIFTLESS_IVY_SETTINGS; what arrived is kept for the next try",
        unreachable=True,
    )
