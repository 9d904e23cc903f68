"""Bring servers up side by side, and down again."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from driftless.errors import StackError
from stack.machine.home import Report
from stack.machine.process import Pid, exit_text, last_lines, roll, spawn
from stack.machine.record import Record
from stack.servers.server import PortTaken, Server, failure

# OpenSearch took 39 s on a loaded machine of 2 cores; a stuck server is told by its log, not by a short patience.
_START_SECONDS = 180
_STOP_SECONDS = 30
_POLL_SECONDS = 0.1
_SAY_EVERY_SECONDS = 15
_STARTS = 3
"""How often a server is started whose port was taken just then. A client that waits for it does that: where its port is
among those of outgoing connections, a connection to it now and then is given the very same port, and meets itself."""


def launch(servers: Sequence[Server], record: Record, report: Report) -> None:
    """Start those that do not run, each as soon as what it needs has answered; return when all have answered.

    All or nothing: when one fails, or at Ctrl-C, those that this call started are stopped before the error goes on.
    """
    report = one_at_a_time(report)
    attempt = _Attempt(servers, record, report)
    pool = ThreadPoolExecutor(max(1, len(servers)))
    try:
        for done in as_completed([pool.submit(attempt.bring_up, server) for server in servers]):
            done.result()
    except BaseException:
        attempt.give_up.set()
        pool.shutdown()
        for server in reversed(attempt.started):
            stop(server, record, report)
        raise
    pool.shutdown()


def stop(server: Server, record: Record, report: Report) -> None:
    """Ask the server to end, and end it when it does not. The record forgets it once it is gone."""
    if (pid := record.alive(server.name)) is not None:
        pid.signal(server.stop_signal)
        if not pid.wait(_STOP_SECONDS):
            report(f"{server.name} did not end within {_STOP_SECONDS} s and is killed")
            pid.kill_tree()
        report(f"{server.name} stopped")
    record.forget(server.name)


def one_at_a_time(report: Report) -> Report:
    """Let servers that start side by side report without mixing their lines."""
    lock = threading.Lock()

    def say(line: str) -> None:
        with lock:
            report(line)

    return say


class _Cancelled(Exception):
    """Another server failed, so there is no use in going on."""


class _Attempt:
    """One call's servers, with what each waits for."""

    def __init__(self, servers: Sequence[Server], record: Record, report: Report) -> None:
        self._record = record
        self._report = report
        self._answered = {server.name: threading.Event() for server in servers}
        self.give_up = threading.Event()
        self.started: list[Server] = []

    def bring_up(self, server: Server) -> None:
        try:
            for need in server.needs:
                self._wait_for(need)
            pid = self._record.alive(server.name)
            if pid is None:
                server.prepare(self._report)
                if self.give_up.is_set():
                    return
                self._start(server)
            else:
                self._wait_until_ready(server, pid, 0)
            server.open()
        except _Cancelled:
            return
        self._answered[server.name].set()

    def _start(self, server: Server) -> None:
        self._report(f"starting {server.name}")
        self.started.append(server)
        for left in reversed(range(_STARTS)):
            since = roll(server.log)
            try:
                self._wait_until_ready(server, self._spawn(server), since)
            except PortTaken:
                if not left:
                    raise
                self._report(f"{server.name}: another program held its port; starting it again")
            else:
                return

    def _spawn(self, server: Server) -> Pid:
        pid = spawn(
            server.command(),
            log=server.log,
            folder=server.site.folder,
            environment=server.environment(),
            user=server.site.user,
        )
        self._record.remember(server.name, pid, server.version())
        return pid

    def _wait_for(self, need: str) -> None:
        while need in self._answered and not self._answered[need].wait(_POLL_SECONDS):
            if self.give_up.is_set():
                raise _Cancelled

    def _wait_until_ready(self, server: Server, pid: Pid, since: int) -> None:
        begun = said = time.monotonic()
        while not server.ready():
            if self.give_up.is_set():
                raise _Cancelled
            if not pid.alive():
                raise _failure(server, f"{exit_text(pid)} while starting", since)
            now = time.monotonic()
            if now - begun > _START_SECONDS:
                raise _failure(server, f"(pid {pid.number}) did not answer within {_START_SECONDS} s", since)
            if now - said > _SAY_EVERY_SECONDS:
                said = now
                self._report(f"still waiting for {server.name} ({now - begun:.0f} s)")
            time.sleep(_POLL_SECONDS)
        if not pid.alive():  # something else answers on its port
            raise _failure(server, f"{exit_text(pid)} while starting", since)
        if server in self.started:
            self._report(f"{server.name} is up ({time.monotonic() - begun:.0f} s)")


def _failure(server: Server, what: str, since: int) -> StackError:
    lines = last_lines(server.log, since)
    return failure(f"{server.name} {what}; the last lines of {server.log}", lines)
