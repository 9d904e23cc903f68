"""Run the followers of one process: leases and their keepers, threads, frontiers, and when all of it is to end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from driftless import names
from driftless.config.models import Config
from driftless.control.lease import Lease
from driftless.control.quarantine import QuarantineLog
from driftless.control.request import ControlReader
from driftless.control.topic import Control
from driftless.errors import SinkError, SourceError, SyncError
from driftless.facts.generation import define, followed_table, newest
from driftless.facts.state import State, history
from driftless.kafka.client import Kafka
from jobs.brokers.end_offsets import Ends
from jobs.brokers.quiet_logs import ConsumedLogs
from jobs.brokers.shared_answers import TopicFacts
from jobs.caught_up import failed_view, is_replaced, reached
from jobs.follow.follower import Follower
from jobs.follow.progress import Progress
from jobs.log.frontier import FrontierReader
from jobs.log.small_slices import SmallSliceReader
from jobs.spark.login import log_in_as_spark
from jobs.spark.session import session, stop
from jobs.streams.progress import StreamProgress
from jobs.streams.shared_folder import assert_shared
from jobs.streams.stream_runner import StreamRunner
from jobs.supervise.feed import ControlFeed
from jobs.supervise.keeper import Keeper
from jobs.supervise.leased import Shared
from jobs.views.progress import BuildProgress
from jobs.views.view_runner import ViewRunner

_log = logging.getLogger(__name__)
LOOK_SECONDS, IDLE_SECONDS = 0.05, 0.25
"""How often to look where all are: where that may end the run, and else."""
SHOWN_SECONDS = 0.5
"""How long all must have caught up before that ends the run: whoever watches has then seen that they were live."""


def _never(_: State) -> bool:
    return False


class Runner:
    """Several followers in one process, each with its own thread, lease and store: one that fails leaves the others.

    `end` may be called from a signal handler.
    """

    def __init__(
        self,
        config: Config,
        followers: Sequence[str],
        jars: Sequence[Path],
        *,
        views: Sequence[tuple[str, int]] = (),
        streams: Sequence[str] = (),
        rows: Path = Path("rows"),
        checkpoints: Path | None = None,
        memory: str = "1g",
    ) -> None:
        """`views`: shards of views of several tables that are built here; `streams`: those that are computed here;
        `rows`: the folder for what they keep; `checkpoints`: that of streams on a cluster.
        """
        self._config = config
        self._followers = followers
        self._views = views
        self._streams = streams
        self._rows = rows
        self._checkpoints = checkpoints
        self._jars = jars
        self._memory = memory
        self._stop = threading.Event()
        self._under_way = False
        self._halted: SyncError | None = None
        self._done = False
        self.progress: list[Progress | BuildProgress | StreamProgress] = []

    def end(self) -> bool:
        """Let `run` finish or cancel what is under way, give the leases back, and return.

        False where nothing is under way yet: it may be waiting for a server, and is to be interrupted.
        """
        self._stop.set()
        return self._under_way

    def facts(self) -> dict[str, dict[str, object]]:
        """Where every worker of this process stands, by its key in the control topic. Any thread may ask."""
        return {progress.key: progress.to_json() for progress in list(self.progress)}

    def halt(self, error: SyncError) -> None:
        """Have everything end with an error, because the log cannot be trusted any more. Any thread may ask."""
        self._halted = error

    def run(
        self,
        *,
        until_lsn: int | None = None,
        until_caught_up: bool = False,
        until: Callable[[State], bool] = _never,
        report: Callable[[str], None] = _log.info,
    ) -> None:
        """Follow until `end`; or, with `until_caught_up`, until every follower has applied the log.

        `until_lsn`: a position of the source that must then have been applied too. `until`: ends when it is true of
        the control topic. Raises the first error of a follower, once all have ended, unless that was reached.
        """
        kafka = Kafka(self._config.kafka)
        control = Control(kafka, self._config.name)
        state = control.read()
        for line in unapplied(self._config, self._followers, state):
            report(line)
        frontiers = FrontierReader(kafka, self._config.name, self.halt)
        keepers: list[Keeper] = []
        followers: list[Follower | ViewRunner | StreamRunner] = []
        with ExitStack() as ending:
            built = [names.view_lease(*view) for view in self._views]
            for name in (*self._followers, *built, *map(names.stream_lease, self._streams)):
                keepers.append(Keeper(Lease(control, name, on_wait=report)))
                keepers[-1].start()
                ending.callback(keepers[-1].release)
            feed = ControlFeed(ControlReader(control), self.halt)
            for keeper in keepers:
                keeper.written = feed.take
            feed.start()
            ending.callback(feed.stop)
            spark = session(self._jars, security=self._config.kafka.security, memory=self._memory)
            ending.callback(stop, spark)
            log_in_as_spark(spark, kafka, self._jars)
            self._under_way = True
            quarantine = QuarantineLog(kafka, self._config.name)
            ends = Ends(kafka, self.halt)
            ends.quiet = quiet = ConsumedLogs(kafka, ends.heed_record, self.halt)
            for waiting in (ends, quiet):
                waiting.start()
                ending.callback(waiting.stop)
            small = SmallSliceReader(spark)
            topics = TopicFacts(kafka)
            if self._streams and self._checkpoints is not None:
                assert_shared(spark, self._checkpoints)
            folders = self._rows, self._checkpoints
            shared = Shared(self._config, kafka, spark, small, ends, topics, frontiers, feed, quarantine, *folders)
            others = keepers[len(self._followers) :]
            for stream, keeper in zip(self._streams, others[len(self._views) :], strict=True):
                computing = StreamRunner(shared, stream, keeper)
                computing.begin(feed.state)
                followers.append(computing)
                self.progress += computing.progress
            for (view, shard), keeper in zip(self._views, others, strict=False):
                viewer = ViewRunner(shared, view, keeper, shard)
                viewer.begin(feed.state)
                followers.append(viewer)
                self.progress += viewer.progress
            for name, keeper in zip(self._followers, keepers, strict=False):
                follower = Follower(shared, name, keeper, self.progress.append)
                follower.begin(feed.state)
                followers.append(follower)
            for f in followers:
                f.start()
                frontiers.heard_by.append(f.set)
            frontiers.start()
            ending.callback(frontiers.stop)
            self._watch(followers, feed, frontiers, until_lsn, until_caught_up, until)
        standing = [p for f in followers if not f.removed for p in f.progress]
        errors = [p.error for p in standing if p.error is not None and not is_replaced(p, standing)]
        if until_caught_up:
            errors += [error for p in standing if (error := failed_view(p, standing, feed.state)) is not None]
        if self._halted is not None:
            errors.append(self._halted)
        if errors and not self._done:
            raise errors[0]
        stuck = [f"{p.follower}: {p.stuck}" for p in standing if isinstance(p, Progress) and p.stuck]
        if until_caught_up and stuck:
            raise SinkError("; ".join(stuck), hint="then run `driftless run` again to resume")
        late = [p.follower for p in standing if p.lag > 0]
        if until_caught_up and late:
            raise SourceError(
                f"stopped before catching up: {', '.join(late)}", hint="run `driftless run` again to resume"
            )

    def _watch(
        self,
        followers: list[Follower | ViewRunner | StreamRunner],
        feed: ControlFeed,
        frontiers: FrontierReader,
        until_lsn: int | None,
        until_caught_up: bool,
        until: Callable[[State], bool],
    ) -> None:
        """Look at where all are until all have ended, then give every lease back."""
        behind_at, begun = time.monotonic(), history(feed.state)
        while any(f.alive for f in followers):
            self._stop.wait(LOOK_SECONDS if until_caught_up or until is not _never else IDLE_SECONDS)
            state = feed.state
            if history(state) != begun:
                self._halted = SourceError("the source is being re-snapshotted", hint="restart `driftless run`")
                for progress in (p for p in self.progress if isinstance(p, Progress)):
                    progress.put(marker=None)  # changes are missing before it
            frontiers.heed(state)
            if self._halted is not None:
                for f in followers:
                    f.halt(self._halted)
            all_ = [p for f in followers for p in f.progress]
            if not until_caught_up or not all(reached(p, all_, state, until_lsn) for p in all_):
                behind_at = time.monotonic()
            caught_up = time.monotonic() > behind_at + SHOWN_SECONDS
            self._done = self._done or until(state)
            if (until_caught_up and caught_up) or self._done:
                self._stop.set()
            if self._stop.is_set():
                for f in followers:
                    f.stop()
                # Slices under way may finish for a moment; then they are cancelled, and will be applied again.
                deadline = time.monotonic() + 3.0
                for f in followers:
                    f.join(max(0.0, deadline - time.monotonic()))
                for f in followers:
                    f.cancel()
        for f in followers:
            if not f.removed:
                f.release()


def unapplied(config: Config, followers: Sequence[str], state: State) -> Iterator[str]:
    """What of the configuration is not in force: generations are followed as they were begun."""
    for name in followers:
        begun, table = newest(state, name), followed_table(config, name, state)
        if begun is None or table is None:
            continue
        wanted = define(config, name, table, log=begun.followed.known(state))
        if begun.fingerprint != wanted.fingerprint:
            yield f"{name}: sync.yaml differs from what is followed; see `driftless plan`; `driftless apply` rebuilds"
