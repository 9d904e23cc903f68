"""All generations of one follower: begun, promoted and dropped as the control topic says, under one lease."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from driftless.config.duration import milliseconds
from driftless.control.request import requests
from driftless.errors import Fenced, LogReplaced, SinkError, SinkUnavailable, SourceError, SyncError
from driftless.facts.generation import Generation, end_keys, generations
from driftless.facts.state import Fact, State
from jobs.follow.epoch_change import facts_for_epoch_change
from jobs.follow.generation_worker import GenerationWorker
from jobs.follow.job_spec import make_job
from jobs.follow.progress import Progress
from jobs.follow.promotion import Promotion
from jobs.follow.quarantine import GenerationQuarantine
from jobs.follow.readers_generation import ReadersGeneration
from jobs.follow.requests import RequestHandler
from jobs.supervise.frontier_feed import FrontierFeed
from jobs.supervise.keeper import Facts, Keeper
from jobs.supervise.leased import LeasedWorkers, Shared
from jobs.supervise.report import told

_log = logging.getLogger(__name__)
DROP_AGAIN_SECONDS = 5.0
"""How long to wait before a store that was away is asked again to drop a generation."""
REFUSED_SECONDS = 30.0
"""How long to wait where it has refused that."""


@dataclass
class _RunningGeneration:
    """`promotion`: the last one to it, in this process."""

    generation: Generation
    worker: GenerationWorker
    feed: FrontierFeed
    thread: threading.Thread
    promotion: Promotion | None = None

    @property
    def progress(self) -> Progress:
        return self.worker.progress


class Follower(LeasedWorkers[_RunningGeneration]):
    """One follower in this process: a thread for each of its generations.

    The control topic says which generations there are, and what is asked of them. The store says which one readers
    see; the control topic is brought in line with it. So after a kill at any step the next runner goes on from there.
    """

    def __init__(self, shared: Shared, name: str, keeper: Keeper, added: Callable[[Progress], None]) -> None:
        super().__init__(shared, name, keeper)
        self._added = added
        self._facts: dict[str, Fact] = {}
        self._known: dict[int, Generation] = {}
        self._seen = ReadersGeneration()
        self._promotion: Promotion | None = None
        self._interrupted: set[int] = set()
        """Generations whose switch was interrupted before this process began, until the store has been asked."""
        self._leaving: dict[int, tuple[GenerationWorker, float]] = {}
        """Generations that are followed no more and are to be dropped, and when that is tried again."""
        self._unstarted: dict[int, str] = {}
        self._refused: dict[int, float] = {}
        """Generations that the store has refused to drop, and when it is asked again."""
        self._answers = RequestHandler(self)

    @property
    def progress(self) -> list[Progress]:
        return [r.progress for r in self._running.values()]

    def begin(self, state: State) -> None:
        """Start every generation that there is. Raises where the follower was never applied."""
        found = generations(state, self.name)
        if not found:
            raise SourceError(f"the follower {self.name} has not been applied yet", hint="run `driftless apply` first")
        ready = [generation for generation in found.values() if generation.followed.is_registered(state)]
        if not ready:
            raise SourceError(
                f"{self.name}: the snapshot of {self._shared.config.table_of(self.name)} is not complete",
                hint="`driftless apply` resumes it",
            )
        for generation in ready:
            self._start(generation, state)

    # -- what answers need --------------------------------------------------------------------------------------

    @property
    def numbers(self) -> list[int]:
        return list(self._running)

    def generation(self, number: int) -> Generation:
        return self._running[number].generation

    def try_on(self, generation: Generation, state: State) -> None:
        """Raise where it could not be followed."""
        make_job(self._shared.config, self.name, generation, state, self._shared.kafka)

    @property
    def promoting(self) -> bool:
        return self._promotion is not None and self._promotion.alive

    def follows(self, worker: GenerationWorker) -> bool:
        """Whether that generation is followed still."""
        return any(r.worker is worker for r in self._running.values())

    def following(self, number: int | None) -> GenerationWorker | None:
        """The generation of that number, or the one that readers see. None while the store has not been asked."""
        wanted = self._seen.number if number is None else number
        if wanted in self._running:
            worker = self._running[wanted].worker
            asked = worker.progress.holding.known or worker.progress.error is not None
            return worker if asked else None
        if number is None and any(not (r.progress.holding.known or r.progress.error) for r in self._running.values()):
            return None
        what = "no generation that readers see" if number is None else f"no generation {number}"
        if number is not None and number < max(self._known, default=0):
            what += f" any more: the newest is generation {max(self._known)}"
        raise SinkError(f"{self.name} has {what}", hint="`driftless status` lists them")

    # -- one turn -----------------------------------------------------------------------------------------------

    def concerns(self, key: str) -> bool:
        kind, _, name = key.partition("/")
        if kind in ("generation", "request", "paused"):
            return name.partition("/")[0] == self.name
        if kind in ("view", "build"):  # each view tells every 3 s where it stands
            return name.partition("/")[0] == self._shared.config.followers[self.name].view
        return kind in ("epochs", "pipeline")

    def _turn(self, state: State) -> Facts:
        facts_now = state.by_prefix(f"generation/{self.name}")
        if facts_now != self._facts:
            # Many turns a second, and a generation's facts hold a whole table.
            self._facts, self._known = facts_now, generations(state, self.name)
        known = {n: g for n, g in self._known.items() if g.followed.is_registered(state)}
        paused = state.get(f"paused/{self.name}") is not None
        for n in known.keys() - self._running.keys() - self._leaving.keys():
            self._try_to_start(known[n], state)
        for n in self._running.keys() - known.keys():
            self._end(n)
        for n, r in self._running.items():
            r.generation = known[n]
            r.worker.promote_if_none = _is_heir(n, known)
            if paused != r.worker.paused.is_set():
                (r.worker.paused.set if paused else r.worker.paused.clear)()
        for r in self._running.values():
            r.feed.hear(state)
        self._let_speak()
        facts = self._follow_the_store(state.now)
        if not paused:
            facts |= self._follow_the_epoch(state)
        facts |= self._answers.answer(requests(state, self.name), state, facts)
        if self.removed:
            return facts
        if not paused:
            self._promote_what_is_built()
            facts |= self._drop_what_is_old(state)
        self._tell_what_is_stuck(paused=paused)
        return facts

    def _try_to_start(self, generation: Generation, state: State) -> None:
        """One that cannot be followed as sync.yaml was when this run began holds up nothing else."""
        try:
            self._start(generation, state)
        except Fenced:
            raise
        except SyncError as exc:
            if self._unstarted.get(generation.number) != str(exc):
                self._unstarted[generation.number] = str(exc)
                _log.error("%s: generation %d cannot be followed: %s", self.name, generation.number, told(exc))

    def _start(self, generation: Generation, state: State) -> None:
        shared = self._shared
        job = make_job(shared.config, self.name, generation, state, shared.kafka)
        feed = FrontierFeed(generation.followed, job.log, shared.frontiers)
        quarantine = GenerationQuarantine(shared.quarantine, self.name, generation.number)
        follow = GenerationWorker(
            job,
            shared.kafka,
            shared.spark,
            shared.small_slices,
            shared.ends,
            shared.topics,
            feed.pending,
            self.lease.token,
            quarantine,
            self._seen,
        )
        follow.promote_if_none = _is_heir(generation.number, generations(state, self.name))
        follow.check_lease = self.lease.sure
        if state.get(f"paused/{self.name}") is not None:
            follow.paused.set()
        facts = state.by_prefix(f"follower/{self.name}")
        if self._promotion is None:
            promoting = {int(n) for n, fact in facts.items() if fact.value.get("state") == "promoting"}
            self._interrupted |= promoting & generations(state, self.name).keys()
            if self._interrupted - {generation.number}:
                follow.withhold_position.set()  # readers may see some of the other generation's documents
        thread = threading.Thread(target=follow.run, name=follow.group, daemon=True)
        self._added(follow.progress)
        self._add(generation.number, _RunningGeneration(generation, follow, feed, thread))

    def _end(self, number: int) -> None:
        """Stop following a generation that is to be, or has been, dropped."""
        self._halt(number).feed.leave()
        self._interrupted.discard(number)
        self._let_speak()

    def _let_speak(self) -> None:
        """A switch that was interrupted is over when the store has been asked: that finishes it."""
        if any(r.progress.holding.known for r in self._running.values()):
            self._interrupted.clear()
        if not self._interrupted:
            for r in self._running.values():
                r.worker.withhold_position.clear()

    def _follow_the_epoch(self, state: State) -> Facts:
        """Where the table's log has a new epoch, begin a generation from there: the present ones hold what is gone."""
        if not self._known:
            return {}
        newest = self._known[max(self._known)]
        for r in self._running.values():
            if r.generation.followed.is_superseded(state):
                r.worker.superseded = True
        return facts_for_epoch_change(self.name, newest, state, self._shared.frontiers, self._shared.kafka)

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
        """Switch to the newest generation that was begun to be promoted by itself, once it is built."""
        number = max((n for n, r in self._running.items() if r.generation.auto_promote), default=None)
        if number is None or self.promoting:
            return
        r, holding = self._running[number], self._running[number].progress.holding  # one moment of it
        if r.progress.live and r.progress.promotion_blocked_by:
            r.progress.promotion_blocked_by = ""
            r.progress.changed.set()
        if r.worker.promote_if_none and self._seen.number is None:
            return  # it shows itself, with what it has
        refused = r.promotion is not None and r.promotion.error is not None
        if refused or not holding.built or r.generation.promoted_at is not None or r.progress.live:
            return
        if r.progress.error is not None or self._is_passed_over(number):
            return
        if holding.quarantined:
            said = (
                f"generation {number} is built but not promoted: {holding.quarantined:,} documents are quarantined; "
                f"see `driftless quarantine list {self.name}`, then `driftless promote {self.name} "
                f"--generation {number} --force`"
            )
            if r.progress.promotion_blocked_by != said:
                r.progress.promotion_blocked_by = said
                r.progress.changed.set()
            return
        self.promote(number)

    def promote(self, number: int) -> Promotion:
        """Begin to switch readers over. Raises Fenced before anything is switched."""
        self.confirm_lease()
        r = self._running[number]
        others = [other.worker for n, other in self._running.items() if n != number]
        self._promotion = r.promotion = Promotion(r.worker, others, self._seen, lambda: self._stopping)
        self._promotion.start()
        return self._promotion

    def _tell_what_is_stuck(self, *, paused: bool) -> None:
        """Say of the generation that readers see why it is not followed by another, where it claims nothing more."""
        for n, r in self._running.items():
            newest = self._running.get(max(self._known, default=n), r).progress
            said = ""
            if r.progress.live and r.worker.superseded and newest is not r.progress and not paused:
                said = told(newest.error) if newest.error is not None else newest.promotion_blocked_by
            if said:
                said = f"readers see generation {n}, from before its log was recreated, and no later position: {said}"
            if said != r.progress.stuck:
                r.progress.stuck = said
                r.progress.changed.set()

    def _drop_what_is_old(self, state: State) -> Facts:
        """Drop what readers have left for longer than it is kept, or what cannot be kept up any more since its topic is
        another one; what is of an older epoch; and what was passed over before it was finished.

        Never what readers see, or may be about to: while they are being switched nothing is dropped, nor where none is
        known that they see.
        """
        facts: Facts = {}
        if self.promoting or self._interrupted:
            return facts
        now, asked_for = time.monotonic(), self._answers.promotions(requests(state, self.name))
        for n, (worker, again_at) in list(self._leaving.items()):
            if n not in self._known:
                del self._leaving[n]
            elif now >= again_at:
                facts |= self._drop(n, worker)
        for n, r in list(self._running.items()):
            unasked = not r.progress.holding.known and r.progress.error is None
            if unasked or r.progress.live or not self._another_live(n) or n in asked_for:
                continue
            if (self._is_passed_over(n) or self._is_over(n, state)) and now >= self._refused.get(n, now):
                self._end(n)
                facts |= self._drop(n, r.worker)
        return facts

    def _is_passed_over(self, number: int) -> bool:
        """Whether it was never promoted, and a newer one is to take the place that it was begun for, or has it."""
        generation = self._running[number].generation
        newer = [r.generation for n, r in self._running.items() if n > number]
        return generation.promoted_at is None and any(
            g.promoted_at is not None or g.auto_promote or not generation.auto_promote for g in newer
        )

    def _is_over(self, number: int, state: State) -> bool:
        """Whether nobody can, or need, go back to it."""
        r = self._running[number]
        keep = milliseconds(self._shared.config.followers[self.name].keep) / 1000
        retired = r.generation.retired_at
        # What an older epoch left would show rows that are gone.
        kept_for_long = retired is not None and state.now > retired + keep
        superseded = r.generation.followed.is_superseded(state)
        return superseded or isinstance(r.progress.error, LogReplaced) or kept_for_long

    def _another_live(self, number: int) -> bool:
        return self._seen.number not in (None, number) and self._seen.number in self._running

    def _drop(self, number: int, worker: GenerationWorker) -> Facts:
        """Drop a generation that is followed no more, now or later; the facts to forget once it is gone."""
        try:
            self._empty(worker, also_live=False)
        except SinkUnavailable as exc:
            _log.info("%s: generation %d is dropped later: %s", self.name, number, exc)
            self._leaving[number] = (worker, time.monotonic() + DROP_AGAIN_SECONDS)
            return {}
        except SinkError as exc:
            _log.warning("%s: %s", self.name, exc)
            self._leaving.pop(number, None)
            self._refused[number] = time.monotonic() + REFUSED_SECONDS
            return {}
        self._leaving.pop(number, None)
        return dict.fromkeys(end_keys(self.name, number))

    def _empty(self, worker: GenerationWorker, *, also_live: bool) -> None:
        """Remove a generation from its store. Raises Fenced before anything is removed."""
        self.confirm_lease()
        sink = worker.job.spec.open()
        try:
            sink.drop(worker.job.generation, also_live=also_live)
        finally:
            sink.close()
        worker.quarantine.load()
        worker.quarantine.discard(None)

    def remove(self, *, drop: bool) -> Facts:
        """End everything, and remove all documents from the store where that is wanted."""
        self.confirm_lease()
        facts: Facts = {f"paused/{self.name}": None}
        workers = [worker for worker, _ in self._leaving.values()]
        for number, r in list(self._running.items()):
            self._end(number)
            workers.append(r.worker)
        for worker in workers if drop else ():
            self._empty(worker, also_live=True)
        facts |= dict.fromkeys(key for number in self._known for key in end_keys(self.name, number))
        self.removed = True
        return facts


def _is_heir(number: int, known: Mapping[int, Generation]) -> bool:
    """Whether readers are to see it where they see none: the only one, or the one that they saw last."""
    generation = known[number]
    return len(known) == 1 or (generation.promoted_at is not None and generation.retired_at is None)
