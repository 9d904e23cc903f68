"""One stack: its servers, started and stopped together or one by one."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from driftless.errors import StackError
from stack.access import sections
from stack.launch import launch, one_at_a_time, stop
from stack.machine import artifacts
from stack.machine.home import (
    Report,
    disk_errors,
    file_lock,
    make_folder,
    require_entry,
    require_space,
    server_user,
    stack_home,
    write_private,
)
from stack.machine.keys import Keys
from stack.machine.ports import DEFAULT_PORTS, choose_ports, require_free
from stack.machine.record import Record
from stack.servers.connect import SECRETS, Connect
from stack.servers.kafka import Kafka
from stack.servers.opensearch import OpenSearch
from stack.servers.postgres import Postgres
from stack.servers.redis import Redis
from stack.servers.server import Server, Site

KINDS: dict[str, type[Server]] = {kind.name: kind for kind in (Postgres, Redis, Kafka, Connect, OpenSearch)}
SERVERS = tuple(KINDS)
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def _silent(_: str) -> None:
    """Report to nobody."""


@dataclass(frozen=True)
class Endpoints:
    """Where a stack's servers listen; empty for a server that the stack does not have."""

    postgres: str = field(repr=False)  # holds the password
    kafka: str
    connect: str
    opensearch: str
    redis: str


class Stack:
    """The local servers under one name, as plain processes on loopback.

    Every process is recorded the moment it starts, by its number and its time of birth, so `down` ends what `up`
    started and never a stranger. Commands on one stack wait for each other. Data outlive `down` and any kill.
    `home` is where stacks are kept; what is fetched and unpacked is shared by all stacks in `stack_home()`.
    """

    def __init__(
        self,
        name: str = "default",
        *,
        home: Path | None = None,
        servers: Sequence[str] | None = None,
        secure: bool = False,
    ) -> None:
        """`secure`: TLS and logins on every hop. What a stack was made with it keeps."""
        if not _NAME.fullmatch(name):
            raise StackError(
                f"{name!r}: not a name for a stack",
                hint="use up to 40 of a-z, 0-9 and -, beginning with a letter or digit",
            )
        for server in servers or ():
            _require_kind(server)
            for need in set(KINDS[server].needs) - set(servers or ()):
                raise StackError(f"{server} needs {need}", hint=f"add {need} to the servers of the stack")
        self.name = name
        self.home = (home or stack_home()).absolute()
        self.folder = self.home / "stacks" / name
        self._chosen = tuple(servers) if servers is not None else None
        self._secure = secure

    def up(self, report: Report = _silent) -> Endpoints:
        """Start what does not run, and return when every server has answered.

        On a stack that is up nothing changes. When a server fails, or at Ctrl-C, what this call started is stopped.
        """
        with self._locked(report):
            record = self._record(self._chosen)
            try:
                servers = self._build(record, record.servers)
                missing = [server for server in servers if record.alive(server.name) is None]
                self._make_ready_to_start(record, missing, report)
                launch(servers, record, report)
            finally:
                if not record.versions:  # nothing was ever started, so there is no stack
                    self._state.unlink()
            return self._endpoints(record)

    def down(self, report: Report = _silent) -> list[str]:
        """Stop the servers that `up` started, Connect before Kafka; returns the names of those that ran."""
        with self._locked(report):
            return self._down(report)

    def allow(self, pipeline: str) -> dict[str, Any]:
        """Let a pipeline of this name use a secured stack that is up; returns what its sync.yaml says of it.

        What is secret stands in files, which it names.
        """
        with self._locked(_silent):
            record = Record.load(self._state)
            if record is None or not record.secure:
                raise StackError(f"the stack {self.name} has no TLS and no logins", hint="make one with `up --secure`")
            site = self._site(record)
            if "kafka" in record.servers:
                Kafka(site).allow(pipeline)
            return sections(site, record.servers)

    def destroy(self, report: Report = _silent) -> None:
        """Stop the servers and remove the stack's data, logs and password."""
        with self._locked(report):
            self._down(report)
            if self.folder.exists():
                shutil.rmtree(self.folder)

    def start(self, server: str, report: Report = _silent) -> None:
        """Start one server of a stack that was up, and wait until it answers."""
        with self._locked(report):
            record = self._existing(server)
            built = self._build(record, [server])
            if record.alive(server) is None:
                self._make_ready_to_start(record, built, report)
            launch(built, record, report)

    def stop(self, server: str, report: Report = _silent) -> None:
        """Stop one server in good order; the others run on."""
        with self._locked(report):
            record = self._existing(server)
            stop(self._build(record, [server])[0], record, report)

    def kill(self, server: str) -> None:
        """End one server at once, as a crash would: no shutdown work, and its child processes with it."""
        with self._locked(_silent):
            record = self._existing(server)
            if (pid := record.alive(server)) is not None:
                pid.kill_tree()

    def running(self) -> dict[str, int]:
        """The servers that run now, with their process numbers."""
        record = Record.load(self._state)
        if record is None:
            return {}
        return {name: pid.number for name in record.pids if (pid := record.alive(name)) is not None}

    def endpoints(self) -> Endpoints | None:
        """Where the servers listen when they are up; None for a stack that was never started."""
        record = Record.load(self._state)
        return None if record is None else self._endpoints(record)

    def log(self, server: str) -> Path:
        """The server's log."""
        _require_kind(server)
        return self.folder / "logs" / f"{server}.log"

    @property
    def secrets_dir(self) -> Path:
        """Files that a connector's configuration may name as `${file:...}` or `${dir:...}`; closed to other users."""
        make_folder(self.folder)
        return make_folder(self.folder / SECRETS, owner=server_user(), mode=0o700)

    def write_secret(self, name: str, text: str) -> Path:
        """Put a file into `secrets_dir` that the Connect worker can read and other users cannot."""
        path = self.secrets_dir / name
        write_private(path, text, owner=server_user())
        return path

    @property
    def keys(self) -> Keys | None:
        """Its certificates and passwords; None where it has none."""
        record = Record.load(self._state)
        return None if record is None else self._site(record).keys

    def pipelines(self) -> list[str]:
        """The names of those whose password was put here: of every one that was applied with this stack."""
        folder = self.folder / SECRETS
        return sorted(path.name for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []

    @property
    def _state(self) -> Path:
        return self.folder / "state.json"

    @contextmanager
    def _locked(self, report: Report) -> Iterator[None]:
        locks = self.home / "locks"
        with (
            disk_errors(self.home),
            file_lock(
                locks / f"{self.name}.lock", lambda: report(f"waiting for another command on the stack {self.name}")
            ),
        ):
            yield

    def _record(self, servers: Sequence[str] | None) -> Record:
        """The stack's record, made with ports of its own where there is none. Call it holding the stack's lock."""
        record = Record.load(self._state)
        if record is None:
            # Another stack's `up` waits here until the choice is on disk, so two never choose the same ports.
            with file_lock(self.home / "locks" / ".ports.lock"):
                taken = {port for other in _records(self.home) for port in other.ports.values()}
                own = self.name != "default"
                ports = choose_ports(f"{self.home}:{self.name}", taken) if own else dict(DEFAULT_PORTS)
                make_folder(self.folder)
                record = Record(self._state, ports, tuple(servers or SERVERS), secure=self._secure)
                record.save()
        elif self._secure and not record.secure:
            raise StackError(
                f"the stack {self.name} was made without TLS and logins",
                hint=f"make another one with --name, or delete it with `driftless down --name {self.name} --purge`",
            )
        elif servers is not None and set(servers) != set(record.servers):
            record.servers = tuple(servers)
            record.save()
        return record

    def _existing(self, server: str) -> Record:
        _require_kind(server)
        record = Record.load(self._state)
        if record is None or server not in record.servers:
            raise StackError(f"the stack {self.name} has no {server}", hint="start the stack first")
        return record

    def _build(self, record: Record, names: Sequence[str]) -> list[Server]:
        site = self._site(record)
        return [KINDS[name](site) for name in SERVERS if name in names]

    def _site(self, record: Record) -> Site:
        keys = Keys(self.folder / "keys", server_user()) if record.secure else None
        return Site(self.name, self.folder, record.ports, server_user(), keys)

    def _make_ready_to_start(self, record: Record, servers: Sequence[Server], report: Report) -> None:
        """Find out whatever stands in the way before anything starts, and fetch what is missing."""
        if not servers:
            return
        user = server_user()
        require_entry(self.folder, user)
        require_entry(stack_home(), user)
        require_space(self.home)
        for server in servers:
            server.check(record.versions.get(server.name))
            for port in server.port_names:
                require_free(server.name, record.ports[port])
        make_folder(self.folder / "logs")
        make_folder(self.folder / "tmp")
        if (keys := servers[0].site.keys) is not None:
            keys.make()
        artifacts.fetch(sorted({conf for server in servers for conf in server.confs()}), report)

    def _down(self, report: Report) -> list[str]:
        record = Record.load(self._state)
        if record is None:
            return []
        report = one_at_a_time(report)
        alive = [server for server in self._build(record, list(record.pids)) if record.alive(server.name)]
        needed = {need for server in alive for need in server.needs}
        for group in (
            [server for server in alive if server.name not in needed and server.needs],
            [server for server in alive if not server.needs],
        ):
            with ThreadPoolExecutor(len(SERVERS)) as pool:
                list(pool.map(lambda server: stop(server, record, report), group))
        return [server.name for server in alive]

    def _endpoints(self, record: Record) -> Endpoints:
        site = self._site(record)
        has = record.servers
        return Endpoints(
            postgres=Postgres(site).dsn() if "postgres" in has else "",
            kafka=site.address("kafka") if "kafka" in has else "",
            connect=Connect(site).url() if "connect" in has else "",
            opensearch=OpenSearch(site).url() if "opensearch" in has else "",
            redis=Redis(site).url() if "redis" in has else "",
        )


def find_stack(connect_url: str) -> Stack | None:
    """The local stack whose Connect answers at this URL, if any."""
    try:
        parts = urlsplit(connect_url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if host not in ("127.0.0.1", "localhost"):
        return None
    for record in _records(stack_home()):
        if "connect" in record.servers and record.ports["connect"] == port:
            return Stack(record.path.parent.name)
    return None


def _records(home: Path) -> Iterator[Record]:
    for path in sorted((home / "stacks").glob("*/state.json")):
        if (record := Record.load(path)) is not None:
            yield record


def _require_kind(server: str) -> None:
    if server not in KINDS:
        raise StackError(f"{server!r} is not a server of the stack", hint=f"name one of {', '.join(SERVERS)}")
