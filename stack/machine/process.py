"""Start a server as a plain process, recognise it later, and end it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from stack.machine.home import User

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LOG_KEPT = 16 << 20
_LAST_LINES = 15

# Children of this process, kept so that one that ended is reaped and never looks alive as a zombie.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class Pid:
    """One process for good: its number and its time of birth, so a number given out again is another process."""

    number: int
    born: str

    def alive(self) -> bool:
        """Whether this very process runs."""
        if self.number in _children:
            _children[self.number].poll()
        try:
            process = psutil.Process(self.number)
            return not _ended(process) and _born(process) == self.born
        except (psutil.NoSuchProcess, ProcessLookupError):
            return False

    def signal(self, number: int) -> None:
        """Send a signal, to this very process or to none."""
        if self.alive():
            try:
                os.kill(self.number, number)
            except ProcessLookupError:
                return

    def wait(self, seconds: float) -> bool:
        """Wait for the end; False when it still runs after that time."""
        deadline = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def kill_tree(self) -> None:
        """End the process and its children at once, as a power cut would, and wait until they are gone."""
        if not self.alive():
            return
        try:
            family = psutil.Process(self.number).children(recursive=True)
        except psutil.NoSuchProcess:
            family = []
        self.signal(signal.SIGKILL)
        for child in family:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue
        self.wait(10)
        deadline = time.monotonic() + 10
        while not all(map(_ended, family)) and time.monotonic() < deadline:
            time.sleep(0.02)


def _ended(process: psutil.Process) -> bool:
    """Whether it does nothing any more; a zombie may stay as long as whoever adopted it likes."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _born(process: psutil.Process) -> str:
    """When the process was born, on a clock that nobody sets.

    psutil's create_time moves when the wall clock is corrected; on Linux the kernel's own count since boot does not.
    """
    try:
        boot = _BOOT_ID.read_text().strip()
        stat = Path(f"/proc/{process.pid}/stat").read_text(errors="replace")
        return f"{boot}:{stat.rpartition(')')[2].split()[19]}"  # field 22, starttime
    except FileNotFoundError:
        return str(process.create_time())


def identify(number: int) -> Pid:
    """The process that has this number now; raises psutil.NoSuchProcess when there is none."""
    return Pid(number, _born(psutil.Process(number)))


def spawn(
    command: Sequence[str | Path], *, log: Path, folder: Path, environment: Mapping[str, str], user: User | None
) -> Pid:
    """Start the command in a session of its own: neither Ctrl-C nor a closed terminal of the caller reaches it."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
            umask=0o077,
            user=None if user is None else user.uid,
            group=None if user is None else user.gid,
            extra_groups=None if user is None else [],
        )
    _children[process.pid] = process
    try:
        return identify(process.pid)
    except psutil.NoSuchProcess:
        return Pid(process.pid, "gone")


def roll(log: Path) -> int:
    """Put a large log aside before a start; return where the coming run's lines will begin."""
    size = log.stat().st_size if log.exists() else 0
    if size <= _LOG_KEPT:
        return size
    log.replace(log.with_name(f"{log.name}.1"))
    return 0


def exit_text(pid: Pid) -> str:
    """How one of this process's children ended, as far as it is known."""
    code = _children[pid.number].poll() if pid.number in _children else None
    if code is None:
        return "ended"
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def last_lines(log: Path, since: int = 0) -> str:
    """The end of a log, indented, for a message; nothing from before `since`."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(since, size - 65536))
            return last_lines_of(file.read())
    except FileNotFoundError:
        return "  (no log was written)"


def last_lines_of(output: bytes) -> str:
    """The end of a program's output, indented, for a message."""
    lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
    return "\n".join(f"  {line[:300]}" for line in lines[-_LAST_LINES:]) or "  (it said nothing)"
