"""Run the followers of one process: leases, threads, frontiers, and telling the control topic how far they are."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from driftless.config import Config, milliseconds
from driftless.control import Control, State
from driftless.errors import ConfigError, Fenced, SourceError, SyncError
from driftless.generation import generation_definition, view_fields
from driftless.kafka import Kafka
from driftless.lease import Lease
from driftless.registry import TopicLog
from driftless.sink import SinkContext
from driftless.table import Table
from driftless.where import parse as parse_where
from jobs.apply import LogSource, SinkSpec
from jobs.decode import writes_sql
from jobs.follow import Follow, Job, Progress, kafka_options
from jobs.frontier import FrontierReader
from jobs.spark import session
from jobs.where import log_filter
from sinks import config_model

_log = logging.getLogger(__name__)
REPORT_SECONDS = 0.05
RENEW_SECONDS = 2.0
"""How often a lease is renewed when nothing else is to be said: a fifth of its length."""


def make_job(config: Config, follower: str, state: State, kafka: Kafka) -> Job:
    """Everything that following needs, from the configuration and the control topic: no database."""
    entry = config.followers[follower]
    view = config.views[entry.view]
    table_fact, epochs = state.get(f"table/{view.root}"), state.get(f"epochs/{view.root}")
    generations = state.under(f"generation/{follower}")
    if table_fact is None or epochs is None or not generations:
        raise SourceError(f"the follower {follower} has not been applied yet", hint="run `driftless apply` first")
    table, log = Table.from_json(table_fact), TopicLog.from_json(epochs)
    generation = max(int(number) for number in generations)
    if generations[str(generation)].value != generation_definition(config, follower, table):
        raise ConfigError(
            f"followers.{follower}: its view or store is not as it was when generation {generation} was begun",
            hint="run `driftless plan`, which says what has changed",
        )
    context = SinkContext(config.name, follower, table.key)
    try:
        config_model(entry.kind).model_validate(entry.sink).validate_for(context)
    except ValueError as exc:
        raise ConfigError(f"followers.{follower}.{entry.kind}: {exc}") from None
    where = None if view.where is None else log_filter(parse_where(view.where), table)
    parse, shape = writes_sql(table, view_fields(config, entry.view, table), log, where)
    source = LogSource(log.topic, kafka_options(kafka.settings(), follower), tuple(parse), tuple(shape))
    retention = milliseconds(config.source.tables[view.root].retention) / 1000
    return Job(follower, entry.view, generation, log, source, SinkSpec(entry.kind, entry.sink, context), retention)


@dataclass
class _Running:
    follow: Follow
    lease: Lease
    thread: threading.Thread
    written: float = 0.0


class Runner:
    """Several followers in one process, each with its own thread, lease and store: one that fails leaves the others.

    `stop` may be set from a signal handler; `run` then finishes or cancels what is under way and gives the leases back.
    """

    def __init__(self, config: Config, followers: Sequence[str], jars: Sequence[Path], *, memory: str = "1g") -> None:
        self._config = config
        self._followers = followers
        self._jars = jars
        self._memory = memory
        self.stop = threading.Event()
        self.progress: list[Progress] = []

    def run(
        self, *, until_lsn: int | None = None, until_caught_up: bool = False, report: Callable[[str], None] = _log.info
    ) -> None:
        """Follow until `stop`; or, with `until_caught_up`, until every follower has applied the log.

        `until_lsn`: a position of the source that must then have been applied too. Raises the first error of a
        follower, once all have ended.
        """
        kafka = Kafka(self._config.kafka)
        control = Control(kafka, self._config.name)
        state = control.read()
        jobs = [make_job(self._config, name, state, kafka) for name in self._followers]
        leases = self._lease(control, report)
        spark: SparkSession | None = None
        try:
            spark = session(self._jars, memory=self._memory)
            topics = {job.log.topic: job.log.partitions for job in jobs}
            frontiers = FrontierReader(kafka, self._config.name, topics)
            running = []
            for job, lease in zip(jobs, leases, strict=True):
                follow = Follow(job, kafka, spark, frontiers.follow(job.log.topic), lease.token, self.stop)
                running.append(
                    _Running(follow, lease, threading.Thread(target=follow.run, name=job.follower, daemon=True))
                )
            self.progress[:] = [r.follow.progress for r in running]
            frontiers.start()
            for r in running:
                r.thread.start()
            self._watch(running, spark, until_lsn, until_caught_up)
            frontiers.stop()
        finally:
            if spark is not None:
                spark.stop()
        errors = [p.error for p in self.progress if p.error is not None]
        if errors:
            raise errors[0]
        late = [p.follower for p in self.progress if p.lag > 0]
        if until_caught_up and late:
            raise SourceError(
                f"stopped before all was applied: {', '.join(late)}", hint="run it again: it goes on from there"
            )

    def _lease(self, control: Control, report: Callable[[str], None]) -> list[Lease]:
        leases: list[Lease] = []
        try:
            for name in self._followers:
                leases.append(Lease(control, name, on_wait=report))
        except SyncError:
            for lease in leases:
                lease.release({})
            raise
        return leases

    def _watch(
        self, running: list[_Running], spark: SparkSession, until_lsn: int | None, until_caught_up: bool
    ) -> None:
        """Report until all have ended, then give every lease back."""
        while any(r.thread.is_alive() for r in running):
            for r in running:
                self._report(r)
            if until_caught_up and all(_caught_up(r.follow.progress, until_lsn) for r in running):
                self.stop.set()
            if self.stop.is_set():
                self._end(running, spark)
            time.sleep(REPORT_SECONDS)
        for r in running:
            try:
                r.lease.release({_key(r): r.follow.progress.to_json()})
            except SyncError as exc:
                _log.info("%s: the lease could not be given back: %s", r.lease.follower, exc)

    def _end(self, running: list[_Running], spark: SparkSession) -> None:
        """Let slices under way finish for a moment, then cancel them: they will be applied again."""
        deadline = time.monotonic() + 3.0
        for r in running:
            r.thread.join(max(0.0, deadline - time.monotonic()))
        for r in running:
            if r.thread.is_alive():
                spark.sparkContext.cancelJobGroup(r.follow.job.follower)
                r.thread.join(5.0)

    def _report(self, r: _Running) -> None:
        """Renew the lease and tell where the follower stands, when that has changed or it is time."""
        now = time.monotonic()
        if not r.follow.progress.changed.is_set() and now - r.written < RENEW_SECONDS:
            return
        r.follow.progress.changed.clear()
        r.written = now
        try:
            r.lease.write({_key(r): r.follow.progress.to_json()})
        except Fenced as exc:
            r.follow.fence(exc)
        except SyncError as exc:
            _log.info("%s: progress cannot be written: %s", r.lease.follower, exc)


def _caught_up(progress: Progress, lsn: int | None) -> bool:
    if progress.error is not None:
        return True
    return (
        progress.state == "live"
        and progress.lag == 0
        and (lsn is None or (progress.marker is not None and progress.marker.lsn >= lsn))
    )


def _key(r: _Running) -> str:
    return f"follower/{r.follow.job.follower}/{r.follow.job.generation}"
