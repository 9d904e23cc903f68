"""What breaks the ground that a pipeline stands on, done as an operator's mistake or a failure would do it."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any

import psutil
import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from bench.meanwhile import meanwhile
from stack import Stack
from tests.support.compare import OpenSearch
from tests.support.machine import Job, until
from tests.support.pipeline import Pipeline


def rest(pipeline: Pipeline) -> OpenSearch:
    """Plain HTTP with JSON is all that Connect needs."""
    return OpenSearch(pipeline.endpoints.connect, "")


def answers(url: str, path: str) -> Any:
    """What a server says, or None while it does not."""
    try:
        return OpenSearch(url, "").call("GET", path)
    except (AssertionError, OSError):
        return None


def connector(pipeline: Pipeline) -> str:
    return f"/connectors/driftless-{pipeline.name}"


def slot(pipeline: Pipeline) -> str:
    return "driftless_" + pipeline.name.replace("-", "_")


def slot_row(pipeline: Pipeline) -> dict[str, Any] | None:
    """The slot as Postgres shows it."""
    query = "select to_jsonb(s) from pg_replication_slots s where slot_name = %s"
    row = pipeline.connection.execute(query, (slot(pipeline),)).fetchone()
    return None if row is None else dict(row[0])


def leave_slot(pipeline: Pipeline) -> None:
    """End whoever reads from the slot, whom Connect lets try again after seconds."""
    held = "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = %s and active"

    def left() -> bool:
        pipeline.connection.execute(held, (slot(pipeline),))
        row = slot_row(pipeline)
        return row is not None and not row["active"]

    until("Debezium to leave its slot", left)


def drop_slot(pipeline: Pipeline) -> None:
    def dropped() -> bool:
        leave_slot(pipeline)
        try:
            pipeline.connection.execute("select pg_drop_replication_slot(%s)", (slot(pipeline),))
        except psycopg.errors.ObjectInUse:
            return False
        return True

    until("the slot to be dropped", dropped)
    assert slot_row(pipeline) is None


@contextmanager
def connector_stopped(pipeline: Pipeline) -> Iterator[None]:
    """The connector's task is not there meanwhile, as while its worker is down."""
    rest(pipeline).call("PUT", f"{connector(pipeline)}/stop")
    until("the slot to be free", lambda: not (slot_row(pipeline) or {}).get("active"))
    yield
    rest(pipeline).call("PUT", f"{connector(pipeline)}/resume")


def length(pipeline: Pipeline, table: str) -> int:
    """How far the partitions of a table's topic are written, all together; ends of transactions count too."""
    consumer = Consumer({"bootstrap.servers": pipeline.endpoints.kafka, "group.id": "test"})
    try:
        topic = f"{pipeline.name}.{table}"
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        ends = (consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30) for p in partitions)
        return sum(int(end) for _, end in ends)
    finally:
        consumer.close()


@contextmanager
def asleep(number: int) -> Iterator[int]:
    """A process and all below it do nothing meanwhile; gives how many they are. Their connections stay open."""
    process = psutil.Process(number)
    process.send_signal(signal.SIGSTOP)  # first, so that it starts no more
    family = [process, *process.children(recursive=True)]
    try:
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGSTOP)
        until("it to sleep", lambda: process.status() == psutil.STATUS_STOPPED, 10)
        yield len(family)
    finally:
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGCONT)


@contextmanager
def slowed(number: int) -> Iterator[None]:
    """A process works for a tenth of the time meanwhile."""
    process = psutil.Process(number)

    def hinder(ended: Event) -> None:
        with suppress(psutil.NoSuchProcess):
            while not ended.wait(0.03):
                process.send_signal(signal.SIGSTOP)
                ended.wait(0.27)
                process.send_signal(signal.SIGCONT)

    with meanwhile(hinder):
        yield


@contextmanager
def server_setting(pipeline: Pipeline, name: str, value: str) -> Iterator[None]:
    """Another value of a setting of Postgres, for connections to come."""
    pipeline.connection.execute(f"alter system set {name} = '{value}'".encode())
    pipeline.connection.execute("select pg_reload_conf()")
    yield
    pipeline.connect()
    pipeline.connection.execute(f"alter system reset {name}".encode())
    pipeline.connection.execute("select pg_reload_conf()")


@contextmanager
def second_worker(stack: Stack) -> Iterator[str]:
    """Another worker of the same Connect, at a port of its own; its URL once it answers."""
    first = psutil.Process(stack.running()["connect"])
    *command, settings = first.cmdline()
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    there = [line for line in Path(settings).read_text().splitlines() if not line.startswith(("listeners", "rest."))]
    mine = Path(settings).with_name("second.properties")
    url = f"http://127.0.0.1:{port}"
    rest = [f"listeners={url}", "rest.advertised.host.name=127.0.0.1", f"rest.advertised.port={port}"]
    mine.write_text("\n".join([*there, *rest]))
    _own(mine, Path(settings))
    owner = first.uids().real, first.gids().real
    log = Path(settings).with_name("second.log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, mine], env=first.environ(), cwd=first.cwd(), stdout=output, stderr=subprocess.STDOUT,
            user=owner[0], group=owner[1], extra_groups=[],
        )  # fmt: skip
    try:
        until("the second worker to answer", lambda: answers(url, "/connectors") is not None, 120)
        yield url
    finally:
        process.kill()
        process.wait()


@contextmanager
def small_log_disk(stack: Stack, megabytes: int) -> Iterator[Callable[[int], None]]:
    """Postgres' log on a disk of its own; gives what makes that larger. Skips where nothing may be mounted."""
    log, folder = stack.folder / "data" / "postgres" / "pg_wal", stack.folder / "data" / "small"
    folder.mkdir()

    def mount(*options: str) -> None:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", folder], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip(f"no disk can be mounted here: {done.stderr.decode()}")

    mount(f"size={megabytes}m")
    stack.stop("postgres")
    copy_tree(log, folder / "pg_wal")
    aside = log.with_name("pg_wal.aside")
    log.rename(aside)
    log.symlink_to(folder / "pg_wal")
    _own(folder, aside)
    try:
        stack.start("postgres")
        yield lambda size: mount("remount", f"size={size}m")
    finally:
        stack.stop("postgres")
        log.unlink()
        shutil.rmtree(aside)
        copy_tree(folder / "pg_wal", log)
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()
        stack.start("postgres")


def make_standby(stack: Stack) -> None:
    """Its Postgres, which is down, starts as a standby that nobody sends anything."""
    data = stack.folder / "data" / "postgres"
    (data / "standby.signal").touch()
    owner = (data / "PG_VERSION").stat()
    shutil.chown(data / "standby.signal", owner.st_uid, owner.st_gid)


class Copy:
    """The server's data as they are now, to be put back later: a cold copy, as of a disk."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self._stack = stack
        self._data = stack.folder / "data" / "postgres"
        self._copy = folder / "postgres"
        stack.stop("postgres")
        copy_tree(self._data, self._copy)
        stack.start("postgres")

    def restore(self) -> None:
        """The server forgets what has come since."""
        self._stack.stop("postgres")
        self._put_back()
        self._stack.start("postgres")

    def promote(self, dsn: str) -> None:
        """A standby that has no more than the copy takes the server's place."""
        self._stack.stop("postgres")
        self._put_back()
        make_standby(self._stack)
        self._stack.start("postgres")
        with psycopg.connect(dsn, autocommit=True) as connection:
            assert connection.execute("select pg_is_in_recovery()").fetchone() == (True,)
            assert connection.execute("select pg_promote(true, 30)").fetchone() == (True,)

    def _put_back(self) -> None:
        shutil.rmtree(self._data)
        copy_tree(self._copy, self._data)


def copy_tree(what: Path, to: Path) -> None:
    """With owners and modes."""
    shutil.copytree(what, to, symlinks=True, copy_function=_copy)
    for path in (what, *(path for path in what.rglob("*") if path.is_dir())):
        _own(to / path.relative_to(what), path)


def _copy(what: str, to: str) -> str:
    shutil.copy2(what, to)
    _own(Path(to), Path(what))
    return to


def _own(path: Path, like: Path) -> None:
    found = like.stat()
    path.chmod(found.st_mode & 0o7777)
    shutil.chown(path, found.st_uid, found.st_gid)


def ends(job: Job, message: str, hint: str, seconds: float = 150) -> None:
    """The run stops by itself, and says why and what to do."""
    assert job.wait(seconds) == 1, job.output()
    said = " ".join(job.output().split())
    assert message in said, job.output()
    assert hint in said, job.output()
