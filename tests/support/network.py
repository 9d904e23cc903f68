"""A network of its own for what a test starts: the kernel's, in which nothing is reached but by the test's proxies."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

_NETWORK = 0x40000000
"""CLONE_NEWNET of setns(2)."""
_MAKE = ("unshare", "--net", "--", "sh", "-c", "ip link set lo up && echo up && exec cat")
"""It lasts until nobody holds the other end of its input, however the test has ended."""


def allowed() -> bool:
    """Whether this process may make one: on Linux, with the right to."""
    if not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        return False
    return subprocess.run(_MAKE, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0


def listen(port: int) -> socket.socket:
    """A socket on 127.0.0.1; port 0: a free one."""
    return socket.create_server(("127.0.0.1", port))


class Network:
    """`within`: before a command, has it run inside. `listen`: a socket on 127.0.0.1 there, served from out here.

    A client inside that is told of 127.0.0.1:9092, as a broker tells of itself, finds that socket, and so the proxy.
    """

    def __enter__(self) -> Self:
        self._holder = subprocess.Popen(_MAKE, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"up\n", "no network was made"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._holder.communicate()

    @property
    def _path(self) -> Path:
        return Path(f"/proc/{self._holder.pid}/ns/net")

    @property
    def within(self) -> Sequence[str]:
        return ("nsenter", f"--net={self._path}", "--")

    def listen(self, port: int) -> socket.socket:
        """As `listen`, inside."""
        # A thread may leave for another network, and this one never comes back.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(self._listen, port).result()

    def _listen(self, port: int) -> socket.socket:
        libc = ctypes.CDLL(None, use_errno=True)
        with self._path.open("rb") as network:
            if libc.setns(network.fileno(), _NETWORK):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(self._path))
        return listen(port)
