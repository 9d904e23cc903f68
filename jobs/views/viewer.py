"""Run one view of several tables in this process: its lease, its builds, and what the control topic is told of them."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from driftless import names
from driftless.config import Config
from driftless.control import Fact, State
from driftless.errors import Fenced, SourceError, SyncError
from driftless.generation import generations
from driftless.kafka import Kafka
from driftless.lease import Lease
from driftless.registry import registered_log
from driftless.views.build import Build, builds, progress_key
from jobs.apply import Head, LogSource, kafka_options
from jobs.frontier import FrontierReader
from jobs.rows import rows_sql
from jobs.spark import cancel
from jobs.truncation import truncated
from jobs.views.builder import Builder
from jobs.views.reader import TableLog
from jobs.views.standing import BuildProgress

_log = logging.getLogger(__name__)
RENEW_SECONDS = 2.0
"""How often a lease is renewed where there is nothing new to tell."""
TELL_SECONDS = 0.1
"""How often a frontier that moves is told: who waits for a position waits so much longer."""
Facts = dict[str, dict[str, Any] | None]


@dataclass
class _Running:
    build: Build
    builder: Builder
    thread: threading.Thread


class Viewer:
    """One view, or one shard of it: a thread for each build that there is.

    The control topic says which builds there are. A new one is begun by `driftless apply`, or here, where the log of
    a table begins anew; one that no follower reads any more is dropped with its topic and its rows.
    """

    def __init__(
        self,
        config: Config,
        view: str,
        lease: Lease,
        kafka: Kafka,
        spark: SparkSession,
        head: Head,
        frontiers: FrontierReader,
        folder: Path,
        shard: int = 0,
    ) -> None:
        self.view = view
        self.shard = shard
        self.lease = lease
        self.removed = False
        self._config = config
        self._kafka = kafka
        self._spark = spark
        self._head = head
        self._frontiers = frontiers
        self._folder = folder
        self._running: dict[int, _Running] = {}
        self._written = 0.0
        self._said = ""
        self._facts: dict[str, Fact] = {}
        self._known: dict[int, Build] = {}

    @property
    def alive(self) -> bool:
        return any(r.thread.is_alive() for r in self._running.values())

    @property
    def progress(self) -> list[BuildProgress]:
        return [r.builder.progress for r in self._running.values()]

    def begin(self, state: State) -> None:
        """Start every build that there is. Raises where the view was never applied."""
        found = builds(state, self.view)
        if not found:
            raise SourceError(f"the view {self.view} has not been applied yet", hint="run `driftless apply` first")
        ready = [b for b in found.values() if self.shard < b.view.shards and _ready(b, state)]
        if not ready:
            raise SourceError(
                f"the view {self.view}: the snapshot of a table of it is not complete",
                hint="`driftless apply` goes on with it",
            )
        for build in ready:
            self._start(build, state)

    def stop(self) -> None:
        for r in self._running.values():
            r.builder.stop.set()

    def join(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for r in self._running.values():
            r.thread.join(max(0.0, deadline - time.monotonic()))

    def cancel(self) -> None:
        """End Spark's work for builds that have not stopped: it will be done again."""
        for r in self._running.values():
            if r.thread.is_alive():
                cancel(self._spark, r.builder.group)
                r.thread.join(5.0)

    def release(self) -> None:
        """Give the lease back, with the last facts."""
        try:
            self.lease.release(self._standing())
        except SyncError as exc:
            _log.info("view %s: the lease could not be given back: %s", self.view, exc)

    def tick(self, state: State) -> None:
        """Do what the control topic asks for, and tell it where the builds stand."""
        facts: Facts = {}
        try:
            facts = self._turn(state)
        except SyncError as exc:
            if str(exc) != self._said:
                self._said = str(exc)
                _log.error("view %s: %s", self.view, exc)
        now = time.monotonic()
        changed = [r for r in self._running.values() if r.builder.progress.changed.is_set()]
        wait = TELL_SECONDS if changed else RENEW_SECONDS
        if not facts and now - self._written < wait:
            return
        for r in changed:
            r.builder.progress.changed.clear()
        self._written = now
        try:
            self.lease.write({**self._standing(), **facts})
        except Fenced as exc:
            for r in self._running.values():
                r.builder.fence(exc)
        except SyncError as exc:
            _log.info("view %s: progress cannot be written: %s", self.view, exc)
        else:
            for key, value in {**self._standing(), **facts}.items():
                state.set(key, value)

    def _standing(self) -> Facts:
        return {progress_key(self.view, n, self.shard): r.builder.progress.to_json() for n, r in self._running.items()}

    def _turn(self, state: State) -> Facts:
        facts_now = state.under(f"view/{self.view}")
        if facts_now != self._facts:
            # Many turns a second, and a build's facts hold whole tables.
            self._facts, self._known = facts_now, builds(state, self.view)
        known = {n: b for n, b in self._known.items() if self.shard < b.view.shards and _ready(b, state)}
        for n in known.keys() - self._running.keys():
            self._start(known[n], state)
        for n in self._running.keys() - known.keys():
            self._end(n)
        if self.shard or not known:
            return {}
        return self._follow_the_epochs(known, state) | self._drop_what_nobody_reads(known, state)

    def _start(self, build: Build, state: State) -> None:
        logs = []
        for name, table in build.view.tables.items():
            log = registered_log(state, name)
            if log is None:
                raise SourceError(f"the table {name} is not captured any more", hint="run `driftless plan`")
            log = log.upto(build.epochs[name])
            rows = rows_sql(table, log, unavailable=names.unavailable(self._config.name))
            options = kafka_options(self._kafka.settings(), f"view-{self.view}") | {"includeHeaders": "true"}
            logs.append(TableLog(name, log, LogSource(log.topic, options, rows.parse, rows.shape), rows.plain))
        path = self._folder / self._config.name / f"{self.view}-{build.number}.{self.shard}.rows"
        builder = Builder(
            build,
            logs,
            self._config.name,
            self._kafka,
            self._spark,
            self._head,
            self._frontiers,
            path,
            self.lease.confirm,
            self.shard,
        )
        thread = threading.Thread(target=builder.run, name=builder.group, daemon=True)
        self._running[build.number] = _Running(build, builder, thread)
        thread.start()

    def _end(self, number: int) -> None:
        """Stop a build that is to be, or has been, dropped, and remove its rows."""
        r = self._running.pop(number)
        r.builder.stop.set()
        r.thread.join(1.0)
        if r.thread.is_alive():
            cancel(self._spark, r.builder.group)
            r.thread.join(5.0)
        for suffix in ("", "-wal", "-shm"):
            r.builder.path.with_name(r.builder.path.name + suffix).unlink(missing_ok=True)

    def _follow_the_epochs(self, known: dict[int, Build], state: State) -> Facts:
        """Where the log of a table has begun anew, begin a build from there: the present one shows what is gone."""
        newest = known[max(known)]
        epochs, why = dict(newest.epochs), ""
        for name in newest.view.tables:
            log = registered_log(state, name)
            if log is None:
                continue
            truncation = self._frontiers.truncation(log.topic)
            if truncation is not None and truncation.lsn > log.newest.lsn:
                return truncated(self._kafka, log, truncation).fact(name)
            if log.newest.number > epochs[name]:
                epochs[name], why = log.newest.number, f"{name}: {log.newest.why}"
        if not why:
            return {}
        _log.warning("view %s: %s; it is built anew from there", self.view, why)
        fresh = replace(newest, number=newest.number + 1, epochs=epochs, why=why, log=None)
        fresh = fresh.with_topic(self._kafka, self._config.name)
        return {fresh.key: fresh.to_json()}

    def _drop_what_nobody_reads(self, known: dict[int, Build], state: State) -> Facts:
        """Older builds, once no follower has a generation of them."""
        if len(known) == 1:
            return {}
        read = {
            generation.build
            for name, follower in self._config.followers.items()
            if follower.view == self.view
            for generation in generations(state, name).values()
        }
        facts: Facts = {}
        for n in [n for n in known if n != max(known) and n not in read]:
            if n in self._running:
                self._end(n)
            self._kafka.delete(names.view_topic(self._config.name, self.view, n))
            gone = [known[n].key, *(progress_key(self.view, n, shard) for shard in range(known[n].view.shards))]
            facts |= dict.fromkeys(gone)
        return facts


def _ready(build: Build, state: State) -> bool:
    """Whether the epochs that it begins with are there: while a snapshot is being taken, they are not yet."""
    logs = {name: registered_log(state, name) for name in build.view.tables}
    return all(log is not None and build.epochs[name] <= log.newest.number for name, log in logs.items())
