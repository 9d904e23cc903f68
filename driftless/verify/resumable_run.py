"""What a verify that is interrupted leaves behind, for the next one to go on with: what was read, and found."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from driftless.errors import ConfigError
from driftless.verify.report import Report
from driftless.verify.spool import save, seed

KEPT_SECONDS = 3600.0
"""Where more time has passed, the log may have forgotten too much of what has come since."""
ABANDONED_SECONDS = 24 * 3600.0
"""What nobody has written in for so long is of a process that was killed."""


class ResumableRun:
    """The folder of one verify, of which one process at a time has it; another gets one that nothing is kept in.

    `reports`: of followers that were compared to the end before.
    """

    def __init__(self, home: Path, asked: Mapping[str, object], *, resume: bool) -> None:
        """`asked`: what is compared, and how. Raises ConfigError where there is nothing to go on with."""
        name = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        for folder in home.iterdir():
            if folder.is_dir() and time.time() - _written(folder) > ABANDONED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
        self.folder = home / name
        self.reports: dict[str, Report] = {}
        self._lock = (home / f"{name}.lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if resume:
                raise ConfigError(
                    "another process runs the same verify", hint="wait for its end, or leave out --resume"
                ) from None
            self.folder = Path(tempfile.mkdtemp(dir=home))
        if resume:
            self._go_on()
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700)
        self._save()

    def _go_on(self) -> None:
        state = self.folder / "state.json"
        try:
            found: dict[str, Any] = json.loads(state.read_text(encoding="utf-8"))
            at = _written(self.folder)
        except (OSError, ValueError):
            raise ConfigError(
                "there is no interrupted verify of these followers to resume",
                hint="without --resume it starts one",
            ) from None
        if time.time() - at > KEPT_SECONDS:
            raise ConfigError("it was interrupted too long ago to resume", hint="without --resume it starts over")
        seed(int(found["seed"]))
        self.reports = {
            name: Report(**{**report, "counts": Counter(report["counts"])}) for name, report in found["reports"].items()
        }

    def place(self, number: int) -> Path:
        """A folder for the part of that number."""
        place = self.folder / str(number)
        place.mkdir(mode=0o700, exist_ok=True)
        return place

    def done(self, report: Report) -> None:
        """A follower was compared to the end."""
        self.reports[report.name] = report
        self._save()

    def _save(self) -> None:
        state = {"seed": seed(), "reports": {name: vars(report) for name, report in self.reports.items()}}
        save(self.folder / "state.json", state)

    def remove(self) -> None:
        """Nothing is to be gone on with."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        self._lock.close()


def _written(folder: Path) -> float:
    """When something was last written there, in seconds since 1970; of what goes away meanwhile, now."""
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
    except OSError:
        return time.time()
