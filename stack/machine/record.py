"""What a stack remembers between commands: its ports, its servers' processes and the versions that wrote its data."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from driftless.errors import StackError
from stack.machine.process import Pid


@dataclass
class Record:
    """One stack's state file. It is replaced in one step, so a reader sees the old state or the new one."""

    path: Path
    ports: dict[str, int] = field(default_factory=dict)
    servers: tuple[str, ...] = ()
    pids: dict[str, Pid] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    secure: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @classmethod
    def load(cls, path: Path) -> Record | None:
        """Read the file; None where the stack was never started."""
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            content = orjson.loads(text)
            pids = {name: Pid(entry["pid"], entry["born"]) for name, entry in content["pids"].items()}
            what = content["ports"], tuple(content["servers"]), pids, content["versions"]
            return cls(path, *what, bool(content.get("secure", False)))
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as exc:
            raise StackError(
                f"{path}: not a stack's state file: {exc}",
                hint="stop the servers by hand, and remove the stack's folder",
            ) from exc

    def remember(self, server: str, pid: Pid, version: str) -> None:
        """Write down a process that was just started."""
        with self._lock:
            self.pids[server] = pid
            self.versions[server] = version
            self.save()

    def forget(self, server: str) -> None:
        """Strike out a process that has ended."""
        with self._lock:
            if self.pids.pop(server, None) is not None:
                self.save()

    def save(self) -> None:
        content = {
            "ports": self.ports,
            "servers": self.servers,
            "pids": {name: {"pid": pid.number, "born": pid.born} for name, pid in self.pids.items()},
            "versions": self.versions,
            "secure": self.secure,
        }
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        temporary.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2))
        temporary.replace(self.path)

    def alive(self, server: str) -> Pid | None:
        pid = self.pids.get(server)
        return pid if pid is not None and pid.alive() else None
