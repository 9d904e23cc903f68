"""Run one view of several tables in this process: its lease, its builds, and what the control topic is told of them."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from driftless import names
from driftless.control.request import Misunderstood, Request, old_answers, requests
from driftless.errors import SourceError
from driftless.facts.builds import Build, builds, progress_key
from driftless.facts.column_history import known_since
from driftless.facts.epochs import registered_log
from driftless.facts.generation import generations
from driftless.facts.state import Fact, State, history
from jobs.log.truncation import truncated
from jobs.spark.source import kafka_options
from jobs.supervise.keeper import Facts, Keeper
from jobs.supervise.leased import LeasedWorkers, Shared
from jobs.views.builder import Builder
from jobs.views.pace import furthest
from jobs.views.progress import BuildProgress
from jobs.views.reader import TableLog
from jobs.views.store.rows_file import remove

_log = logging.getLogger(__name__)


@dataclass
class _RunningBuild:
    build: Build
    worker: Builder
    thread: threading.Thread


class ViewRunner(LeasedWorkers[_RunningBuild]):
    """One view, or one shard of it: a thread for each build that there is.

    The control topic says which builds there are. A new one is begun by `driftless apply`, or here, where the log of
    a table has a new epoch; one that no follower reads any more is dropped with its topic and its rows.
    """

    def __init__(self, shared: Shared, view: str, keeper: Keeper, shard: int = 0) -> None:
        super().__init__(shared, names.view_lease(view, shard), keeper)
        self.view = view
        self.shard = shard
        self._readers = {name for name, f in shared.config.followers.items() if f.view == view}
        self._facts: dict[str, Fact] = {}
        self._known: dict[int, Build] = {}

    @property
    def progress(self) -> list[BuildProgress]:
        return [r.worker.progress for r in self._running.values()]

    def begin(self, state: State) -> None:
        """Start every build that there is. Raises where the view was never applied."""
        found = builds(state, self.view)
        if not found:
            raise SourceError(f"the view {self.view} has not been applied yet", hint="run `driftless apply` first")
        ready = [b for b in found.values() if self.shard < b.view.shards and _ready(b, state)]
        if not ready:
            raise SourceError(
                f"the view {self.view}: the snapshot of a table of it is not complete",
                hint="`driftless apply` resumes it",
            )
        for build in ready:
            self._start(build, state)

    def concerns(self, key: str) -> bool:
        kind, _, name = key.partition("/")
        if kind == "request":
            return name.startswith(f"{self.name}/")
        if kind == "view":
            return name.startswith(f"{self.view}/")
        if kind == "follower":
            return name.partition("/")[0] in self._readers
        if kind == "stream":
            return name.startswith(f"{self._shared.config.views[self.view].stream}/")
        return kind in ("epochs", "generation", "pipeline")

    def _turn(self, state: State) -> Facts:
        facts_now = state.by_prefix(f"view/{self.view}")
        if facts_now != self._facts:
            # Many turns a second, and a build's facts hold whole tables.
            self._facts, self._known = facts_now, builds(state, self.view)
        known = {n: b for n, b in self._known.items() if self.shard < b.view.shards and _ready(b, state)}
        for n in known.keys() - self._running.keys():
            self._start(known[n], state)
        for n in self._running.keys() - known.keys():
            self._end(n)
        for n, r in self._running.items():
            r.worker.pace.heard(furthest(state, self.view, n))
        facts: Facts = {}
        for request in requests(state, self.name):
            facts |= self._answer(request)
        if facts:
            facts |= old_answers(state, self.name)
        if self.shard or not known:
            return facts
        return facts | self._follow_the_epochs(state) | self._drop_what_nobody_reads(known, state)

    def _answer(self, request: Request) -> Facts:
        """Whatever it holds, it is answered, and ends nothing."""
        try:
            running = self._running.get(request.number("build"))
            if running is None:
                return request.answer("there is no such build any more")
            if running.worker.progress.error is not None:
                return request.answer(f"it has stopped: {running.worker.progress.error}")
            return running.worker.asked.answer(request)
        except Misunderstood as exc:
            _log.warning("view %s: a request was not understood: %.200r", self.view, str(exc))
            return request.answer(f"{exc}; {exc.hint}")

    def _start(self, build: Build, state: State) -> None:
        logs, shared = [], self._shared
        pipeline = shared.config.name
        options = kafka_options(shared.kafka, f"view-{self.view}")
        for name, followed in build.sources.items():
            table, log = build.view.tables[name], followed.topic(state)
            if followed.ours:
                logs.append(TableLog.of_stream(table, log, options, shared.kafka))
                continue
            since = known_since(state, name, build.epochs[name])
            logs.append(TableLog.of(table, log, options, names.unavailable(pipeline), since, shared.kafka))
        path = shared.rows / pipeline / f"{self.view}-{build.number}.{self.shard}.rows"
        old = build.history != history(state)
        builder = Builder(build, logs, shared, path, self.lease.confirm, self.shard, before_resnapshot=old)
        thread = threading.Thread(target=builder.run, name=builder.group, daemon=True)
        self._add(build.number, _RunningBuild(build, builder, thread))

    def _end(self, number: int) -> None:
        """Stop a build that is to be, or has been, dropped, and remove its rows. Raises Fenced before."""
        self.confirm_lease()
        remove(self._halt(number).worker.path)

    def _follow_the_epochs(self, state: State) -> Facts:
        """Where the log of a table has a new epoch, begin a build from there: the present one shows what is gone.

        It goes on from the newest that was asked for, also from one that waits for the snapshot of a table.
        """
        newest = self._known[max(self._known)]
        epochs, why = dict(newest.epochs), ""
        for name in newest.view.tables:
            log = registered_log(state, name)
            if log is None:
                continue  # it is what a stream computes
            truncation = self._shared.frontiers.truncation(log)
            if truncation is not None:
                return truncated(self._shared.kafka, log, truncation).fact(name)
            if log.newest.number > epochs[name]:
                epochs[name], why = log.newest.number, f"{name}: {log.newest.why}"
        if not why:
            return {}
        _log.warning("view %s: %s; it is rebuilt from there", self.view, why)
        fresh = newest.followed_by(self._shared.kafka, self._shared.config.name, epochs, why, history(state))
        return {fresh.key: fresh.to_json()}

    def _drop_what_nobody_reads(self, known: dict[int, Build], state: State) -> Facts:
        """Older builds, once no follower has a generation of them."""
        if len(known) == 1:
            return {}
        read = {
            generation.build
            for name, follower in self._shared.config.followers.items()
            if follower.view == self.view
            for generation in generations(state, name).values()
        }
        facts: Facts = {}
        for n in [n for n in known if n != max(known) and n not in read]:
            self.confirm_lease()
            if n in self._running:
                self._end(n)
            self._shared.kafka.delete(names.view_topic(self._shared.config.name, self.view, n))
            log, lease = self._shared.quarantine, names.view_lease(self.view)
            log.write(lease, n, {}, [entry.key for entry in log.read(lease, n)])
            gone = [known[n].key, *(progress_key(self.view, n, shard) for shard in range(known[n].view.shards))]
            facts |= dict.fromkeys(gone)
        return facts


def _ready(build: Build, state: State) -> bool:
    """Whether the epochs that it begins with are there: while a snapshot is being taken, they are not yet."""
    return all(followed.is_registered(state) for followed in build.sources.values())
