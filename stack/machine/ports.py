"""Which ports a stack listens on, always on loopback."""

from __future__ import annotations

import errno
import hashlib
import socket
import time
from collections.abc import Collection, Mapping

import psutil

from driftless.errors import StackError

LOOPBACK = "127.0.0.1"

DEFAULT_PORTS: Mapping[str, int] = {
    "postgres": 55432,
    "redis": 56379,
    "kafka": 59092,
    "kafka-controller": 59093,
    "connect": 58083,
    "opensearch": 59200,
    "opensearch-transport": 59300,
}

# Blocks of other stacks: below 32768, where Linux begins to take ports for outgoing connections.
_FIRST_BLOCK = 21000
_BLOCK = 10
_BLOCKS = 1000

# An outgoing connection may hold a port for a moment, as may a server that has just been stopped.
PATIENCE_SECONDS = 3.0


def choose_ports(seed: str, taken: Collection[int]) -> dict[str, int]:
    """Find a block of ports that is free now and that no other stack of this home has been given.

    The search begins at a place made from the seed, so two homes seldom meet. Call it under the home's lock, and record
    the answer before leaving it.
    """
    start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") % _BLOCKS
    for step in range(_BLOCKS):
        base = _FIRST_BLOCK + _BLOCK * ((start + step) % _BLOCKS)
        ports = {name: base + offset for offset, name in enumerate(DEFAULT_PORTS)}
        if not set(ports.values()) & set(taken) and all(map(is_free, ports.values())):
            return ports
    raise StackError(
        f"no free block of ports between {_FIRST_BLOCK} and {_FIRST_BLOCK + _BLOCK * _BLOCKS}",
        hint="stop a stack that you do not need, with `driftless down --name NAME`",
    )


def require_free(server: str, port: int) -> None:
    """Refuse a port that something else holds, and name the holder where the system tells."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_free(port):
        if time.monotonic() > deadline:
            raise StackError(
                f"{server}: port {port} is taken{_holder(port)}",
                hint="stop what holds it; or use a stack of another name, which finds free ports",
            )
        time.sleep(0.1)


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError as exc:
            if exc.errno == errno.EADDRINUSE:
                return False
            raise
    return True


def _holder(port: int) -> str:
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.laddr.port == port and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        pass  # another user's process; macOS tells root alone
    return ""
