"""Two Postgres servers of one history: a primary, and a standby that streams from it and keeps its slots."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil
import psycopg

from stack import Stack
from stack.machine.home import server_user
from stack.servers.postgres import Postgres
from stack.servers.server import Site
from tests.chain.support.broken import copy_tree
from tests.support.machine import until

STANDBY_SLOT = "standby"


class OneServer:
    """A Postgres server of its own, with a folder and a port."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.move(port)
        self.settings: dict[str, str] = {}

    def move(self, port: int) -> None:
        """Listen there, from the next start on."""
        self._server, self.port = Postgres(Site("two", self._folder, {"postgres": port}, server_user())), port

    @property
    def data(self) -> Path:
        return self._folder / "data" / "postgres"

    @property
    def password(self) -> str:
        return self._server.password_file.read_text().strip()

    def connect(self, database: str = "postgres") -> psycopg.Connection:
        dsn = self._server.dsn().rsplit("/", 1)[0] + f"/{database}"
        return psycopg.connect(dsn, autocommit=True, connect_timeout=5)

    def start(self, *, standby: bool = False) -> None:
        self._server.site.make()
        self._server.prepare(lambda _: None)
        user = self._server.site.user
        with (self._folder / "conf" / "postgres" / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in self.settings.items())
        if standby:
            self._server.write(self.data, "standby.signal", "")
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(part) for part in self._server.command()],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=self._folder,
                env=self._server.environment(), umask=0o077, start_new_session=True,
                user=None if user is None else user.uid, group=None if user is None else user.gid,
                extra_groups=None if user is None else [],
            )  # fmt: skip
        until(f"the server at {self.port} to answer", self._server.ready, 60)

    def stop(self) -> None:
        """In good order."""
        if self._process is not None:
            self._process.send_signal(self._server.stop_signal)
            self._process.wait(60)
            self._process = None

    def kill(self) -> None:
        """At once, with all its processes, as when its machine loses power."""
        if self._process is not None:
            server = psutil.Process(self._process.pid)
            family = server.children(recursive=True)
            for each in (server, *family):
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            self._process.wait(60)
            psutil.wait_procs(family, 60)
            self._process = None


class TwoServers:
    """A primary and its standby. `sync`: the primary sends changes to nobody before its standby has them, and the
    standby keeps the slots.
    """

    def __init__(self, folder: Path, *, sync: bool = True) -> None:
        self.primary = OneServer(folder / "one", _free_port())
        self.standby = OneServer(folder / "two", _free_port())
        self.primary.settings = {"synchronized_standby_slots": STANDBY_SLOT} if sync else {}
        self.primary.start()
        with self.primary.connect() as connection:
            connection.execute("select pg_create_physical_replication_slot(%s)", (STANDBY_SLOT,))
            connection.execute("create database shop")
        self.primary.stop()
        shutil.rmtree(folder / "two", ignore_errors=True)
        copy_tree(folder / "one", folder / "two")
        login = f"user=postgres password={self.primary.password} dbname=postgres"
        self.standby.settings = {
            "primary_conninfo": f"host=127.0.0.1 port={self.primary.port} {login}",
            "primary_slot_name": STANDBY_SLOT,
            "hot_standby_feedback": "on",
            **({"sync_replication_slots": "on"} if sync else {}),
        }
        self.primary.start()
        self.standby.start(standby=True)

    def dsn(self, *servers: OneServer) -> str:
        """Of whichever of these takes writes; of both when none is named."""
        places = ",".join(f"127.0.0.1:{server.port}" for server in servers or (self.primary, self.standby))
        user = f"postgres:{self.primary.password}"
        return f"postgresql://{user}@{places}/shop?target_session_attrs=read-write&connect_timeout=5"

    def await_slot(self, name: str) -> None:
        """Until the standby keeps the slot for good."""
        with self.standby.connect() as connection:
            row = "select synced and not temporary from pg_replication_slots where slot_name = %s"
            until("the standby to keep the slot", lambda: connection.execute(row, (name,)).fetchone() == (True,), 120)

    def caught_up(self) -> None:
        """Until the standby has all that is committed now."""
        with self.primary.connect() as primary, self.standby.connect() as standby:
            row = primary.execute("select pg_current_wal_insert_lsn()").fetchone()
            assert row is not None
            there = "select pg_last_wal_replay_lsn() >= %s"
            until("the standby to catch up", lambda: standby.execute(there, row).fetchone() == (True,), 60)

    def promote(self, *, moved: bool = False) -> None:
        """`moved`: it then has the address that the primary had."""
        if moved:
            self.standby.stop()
            self.standby.move(self.primary.port)
            self.standby.start()
        with self.standby.connect() as connection:
            assert connection.execute("select pg_promote(true, 60)").fetchone() == (True,)

    def end(self) -> None:
        self.primary.kill()
        self.standby.kill()


@contextmanager
def two_servers(stack: Stack, *, sync: bool = True) -> Iterator[TwoServers]:
    """In the stack's folder, which its user may enter."""
    folder = stack.folder / "two"
    servers = TwoServers(folder, sync=sync)
    try:
        yield servers
    finally:
        servers.end()
        shutil.rmtree(folder)


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        return int(free.getsockname()[1])
