"""PostgreSQL, ready for logical decoding."""

from __future__ import annotations

import secrets
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg

from driftless.errors import StackError
from stack.machine import artifacts, unpack
from stack.machine.home import Report, write_private
from stack.machine.keys import SERVER, USER, Keys
from stack.machine.ports import LOOPBACK
from stack.servers.server import Server

# The built-in provider gives the same UTF-8 behaviour whatever locales the machine has.
LOCALE = ("--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")
_HBA = """\
# type  database     user  address       method
host    all          all   127.0.0.1/32  scram-sha-256
host    replication  all   127.0.0.1/32  scram-sha-256
"""
SUPERUSER = "postgres"


class Postgres(Server):
    """The source. Acknowledged commits survive a kill of every process (fsync is on)."""

    name = "postgres"
    port_names = ("postgres",)
    stop_signal = signal.SIGINT  # fast shutdown; SIGTERM would wait for every client to leave

    @property
    def _data(self) -> Path:
        return self.site.folder / "data" / "postgres"

    def confs(self) -> list[str]:
        return [artifacts.full_name("postgres")]

    def check(self, written_by: str | None) -> None:
        if written_by is not None and written_by.split(".")[0] != self.version().split(".")[0]:
            raise StackError(
                f"postgres: the data in {self._data} were written by {written_by}, and this is {self.version()}",
                hint="use a stack of another name, or remove this one's data and start over",
            )

    def dsn(self) -> str:
        return self.dsn_of(SUPERUSER, self._password())

    def dsn_of(self, user: str, password: str) -> str:
        """`password`: also what stands in place of it."""
        keys = self.site.keys
        proof = "" if keys is None else f"?sslmode=verify-full&sslrootcert={quote(str(keys.ca), safe='/')}"
        return f"postgresql://{user}:{password}@{self.site.address('postgres')}/postgres{proof}"

    def settings(self) -> dict[str, object]:
        folder = self.site.make("conf", "postgres")
        return {
            "data_directory": self._data,
            "hba_file": folder / "pg_hba.conf",
            "ident_file": folder / "pg_ident.conf",
            "listen_addresses": LOOPBACK,
            "port": self.site.ports["postgres"],
            "unix_socket_directories": "",
            "password_encryption": "scram-sha-256",
            "wal_level": "logical",
            "max_replication_slots": 20,
            "max_wal_senders": 20,
            "shared_buffers": "256MB",
            "max_wal_size": "1GB",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_line_prefix": "%m [%p] %u@%d ",
            **({} if self.site.keys is None else _secured(self.site.keys)),
        }

    def prepare(self, report: Report) -> None:
        tree = unpack.postgres_tree(report)
        self.site.make("data")
        if not (self._data / "PG_VERSION").exists():
            self._make_data(tree)
        folder = self.site.make("conf", "postgres")
        secured = self.site.keys is not None
        self.write(folder, "pg_hba.conf", _HBA.replace("host ", "hostssl ") if secured else _HBA)
        self.write(folder, "pg_ident.conf", "")
        lines = "".join(f"{key} = '{value}'\n" for key, value in self.settings().items())
        self.write(folder, "postgresql.conf", lines)
        self._drop_stale_lock()

    def command(self) -> Sequence[str | Path]:
        tree = unpack.postgres_tree(lambda _: None)
        config = self.site.folder / "conf" / "postgres" / "postgresql.conf"
        return [tree / "bin" / "postgres", "-D", self._data, "-c", f"config_file={config}"]

    def ready(self) -> bool:
        try:
            with psycopg.connect(self.dsn(), connect_timeout=3, autocommit=True) as connection:
                return connection.execute("SELECT 1").fetchone() == (1,)
        except psycopg.Error:
            return False

    def open(self) -> None:
        """Make the role that may log in and stream the log: `apply` gives it the rest."""
        if self.site.keys is None:
            return
        password = self.site.keys.password(self.name)
        try:
            with psycopg.connect(self.dsn(), connect_timeout=10, autocommit=True) as connection:
                if connection.execute("select 1 from pg_roles where rolname = %s", (USER,)).fetchone() is None:
                    connection.execute(f"create role {USER} login replication password '{password}'".encode())
        except psycopg.Error as exc:
            what = f"postgres: the role {USER} could not be made: {type(exc).__name__}"
            raise StackError(what, hint="the log tells more: try again", unreachable=True) from exc

    @property
    def password_file(self) -> Path:
        """The superuser's."""
        return self.site.folder / "postgres.password"

    def _password(self) -> str:
        path = self.password_file
        try:
            return path.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            if self._data.exists():
                raise StackError(
                    f"{path}: missing, and without it nobody can enter the database in {self._data}",
                    hint="restore the file, or remove the stack's folder and start over",
                ) from None
        password = secrets.token_urlsafe(24)
        write_private(path, password + "\n")
        return password

    def _make_data(self, tree: Path) -> None:
        """Run initdb beside the data folder's place and rename: a data folder that exists is whole."""
        partial = self.site.folder / "data" / "postgres.partial"
        shutil.rmtree(partial, ignore_errors=True)
        password_file = self.write(self.site.make("conf", "postgres"), "initdb.password", self._password() + "\n")
        command: list[str | Path] = [
            tree / "bin" / "initdb",
            "-D",
            partial,
            "--username=postgres",
            f"--pwfile={password_file}",
        ]
        command += ["--auth=scram-sha-256", *LOCALE]
        self.run_once(command)
        password_file.unlink()
        partial.rename(self._data)

    def _drop_stale_lock(self) -> None:
        """Remove the lock of a killed postmaster whose pid another program has now, or that nobody has reaped yet.

        PostgreSQL settles every other case itself, and its own check also finds backends that outlived the postmaster.
        """
        lock = self._data / "postmaster.pid"
        try:
            holder = psutil.Process(int(lock.read_text().split()[0]))
            if holder.name() != "postgres" or holder.status() == psutil.STATUS_ZOMBIE:
                lock.unlink()
        except (OSError, ValueError, IndexError, psutil.Error):
            return


def _secured(keys: Keys) -> dict[str, object]:
    return {"ssl": "on", "ssl_cert_file": keys.certificate(SERVER), "ssl_key_file": keys.key(SERVER)}
