"""Run one stream in this process: its lease, its builds, and what the control topic is told of them."""

from __future__ import annotations

import logging
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

from driftless import names
from driftless.errors import ConfigError, SourceError
from driftless.facts.builds import begun_at
from driftless.facts.generation import generations
from driftless.facts.state import Fact, State
from driftless.facts.streams import StreamBuild, stream_builds, stream_progress_key
from jobs.spark.session import submitted
from jobs.streams.progress import StreamProgress
from jobs.streams.worker import StreamWorker
from jobs.supervise.keeper import Facts, Keeper
from jobs.supervise.leased import LeasedWorkers, Shared

_log = logging.getLogger(__name__)


@dataclass
class _RunningStream:
    build: StreamBuild
    worker: StreamWorker
    thread: threading.Thread


class StreamRunner(LeasedWorkers[_RunningStream]):
    """A thread, and a query of Spark's, for each build that there is.

    The control topic says which builds there are. `driftless apply` begins a new one; one that no follower reads any
    more is dropped with its topics and its checkpoint.
    """

    def __init__(self, shared: Shared, stream: str, keeper: Keeper) -> None:
        super().__init__(shared, names.stream_lease(stream), keeper)
        self.stream = stream
        self._readers = {name for name, f in shared.config.followers.items() if f.view == stream}
        self._views = [name for name, view in shared.config.views.items() if view.stream == stream]
        """The views whose root is this stream."""
        self._facts: dict[str, Fact] = {}
        self._known: dict[int, StreamBuild] = {}

    @property
    def progress(self) -> list[StreamProgress]:
        return [r.worker.progress for r in self._running.values()]

    def begin(self, state: State) -> None:
        """Start every build that there is. Raises where the stream was never applied."""
        if submitted() and self._shared.checkpoints is None:
            raise ConfigError(
                f"the stream {self.stream} keeps its state where all executors reach it: nothing says where",
                hint="add `--checkpoints FOLDER`, which all machines of the cluster have mounted at the same place",
            )
        found = stream_builds(state, self.stream)
        if not found:
            raise SourceError(f"the stream {self.stream} has not been applied yet", hint="run `driftless apply` first")
        for build in found.values():
            self._start(build)

    def concerns(self, key: str) -> bool:
        kind, _, name = key.partition("/")
        if kind == "stream":
            return name.startswith(f"{self.stream}/")
        if kind == "view":
            return name.partition("/")[0] in self._views
        return kind == "generation" and name.partition("/")[0] in self._readers

    def _turn(self, state: State) -> Facts:
        facts_now = state.by_prefix(f"stream/{self.stream}")
        if facts_now != self._facts:
            self._facts, self._known = facts_now, stream_builds(state, self.stream)
        for n in self._known.keys() - self._running.keys():
            self._start(self._known[n])
        for n in self._running.keys() - self._known.keys():
            self._end(n)
        return self._drop_what_nobody_reads(state)

    def _start(self, build: StreamBuild) -> None:
        worker = StreamWorker(build, self._shared, self._folder(build.number), self.lease.confirm)
        thread = threading.Thread(target=worker.run, name=worker.group, daemon=True)
        self._add(build.number, _RunningStream(build, worker, thread))

    def _folder(self, number: int) -> Path:
        """Of the checkpoint."""
        folder = self._shared.checkpoints or self._shared.rows
        return folder / self._shared.config.name / f"{self.stream}-{number}.checkpoint"

    def _end(self, number: int) -> None:
        """Stop a build that is to be, or has been, dropped, and remove its checkpoint. Raises Fenced before."""
        self.confirm_lease()
        self._halt(number)
        shutil.rmtree(self._folder(number), ignore_errors=True)

    def _drop_what_nobody_reads(self, state: State) -> Facts:
        """Older builds, once no follower has a generation of them, and no view a build."""
        if len(self._known) < 2:
            return {}
        read = {g.stream for name in self._readers for g in generations(state, name).values()}
        builds = (fact.value for name in self._views for fact in state.by_prefix(f"view/{name}").values())
        table = self._known[max(self._known)].table.full_name
        read |= {begun_at(build, table) for build in builds}
        facts: Facts = {}
        for n in [n for n in self._known if n != max(self._known) and n not in read]:
            self.confirm_lease()
            if n in self._running:
                self._end(n)
            self._shared.kafka.delete(*names.stream_topics(self._shared.config.name, self.stream, n))
            facts |= dict.fromkeys([self._known[n].key, stream_progress_key(self.stream, n)])
        return facts
