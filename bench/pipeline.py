"""A pipeline of a measurement: its sync.yaml, its topics filled by hand, and the installed command run on it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import psycopg
import redis
from confluent_kafka import KafkaError, Message

import sinks
from bench.rows import MAPPING, TABLE, Change
from bench.watch import Usage, Watch
from connectors.debezium.connect import Connect
from connectors.debezium.connector import topic_plan
from driftless import names
from driftless.config.load import load
from driftless.config.models import Config, ConnectConfig
from driftless.control.topic import SETTINGS, Control
from driftless.facts.epochs import first_epoch
from driftless.facts.generation import begin_facts, define, generations
from driftless.kafka.client import Kafka, Setting
from driftless.sink import Sink, SinkContext
from driftless.table import Table
from stack import Stack, stack_home

COMMAND = Path(sys.executable).with_name("driftless")
REDIS_DATABASE = "7"
"""Emptied by the measurements as they like; nothing else is in it."""
Followers = Mapping[str, tuple[str, Mapping[str, Any]]]
"""Name -> kind of store, and fields of the kind over those that say where it is. `view` may be among them."""
T = TypeVar("T")
_Headers = list[tuple[str, str | bytes | None]]
_Record = tuple[bytes, str | None, int, _Headers | None]
_OF_SNAPSHOT: _Headers = [("op", b"r"), ("ts", b"0"), ("lsn", b"0"), ("tx", b"0"), ("seq", b'[null,"0"]')]


def until(what: str, probe: Callable[[], T], seconds: float = 120, every: float = 0.05) -> T:
    """Ask again and again until the answer is true, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:g} s still waiting for: {what}")
        time.sleep(every)
    return found


@dataclass(frozen=True)
class Ran:
    """One `driftless run --until-caught-up`.

    `whole`: from start to end of the process. `applying`: from the empty store to the last change, by the broker's
    clock on the follower's own reports. `settled`: the same without the first slice, in which the JVM is still cold,
    as seconds and changes.
    """

    whole: float
    applying: float
    settled: tuple[float, int]
    usage: Usage


class Running:
    """A `driftless run`, or another command that goes on, in the background, with its usage."""

    def __init__(self, pipeline: Pipeline, *arguments: str, command: str = "run") -> None:
        self._command = command
        self.log = pipeline.folder / f"{command}-{uuid.uuid4().hex[:6]}.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [COMMAND, command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=pipeline.folder,
                start_new_session=True,
            )
        self.watch = Watch(self.process.pid)
        self.watch.start()

    def wait(self, seconds: float) -> None:
        """Return when it has ended well; raises AssertionError with its words when not."""
        self.process.wait(seconds)
        self.check()

    def check(self) -> None:
        """Raise AssertionError with its words when it has failed."""
        code = self.process.poll()
        assert not code, (
            f"`driftless {self._command}` ended with {code}: {self.log.read_text(errors='replace')[-2000:]}"
        )

    def __enter__(self) -> Running:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.watch.stop()
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
            self.process.wait()


class Pipeline:
    """Topics, facts and followers under a name of their own, in the forms that `driftless apply` makes."""

    def __init__(
        self,
        stack: Stack,
        folder: Path,
        followers: Followers,
        *,
        tables: Iterable[Table] = (TABLE,),
        captured: Iterable[str] = (),
        views: Mapping[str, Any] | None = None,
        over: Mapping[str, Any] | None = None,
        dsn: str | None = None,
    ) -> None:
        """`over`: sections of sync.yaml besides, such as `streams`."""
        endpoints = stack.endpoints()
        assert endpoints is not None, "the stack was never started"
        self.endpoints = endpoints
        self.name = f"bench-{uuid.uuid4().hex[:6]}"
        self.folder = folder
        self.tables = {table.full_name: table for table in tables}
        self.redis = endpoints.redis.rsplit("/", 1)[0] + f"/{REDIS_DATABASE}"
        self.sync = folder / "sync.yaml"
        written = self._sync(dsn or endpoints.postgres, captured or self.tables, views, followers)
        self.sync.write_text(json.dumps({**written, **(over or {})}, indent=2))
        self.config: Config = load(self.sync, {kind: sinks.config_model(kind) for kind in sinks.kinds()})
        self.kafka = Kafka(self.config.kafka)
        self.control = Control(self.kafka, self.name)

    def _sync(
        self, dsn: str, captured: Iterable[str], given: Mapping[str, Any] | None, followers: Followers
    ) -> dict[str, Any]:
        places: dict[str, dict[str, Any]] = {}
        views = dict(given or {name.removeprefix("public."): {"root": name} for name in self.tables})
        for name, (kind, more) in followers.items():
            fields = dict(more)
            view = fields.pop("view", next(iter(views)))
            place = (
                {"url": self.endpoints.opensearch, "index": f"{self.name}-{name}", "mapping": MAPPING}
                if kind == "opensearch"
                else {"url": self.redis, "key": f"{self.name}-{name}:{{id}}"}
            )
            places[name] = {"view": view, kind: {**place, **fields}}
        return {
            "name": self.name,
            "source": {"dsn": dsn, "tables": {name: {} for name in captured}},
            "kafka": {"bootstrap": self.endpoints.kafka},
            "connect": {"url": self.endpoints.connect},
            "views": views,
            "followers": places,
        }

    @property
    def rows(self) -> Path:
        """Where the rows of views of several tables are kept."""
        return stack_home() / "rows" / self.name

    # -- the log ------------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> int:
        return self.config.kafka.partitions

    def register(self) -> None:
        """Make the topics and write the facts, as `driftless apply` does for a database."""
        for topic, (partitions, settings) in {self.control.topic: (1, SETTINGS), **topic_plan(self.config)}.items():
            self.kafka.create(topic, partitions, settings)
        for name, table in self.tables.items():
            found = until(f"the topic of {name}", partial(self.kafka.topic, self.topic(name)))
            assert found is not None
            log = first_epoch(found.name, found.id, found.partitions)
            self.control.write({f"table/{name}": table.to_json(), **log.fact(name)})
        for follower in self.config.followers:
            root = self.config.table_of(follower)
            assert root is not None
            table = self.tables[root]
            self.control.write(begin_facts(follower, define(self.config, follower, table)))

    def topic(self, table: str = TABLE.full_name) -> str:
        return names.table_topic(self.name, table)

    def partition(self, change: Change) -> int:
        return change.id % self.partitions

    def put(self, changes: Iterable[Change], table: str = TABLE.full_name) -> None:
        """Append to a table's topic what the connector would have written, in this order."""
        self._produce(self.topic(table), ((c.key, c.value, self.partition(c), None) for c in changes))

    def put_rows(self, table: str, rows: Iterable[tuple[str, str]]) -> None:
        """The same for a table of any view: keys and values, with the headers that a snapshot's rows have."""
        records = (
            (key.encode(), value, zlib.crc32(key.encode()) % self.partitions, _OF_SNAPSHOT) for key, value in rows
        )
        self._produce(self.topic(table), records)

    def _produce(self, topic: str, records: Iterable[_Record]) -> None:
        settings: dict[str, Setting] = {"enable.idempotence": True, "compression.type": "lz4", "linger.ms": 20}
        producer = self.kafka.producer(**settings, **{"queue.buffering.max.messages": 500_000})
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        for number, (key, value, partition, headers) in enumerate(records):
            producer.produce(topic, value, key, partition, on_delivery=delivered, headers=headers)
            if number % 10_000 == 0:
                producer.poll(0)
                while len(producer) > 200_000:
                    producer.poll(0.05)
        producer.flush(120)
        assert not failed, f"{topic}: {len(failed)} records were not written: {failed[0]}"

    def mark(self) -> None:
        """A marker, by which followers know that they have what was put before it, and become live."""
        now = time.time_ns() // 1000
        record = json.dumps({"op": "m", "source": {"lsn": now, "ts_us": now, "txId": 1}})
        producer = self.kafka.producer()
        producer.produce(
            names.message_topic(self.name), record.encode(), json.dumps({"prefix": names.MARKER_PREFIX}).encode()
        )
        producer.flush(30)

    # -- the command --------------------------------------------------------------------------------------------

    def command(self, *arguments: str, seconds: float = 300) -> None:
        """Run `driftless` to its end; raises AssertionError with its words when it fails."""
        done = subprocess.run(
            [COMMAND, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=seconds, check=False
        )
        assert done.returncode == 0, f"`driftless {' '.join(arguments)}` ended with {done.returncode}: {done.stderr}"

    def wait_live(self, *followers: str, running: Running, seconds: float = 300) -> None:
        """Return when these have applied all that was in the log; raises AssertionError when the run ends before."""

        def live() -> bool:
            running.check()
            state = self.control.read()
            reports = [state.get(f"follower/{name}/1") for name in followers]
            return all(report is not None and report["live"] and report["lag_records"] == 0 for report in reports)

        # Of many followers the control topic has much: reading it again and again would slow down what it waits for.
        until(f"{', '.join(followers)} to be live", live, seconds, every=0.2 if len(followers) < 5 else 2.0)

    def change_view(self, name: str, declared: Mapping[str, Any]) -> None:
        """Declare a view in another way; `apply` then begins it anew."""
        sync = json.loads(self.sync.read_text())
        sync["views"][name] = declared
        self.sync.write_text(json.dumps(sync, indent=2))

    # -- the followers ------------------------------------------------------------------------------------------

    def sink(self, follower: str, *, table: Table = TABLE) -> Sink:
        entry = self.config.followers[follower]
        return sinks.open_sink(entry.kind, entry.sink, SinkContext(self.name, follower, table.key))

    def apply_all(self, follower: str, *, memory: str = "1g", seconds: float = 600) -> Ran:
        """Let a follower apply the whole log, as an operator would, and end."""
        begun = time.monotonic()
        with Running(self, follower, "--until-caught-up", "--memory", memory) as running:
            running.wait(seconds)
            whole = time.monotonic() - begun
            usage = running.watch.stop()
        return Ran(whole, *self._applying(follower), usage)

    def _applying(self, follower: str) -> tuple[float, tuple[float, int]]:
        """From the follower's reports in the control topic, whose times are the broker's."""
        key = f"follower/{follower}/1".encode()
        reports = [
            (message.timestamp()[1] / 1000, json.loads(message.value() or b"{}"))
            for message in self.kafka.read_to_end(self.control.topic)
            if message.key() == key
        ]
        # It counts the store's documents for the first time when it has made the place and reads nothing yet.
        begin = next(at for at, report in reports if report["documents"] is not None)
        slices = [(at, int(report["lag_records"])) for at, report in reports if at > begin and report["lag_records"]]
        end = next(at for at, report in reports if report["built"])
        return end - begin, (end - slices[0][0], slices[0][1]) if slices else (end - begin, 0)

    def documents(self, follower: str, *, generation: int = 1) -> dict[str, str]:
        """Every document of a follower, by key."""
        sink = self.sink(follower)
        try:
            batches = (batch.to_pydict() for batch in sink.scan(generation))
            return {k: d for batch in batches for k, d in zip(batch["key"], batch["document"], strict=True)}
        finally:
            sink.close()

    def drop(self, follower: str, *, generation: int = 1) -> None:
        """Remove a follower's documents, so that they do not weigh on what is measured next."""
        if self.config.followers[follower].kind == "redis":
            self.empty_redis()
            return
        sink = self.sink(follower)
        sink.drop(generation, also_live=True)
        sink.close()

    def empty_redis(self) -> None:
        with redis.Redis.from_url(self.redis, socket_timeout=120) as client:
            client.flushdb(asynchronous=True)

    def remove(self) -> None:
        """Take away all that was made: connector, slot, topics and documents."""
        self._remove_source()
        state = self.control.read()
        for name in self.config.followers:
            for number in generations(state, name) or (1,):
                self.drop(name, generation=number)
        found = self.kafka.topics()
        ours = {t for t in found if t.startswith(f"{self.name}.")} | {names.heartbeat_topic(self.name)} & found
        self.kafka.delete(*ours)
        shutil.rmtree(self.rows, ignore_errors=True)

    def _remove_source(self) -> None:
        Connect(ConnectConfig(url=self.endpoints.connect)).delete(names.connector(self.name))
        slot = names.slot(self.name)
        with psycopg.connect(self.endpoints.postgres, autocommit=True) as connection:
            active = "select 1 from pg_replication_slots where slot_name = %s and active"
            until("Debezium to leave its slot", lambda: not connection.execute(active, (slot,)).fetchone())
            drop = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s"
            connection.execute(drop, (slot,))


@contextmanager
def pipeline(stack: Stack, followers: Followers, *, dsn: str | None = None, **more: Any) -> Iterator[Pipeline]:
    """A pipeline, removed at the end. Without a database of its own its topics are there, registered and empty."""
    with tempfile.TemporaryDirectory(prefix="driftless-bench-") as folder:
        made = Pipeline(stack, Path(folder), followers, dsn=dsn, **more)
        try:
            if dsn is None:
                made.register()
            yield made
        finally:
            made.remove()
