"""A pipeline of a test: its sync.yaml, and what is run on it."""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
import redis
from confluent_kafka.admin import AdminClient

from stack import Endpoints, stack_home
from tests.support import topic
from tests.support.compare import Difference, OpenSearch, Redis, Store, View, compare, parse
from tests.support.machine import Job, Machine, Result, until

_SHOWN = 3000


class Pipeline:
    """A pipeline that follows views into both kinds of store, and everything that was made for it.

    Each view has two followers, `<view>-search` and `<view>-cache`.
    """

    def __init__(
        self,
        folder: Path,
        endpoints: Endpoints,
        dsn: str,
        views: Sequence[View],
        *,
        tables: Mapping[str, Mapping[str, Any]] | None = None,
        partitions: int = 2,
        index: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        """`secrets`: what sync.yaml takes from the environment, where driftless is to go another way than the test."""
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.endpoints = endpoints
        self.dsn = dsn
        self.views = {view.name: view for view in views}
        self.stores: dict[str, Store] = {}
        self._folder = folder
        self._secrets = dict(secrets or {})
        self.sync: dict[str, Any] = {
            "name": self.name,
            "source": {"dsn": "${SOURCE_DSN}", "tables": dict(tables or {view.table: {} for view in views})},
            "kafka": {"bootstrap": endpoints.kafka, "partitions": partitions},
            "connect": {"url": endpoints.connect},
            "views": {},
            "followers": {},
        }
        for view in views:
            self.add(view, index)
        self.here = self.machine("here")
        self.connection = self.connect()

    def add(self, view: View, index: Mapping[str, Any] | None = None) -> None:
        """Put a view and its two followers into the configuration."""
        shown = {} if view.fields is None else {"columns": dict(view.fields)}
        filtered = {} if view.where == "true" else {"where": view.where}
        self.sync["views"][view.name] = {"root": view.table, **shown, **filtered}
        self.follow(f"{view.name}-search", view, {"opensearch": {**(index or {"mapping": {"dynamic": False}})}})
        self.follow(f"{view.name}-cache", view, {"redis": {}})

    def follow(self, follower: str, view: View, kind: Mapping[str, Mapping[str, Any]]) -> None:
        """Put one follower of a view into the configuration, in a place of its own."""
        self.views[view.name] = view
        name = f"{self.name}-{follower}"
        if "opensearch" in kind:
            self.stores[follower] = OpenSearch(self.endpoints.opensearch, name)
            place = {"url": "${SEARCH_URL}", "index": name}
        else:
            key = f"{name}:{':'.join(f'{{{column}}}' for column in view.key)}"
            self.stores[follower] = Redis(self.endpoints.redis, key, view.key)
            place = {"url": "${CACHE_URL}", "key": key}
        store = {which: {**place, **more} for which, more in kind.items()}
        self.sync["followers"][follower] = {"view": view.name, **store}

    def machine(self, name: str) -> Machine:
        """Another place to run from, with an empty home."""
        secrets = {
            "SOURCE_DSN": self.dsn,
            "SEARCH_URL": self.endpoints.opensearch,
            "CACHE_URL": self.endpoints.redis,
            **self._secrets,
        }
        machine = Machine(self._folder / name, self.sync, secrets)
        self._machines = [*getattr(self, "_machines", []), machine]
        return machine

    def connect(self) -> psycopg.Connection:
        """A connection of our own to the source, made anew after the server was away."""
        self.connection = psycopg.connect(self.dsn, autocommit=True)
        return self.connection

    # -- the command --------------------------------------------------------------------------------------------

    @property
    def variables_of_init(self) -> dict[str, str]:
        """What a sync.yaml that `init` writes takes from the environment."""
        return {
            f"{self.name.upper()}_DSN": self.dsn,
            "KAFKA": self.endpoints.kafka,
            "CONNECT_URL": self.endpoints.connect,
            "SEARCH_URL": self.endpoints.opensearch,
            "CACHE_URL": self.endpoints.redis,
        }

    def apply(self) -> Result:
        """`driftless apply`, which must succeed."""
        self.here.write()
        done = self.here("apply", seconds=180)
        assert done.code == 0, f"apply ended with {done.code}\n{done.out}{done.err}"
        return done

    def run(self, *names: str) -> Job:
        return self.here.run(*names)

    def status(self) -> dict[str, Any]:
        """`driftless status --json`, whatever its exit code."""
        done = self.here("status", "--json")
        assert done.out, f"status said nothing and ended with {done.code}: {done.err}"
        return dict(done.json())

    def follower(self, name: str) -> dict[str, Any]:
        """One follower's part of the status."""
        return next(f for f in self.status()["followers"] if f["name"] == name)

    def lsn(self) -> str:
        """Where the source's log stands: everything committed is before it."""
        row = self.connection.execute("select pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None
        return str(row[0])

    def wait(self, follower: str | None = None, *, lsn: str | None = None, seconds: float = 240) -> None:
        """`driftless wait` for what is committed now; fails at once when a run that should go on has ended."""
        which, patient = [follower] if follower else [], ("--start", "240")  # a run takes its time on a busy machine
        waiting = self.here.start("wait", "--lsn", lsn or self.lsn(), "--timeout", f"{seconds:g}", *patient, *which)
        until(f"the end of `{waiting}`", lambda: not waiting.running or any(self._failed()), seconds + 60)
        waiting.destroy()
        code = waiting.process.returncode
        assert code == 0, f"`{waiting}` ended with {code}: {waiting.output()}\n{self.explain()}"

    def _failed(self) -> Iterator[Job]:
        """Runs that have ended and were not told to."""
        return (job for job in self.jobs() if not job.running and not job.told)

    # -- the stores ---------------------------------------------------------------------------------------------

    def of(self, view: str) -> dict[str, Store]:
        """The stores of a view's followers."""
        return {name: self.stores[name] for name, f in self.sync["followers"].items() if f["view"] == view}

    def differences(self, followers: Iterable[str] | None = None) -> dict[str, Difference]:
        """Every follower that does not hold what the source says."""
        wanted = self.stores if followers is None else followers
        found = {name: compare(self.connection, self._view(name), self.stores[name]) for name in wanted}
        return {name: difference for name, difference in found.items() if difference}

    def assert_in_step(self, *followers: str, seconds: float = 240) -> None:
        """Wait until what is committed now can be read, then compare every document of these followers, or of all."""
        for follower in followers or (None,):
            self.wait(follower, seconds=seconds)
        wrong = self.differences(followers or None)
        said = "\n".join(f"{name}: {difference}" for name, difference in wrong.items())
        assert not wrong, f"{said}\n{self.explain()}"

    def _view(self, follower: str) -> View:
        return self.views[self.sync["followers"][follower]["view"]]

    def explain(self) -> str:
        """What the runs said, for the message of a failure."""
        parts = []
        for job in self.jobs():
            state = "running" if job.running else f"ended with {job.process.returncode}"
            parts.append(f"-- {job} ({state}, {job.log})\n{job.output()[-_SHOWN:]}")
        return "\n".join(parts)

    def records(self, table: str) -> list[tuple[bytes | None, bytes | None]]:
        """Keys and values of every record of a table's topic, as the bytes that are there."""
        return topic.records(self.endpoints.kafka, f"{self.name}.{table}")

    def told(self, key: str) -> dict[str, Any]:
        """The fact of the control topic that holds now."""
        values = [
            value for name, value in topic.records(self.endpoints.kafka, f"{self.name}.control") if name == key.encode()
        ]
        assert values, f"nothing was told of {key}"
        return dict(json.loads(values[-1] or b"{}"))

    def published(self, view: str, build: int = 1) -> list[tuple[str, Any]]:
        """Every record of a view's topic, compacted or not: key and document, None for one that is gone."""
        found = self.records(f"view.{view}.{build}")
        return [((key or b"").decode(), None if value is None else parse(value)) for key, value in found]

    # -- the end ------------------------------------------------------------------------------------------------

    def jobs(self) -> Iterator[Job]:
        for machine in self._machines:
            yield from machine.jobs

    def end_jobs(self) -> None:
        """End every run that is left, whatever state it is in."""
        for job in self.jobs():
            job.destroy()

    def remove(self) -> None:
        """Take away all that was made for it, so that a long session stays fast. All servers must be up."""
        self.end_jobs()
        self.connection.close()
        self.connect()
        connect = OpenSearch(self.endpoints.connect, "")  # plain HTTP with JSON is all that is needed
        connect.call("DELETE", f"/connectors/driftless-{self.name}", missing=True)
        slot = "driftless_" + self.name.replace("-", "_")
        held = "select active from pg_replication_slots where slot_name = %s and active"
        until("Debezium to leave its slot", lambda: not self.connection.execute(held, (slot,)).fetchone())
        dropped = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s"
        self.connection.execute(dropped, (slot,))
        self.connection.close()
        self._remove_topics()
        self._remove_documents()
        shutil.rmtree(stack_home() / "rows" / self.name, ignore_errors=True)

    def _remove_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.endpoints.kafka})
        ours = [
            topic
            for topic in admin.list_topics(timeout=15).topics
            if topic.startswith(f"{self.name}.") or topic == f"__debezium-heartbeat.{self.name}"
        ]
        if ours:
            for deleted in admin.delete_topics(ours).values():
                deleted.result()

    def _remove_documents(self) -> None:
        search = OpenSearch(self.endpoints.opensearch, "")
        indexes = search.call("GET", "/_all/_settings?expand_wildcards=all&filter_path=*.settings.index.uuid") or {}
        for index in indexes:
            if re.match(rf"\.driftless-{self.name}$|{self.name}-", index):
                search.call("DELETE", f"/{index}")
        with redis.Redis.from_url(self.endpoints.redis) as client:
            for pattern in (f"{self.name}-*", f"{self.name}:*", f"driftless:{self.name}:*"):
                while names := list(client.scan_iter(match=pattern, count=1000)):
                    client.unlink(*names)
