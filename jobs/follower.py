"""All generations of one follower: begun, promoted and dropped as the control topic says, under one lease."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from driftless.config import milliseconds
from driftless.control import Fact, State
from driftless.errors import LogReplaced, SinkError, SinkUnavailable, SourceError, SyncError
from driftless.generation import Generation, end_keys, generations, overtaken, registered
from driftless.request import requests
from jobs.anew import begun_anew
from jobs.answer import Answers
from jobs.follow import Follow
from jobs.frontier import Pending
from jobs.held import Quarantine
from jobs.job import make_job
from jobs.keeper import Facts, Keeper
from jobs.leased import Leased, Shared
from jobs.standing import Progress
from jobs.threads import unforeseen
from jobs.views.standing import frontier_of

_log = logging.getLogger(__name__)


@dataclass
class _Running:
    """`refused`: why its last promotion did not come about. `told`: the newest position that its view has told of."""

    generation: Generation
    worker: Follow
    pending: Pending
    thread: threading.Thread
    refused: SyncError | None = None
    told: int = 0

    @property
    def progress(self) -> Progress:
        return self.worker.progress


class Follower(Leased[_Running]):
    """One follower in this process: a thread for each of its generations.

    The control topic says which generations there are, and what is asked of them. The store says which one readers
    see; the control topic is brought in line with it. So after a kill at any step the next runner goes on from there.
    """

    def __init__(self, shared: Shared, name: str, keeper: Keeper, added: Callable[[Progress], None]) -> None:
        super().__init__(shared, name, keeper)
        self._added = added
        self._facts: dict[str, Fact] = {}
        self._known: dict[int, Generation] = {}
        self._promotion: threading.Thread | None = None
        self._interrupted: set[int] = set()
        """Generations whose switch was interrupted before this process began, and has not been done again."""
        self._answers = Answers(self)

    @property
    def progress(self) -> list[Progress]:
        return [r.progress for r in self._running.values()]

    def begin(self, state: State) -> None:
        """Start every generation that there is. Raises where the follower was never applied."""
        found = generations(state, self.name)
        if not found:
            raise SourceError(f"the follower {self.name} has not been applied yet", hint="run `driftless apply` first")
        ready = [generation for generation in found.values() if registered(generation, state)]
        if not ready:
            raise SourceError(
                f"{self.name}: the snapshot of {self._shared.config.table_of(self.name)} is not complete",
                hint="`driftless apply` goes on with it",
            )
        for generation in ready:
            self._start(generation, state)

    # -- what answers need --------------------------------------------------------------------------------------

    @property
    def numbers(self) -> list[int]:
        return list(self._running)

    def generation(self, number: int) -> Generation:
        return self._running[number].generation

    def refused(self, number: int) -> SyncError | None:
        """Why the last promotion of a generation did not come about."""
        return self._running[number].refused

    @property
    def promoting(self) -> bool:
        return self._promotion is not None and self._promotion.is_alive()

    def following(self, number: int | None) -> Follow:
        """The generation of that number, or the one that readers see."""
        for n, r in self._running.items():
            if n == number or (number is None and r.progress.live):
                return r.worker
        what = "no generation that readers see" if number is None else f"no generation {number}"
        raise SinkError(f"{self.name} has {what}", hint="`driftless status` lists them")

    # -- one turn -----------------------------------------------------------------------------------------------

    def _key(self, number: int) -> str:
        return f"follower/{self.name}/{number}"

    def concerns(self, key: str) -> bool:
        kind, _, name = key.partition("/")
        if kind in ("generation", "request", "paused"):
            return name.partition("/")[0] == self.name
        return kind in ("epochs", "view", "build", "pipeline")

    def _turn(self, state: State) -> Facts:
        facts_now = state.under(f"generation/{self.name}")
        if facts_now != self._facts:
            # Many turns a second, and a generation's facts hold a whole table.
            self._facts, self._known = facts_now, generations(state, self.name)
        known = {n: g for n, g in self._known.items() if registered(g, state)}
        paused = state.get(f"paused/{self.name}") is not None
        for n in known.keys() - self._running.keys():
            self._start(known[n], state)
        for n in self._running.keys() - known.keys():
            self._end(n)
        for n, r in self._running.items():
            r.generation = known[n]
            r.worker.heir = len(known) == 1 or (known[n].promoted_at is not None and known[n].retired_at is None)
            if paused != r.worker.hold.is_set():
                (r.worker.hold.set if paused else r.worker.hold.clear)()
        self._hear_of_views(state)
        facts = self._follow_the_store(state.now)
        if not paused:
            facts |= self._follow_the_epoch(state)
        for request in requests(state, self.name):
            facts |= self._answers.answer(request, state)
            if self.removed:
                return facts
        if not paused:
            self._promote_what_is_built()
            facts |= self._drop_what_is_old(state)
        return facts

    def _start(self, generation: Generation, state: State) -> None:
        shared = self._shared
        job = make_job(shared.config, self.name, generation, state, shared.kafka)
        pending = Pending(job.log.topic, job.log.partitions) if generation.build else shared.frontiers.follow(job.log)
        quarantine = Quarantine(shared.quarantine, self.name, generation.number)
        follow = Follow(
            job, shared.kafka, shared.spark, shared.head, shared.ends, pending, self.lease.token, quarantine
        )
        follow.sure = self.lease.sure
        if state.get(f"paused/{self.name}") is not None:
            follow.hold.set()
        facts = state.under(f"follower/{self.name}")
        if self._promotion is None:
            promoting = {int(n) for n, fact in facts.items() if fact.value.get("state") == "promoting"}
            self._interrupted |= promoting & generations(state, self.name).keys()
            if self._interrupted - {generation.number}:
                follow.silent.set()  # readers may see some of the other generation's documents
        thread = threading.Thread(target=follow.run, name=follow.group, daemon=True)
        self._added(follow.progress)
        self._add(generation.number, _Running(generation, follow, pending, thread))

    def _end(self, number: int) -> None:
        """Stop following a generation that is to be, or has been, dropped."""
        r = self._halt(number)
        if not r.generation.build:
            self._shared.frontiers.leave(r.pending)
        self._interrupted.discard(number)
        if not self._interrupted and not self.promoting:
            for other in self._running.values():
                other.worker.silent.clear()

    def _hear_of_views(self, state: State) -> None:
        """Hand on how far the builds of a view are that this follower reads."""
        for r in self._running.values():
            if r.generation.build:
                frontier = frontier_of(state, r.generation.view, r.generation.build, r.pending.topic)
                if frontier is not None and frontier.marker.lsn > r.told:
                    r.told = frontier.marker.lsn
                    r.pending.add(frontier)

    def _follow_the_epoch(self, state: State) -> Facts:
        """Where the table's log has begun anew, begin a generation from there: the present ones hold what is gone."""
        if not self._known:
            return {}
        newest = self._known[max(self._known)]
        for r in self._running.values():
            if overtaken(r.generation, state):
                r.worker.overtaken = True
        return begun_anew(self.name, newest, state, self._shared.frontiers, self._shared.kafka)

    # -- promoting and dropping ---------------------------------------------------------------------------------

    def _follow_the_store(self, now: float) -> Facts:
        """Record which generation readers see, as the store says. One that has lost its documents, and is filled again,
        is still theirs.
        """
        facts: Facts = {}
        for n, r in self._running.items():
            generation, live = r.generation, r.progress.live
            if live and (generation.promoted_at is None or generation.retired_at is not None):
                generation = replace(generation, promoted_at=now, retired_at=None)
            elif not live and generation.promoted_at and generation.retired_at is None and self._another_live(n):
                generation = replace(generation, retired_at=now)
            if generation is not r.generation:
                r.generation = generation
                facts[f"generation/{self.name}/{n}"] = generation.to_json()
        return facts

    def _promote_what_is_built(self) -> None:
        """Switch to the newest generation that is built, where it was begun to be promoted by itself."""
        if self.promoting or not self._running:
            return
        r = self._running[max(self._running)]
        if r.refused is not None:
            return
        generation, progress = r.generation, r.progress
        if not generation.by_itself or generation.promoted_at is not None or progress.live or not progress.built:
            return
        if progress.quarantined:
            progress.held_back = (
                f"generation {generation.number} is built but not promoted: {progress.quarantined:,} documents are "
                "quarantined; see `driftless quarantine list`, then `driftless promote --force`"
            )
            return
        self.promote(generation.number)

    def promote(self, number: int) -> None:
        """Switch readers over, beside the following. Repeated from the start by the next runner if it is killed.

        What readers see now claims no position meanwhile that the other has not claimed, and the switch begins when
        that one has come as far: who has waited for a position never reads an older state afterwards.
        """
        self.sure()
        r = self._running[number]
        others = [other for n, other in self._running.items() if n != number]
        r.worker.silent.clear()
        for other in others:
            other.worker.beside = r.progress

        def work() -> None:
            sink = r.worker.job.spec.open()
            try:
                while not _as_far(r.progress, others):
                    if self._stopping or r.worker.stop.is_set():
                        return
                    if r.progress.error is not None:
                        raise r.progress.error  # noqa: TRY301 - told as what refuses the promotion
                    time.sleep(0.05)
                while True:
                    try:
                        sink.promote(r.generation.number)
                        break
                    except SinkUnavailable as exc:
                        r.progress.switching = str(exc)
                        r.progress.changed.set()
                        if self._stopping:
                            return
                        time.sleep(1.0)
                for n, each in list(self._running.items()):
                    each.progress.live = n == r.generation.number
                    each.progress.held_back = ""
                    each.progress.changed.set()
            except SyncError as exc:
                r.refused = exc
                r.progress.held_back = str(exc)
            except Exception as exc:  # noqa: BLE001 - whoever asked for it is answered
                r.refused = unforeseen(f"promote {self.name}", exc)
                r.progress.held_back = str(r.refused)
                _log.error("%s", r.refused, exc_info=exc)
            finally:
                sink.close()
                r.progress.switching = ""
                for other in others:
                    other.worker.beside = None
                    other.worker.silent.clear()
                r.progress.promoting = False
                r.progress.changed.set()

        r.refused = None
        r.progress.promoting = True
        r.progress.changed.set()
        self._promotion = threading.Thread(target=work, name=f"promote {self.name}", daemon=True)
        self._promotion.start()

    def _drop_what_is_old(self, state: State) -> Facts:
        """Drop what readers have left for longer than it is kept, or what cannot be kept up any more since its topic is
        another one; what is of an older epoch; and what was passed over before it was finished.
        """
        keep = milliseconds(self._shared.config.followers[self.name].keep) / 1000
        facts: Facts = {}
        for n, r in list(self._running.items()):
            retired = r.generation.retired_at
            passed_over = r.generation.promoted_at is None and n < max(self._running)
            # Nobody could go back to what an older epoch left: it would show rows that are gone.
            over = (
                overtaken(r.generation, state)
                or isinstance(r.progress.error, LogReplaced)
                or (retired is not None and state.now > retired + keep)
            )
            if r.progress.live or not (passed_over or (over and self._another_live(n))):
                continue
            self.drop(n)
            facts |= dict.fromkeys(end_keys(self.name, n))
        return facts

    def _another_live(self, number: int) -> bool:
        return any(r.progress.live for n, r in self._running.items() if n != number)

    def drop(self, number: int) -> None:
        """Stop following a generation and remove it from its store. Raises Fenced before anything is removed."""
        self.sure()
        follow = self._running[number].worker
        self._end(number)
        sink = follow.job.spec.open()
        try:
            sink.drop(number)
        finally:
            sink.close()
        follow.quarantine.load()
        follow.quarantine.discard(None)


def _as_far(progress: Progress, others: list[_Running]) -> bool:
    """Whether it has reached every position that readers were told of."""
    return progress.lsn >= max((other.progress.lsn for other in others if other.progress.live), default=0)
