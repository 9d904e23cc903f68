"""What one run of the tests starts, in however many processes, and its end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from types import FrameType

import psutil

from stack import Stack, stack_home

OWNER_VARIABLE = "DRIFTLESS_TEST_OWNER"
OWNER = os.environ.setdefault(OWNER_VARIABLE, str(os.getpid()))
"""The process that was called. Its workers have it from their environment, and so has all that they start."""
STACK = f"test-{OWNER}{os.environ.get('PYTEST_XDIST_WORKER', '')}"
"""The stack of this process, and the start of the names of others that a test needs."""


def end_on_signal() -> None:
    """Have SIGTERM end the run as Ctrl-C does; once, since what it has started must be ended."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def clean_up() -> None:
    """End what this run has left, and what runs have left that were killed."""
    for folder in (stack_home() / "stacks").glob("test-*"):
        owner = re.match(r"test-(\d+)", folder.name)
        if owner and (owner[1] == OWNER or not psutil.pid_exists(int(owner[1]))):
            _kill(owner[1])
            unmount(folder)
            Stack(folder.name).destroy()
    _kill(OWNER)


def unmount(folder: Path) -> None:
    """Take away the disks of tests that were ended in the midst of it: a folder in use cannot be removed."""
    for disk in psutil.disk_partitions(all=True):
        if Path(disk.mountpoint).is_relative_to(folder):
            subprocess.run(["umount", "--lazy", disk.mountpoint], check=False)


def _kill(owner: str) -> None:
    """Every process of a run but this one. Servers too: they have nothing to save."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(OWNER_VARIABLE) == owner:
                process.kill()
