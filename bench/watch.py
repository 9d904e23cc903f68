"""CPU and memory of a command and of all that it started."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field

import psutil

from stack import Stack

_EVERY = 0.1
PARTS = ("driver", "jvm", "workers")


@dataclass
class Usage:
    """By part: CPU seconds so far, and the largest resident memory that was seen, in bytes."""

    cpu: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    peak: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTS, 0))
    jvm: int | None = None

    @property
    def seconds(self) -> float:
        return sum(self.cpu.values())


class Watch(threading.Thread):
    """Samples the processes ten times a second; what a process used after its last sample is lost."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._root = psutil.Process(pid)
        self._seen: dict[int, tuple[str, float]] = {}
        self._usage = Usage()
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> None:
        while not self._ended.wait(_EVERY):
            try:
                self.usage()
            except psutil.NoSuchProcess:
                return

    def stop(self) -> Usage:
        self._ended.set()
        return self._usage

    def usage(self) -> Usage:
        """Sample now."""
        with self._lock:
            memory: defaultdict[str, int] = defaultdict(int)
            for process in [self._root, *self._root.children(recursive=True)]:
                try:
                    part = self._part(process)
                    times = process.cpu_times()
                    memory[part] += process.memory_info().rss
                except (psutil.NoSuchProcess, psutil.AccessDenied):
                    continue
                self._seen[process.pid] = part, times.user + times.system
                if part == "jvm":
                    self._usage.jvm = process.pid
            self._usage.cpu = dict.fromkeys(PARTS, 0.0)
            for part, seconds in self._seen.values():
                self._usage.cpu[part] += seconds
            for part, rss in memory.items():
                self._usage.peak[part] = max(self._usage.peak[part], rss)
            return Usage(dict(self._usage.cpu), dict(self._usage.peak), self._usage.jvm)

    def _part(self, process: psutil.Process) -> str:
        if process.pid == self._root.pid:
            return "driver"
        return "jvm" if process.name() == "java" else "workers"


def server_cpu(stack: Stack, name: str) -> float:
    """Seconds of a server's processes, also of those that have ended."""
    server = psutil.Process(stack.running()[name])
    own = server.cpu_times()
    total = own.user + own.system + own.children_user + own.children_system
    for child in server.children():
        times = child.cpu_times()
        total += times.user + times.system
    return float(total)
