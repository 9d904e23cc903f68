"""What a follower does when it is asked: build, promote, apply again, let go, end. See cli for who asks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import pyarrow as pa

from driftless.control.request import Misunderstood, Request, old_answers, refuse_all
from driftless.errors import Fenced, SinkError, SourceUnavailable, SyncError
from driftless.facts.generation import Generation, begin_facts, newest, next_number
from driftless.facts.shapes import is_shaped
from driftless.facts.state import State
from jobs.follow.generation_worker import GenerationWorker
from jobs.follow.promotion import Promotion, older_epoch
from jobs.follow.replay import Replay
from jobs.supervise.keeper import Facts

_log = logging.getLogger(__name__)
_NOT_YET: Facts = {}


class RequestTarget(Protocol):
    """The follower whose requests these are; see jobs/follow/follower.py."""

    name: str
    removed: bool

    @property
    def numbers(self) -> list[int]: ...

    @property
    def promoting(self) -> bool: ...

    def generation(self, number: int) -> Generation: ...

    def try_on(self, generation: Generation, state: State) -> None: ...

    def follows(self, worker: GenerationWorker) -> bool: ...

    def following(self, number: int | None) -> GenerationWorker | None: ...

    def promote(self, number: int) -> Promotion: ...

    def remove(self, *, drop: bool) -> Facts: ...


class RequestHandler:
    """The requests of one follower. A request that takes long is looked at again with every turn until it is done.

    Whatever it holds, it is answered, and ends nothing. An answer that could not be written is given again, and what
    was done for it is not done twice.
    """

    def __init__(self, follower: RequestTarget) -> None:
        self._follower = follower
        self._again: dict[str, tuple[GenerationWorker, Replay]] = {}
        self._promotions: dict[str, Promotion] = {}
        self._given: dict[str, Facts] = {}
        self._misunderstood = 0

    def answer(self, waiting: Sequence[Request], state: State, begun: Facts) -> Facts:
        """The facts that answer what is done, of all that waits. `begun`: what else this turn writes."""
        names, facts = {request.name for request in waiting}, dict[str, dict[str, object] | None]()
        for known in (self._again, self._promotions, self._given):
            for name in known.keys() - names:
                del known[name]
        for request in waiting:
            if request.name not in self._given:
                answer = self._answer(request, state, {**begun, **facts})
                if not answer:
                    continue
                self._given[request.name] = answer
            facts |= self._given[request.name]
            if self._follower.removed:
                return facts
        return facts | old_answers(state, self._follower.name) if facts else facts

    def promotions(self, waiting: Sequence[Request]) -> set[object]:
        """The generations that are to be promoted, as somebody asks."""
        asked = (r.arguments.get("generation") for r in waiting if r.verb == "promote")
        return {number for number in asked if isinstance(number, int)}

    def _answer(self, request: Request, state: State, begun: Facts) -> Facts:
        """What is refused is answered with the reason."""
        verbs: dict[str, Callable[[Request], Facts]] = {
            "rebuild": partial(self._rebuild, state=state, begun=begun),
            "promote": partial(self._promote, state=state),
            "replay": self._replay,
            "retry": self._retry,
            "discard": self._discard,
            "remove": partial(self._remove, state=state),
        }
        try:
            if request.verb not in verbs:
                raise Misunderstood(f"this version of the runner cannot `{request.verb}`")
            return verbs[request.verb](request)
        except (Fenced, SourceUnavailable):
            raise  # with the next turn it is looked at again, by whoever has the lease then
        except SyncError as exc:
            if isinstance(exc, Misunderstood):
                self._misunderstood += 1
                _log.warning(
                    "%s: a request was not understood, the %d. of this run: %.200r",
                    request.follower,
                    self._misunderstood,
                    str(exc),
                )
            return request.answer(str(exc) + (f"; {exc.hint}" if exc.hint else ""))

    def _following(self, request: Request) -> GenerationWorker | None:
        """The generation that a request means: the one it names, else the one that readers see. None while that is not
        known yet.
        """
        found = self._follower.following(request.number_or_none("generation"))
        if found is not None and found.paused.is_set():
            raise SinkError(f"{request.follower} is paused", hint=f"`driftless resume {request.follower}` first")
        return found

    # -- generations --------------------------------------------------------------------------------------------

    def _rebuild(self, request: Request, state: State, begun: Facts) -> Facts:
        """Begin a generation, unless the same one is being built: whoever has the lease alone gives out numbers."""
        name = self._follower.name
        if any(key.startswith(f"generation/{name}/") for key in begun):
            return _NOT_YET  # that one is to be known first, or two would have one number
        wanted = replace(self._generation(request, state), number=next_number(state, name))
        last = newest(state, name)
        same = last is not None and last.same_definition(wanted) and last.auto_promote == wanted.auto_promote
        if last is not None and same and self._is_being_built(last):
            return request.answer(generation=last.number)
        return begin_facts(name, wanted) | request.answer(generation=wanted.number)

    def _is_being_built(self, generation: Generation) -> bool:
        if generation.promoted_at is not None:
            return False
        if generation.number not in self._follower.numbers:
            return True  # it waits for a snapshot
        worker = self._follower.following(generation.number)
        return worker is None or (worker.progress.error is None and not worker.progress.live)

    def _generation(self, request: Request, state: State) -> Generation:
        """Raises where it could not be followed."""
        facts = request.facts("generation")
        if not is_shaped(f"generation/{request.follower}/1", facts):
            raise Misunderstood("the generation of the request is not one")
        wanted = replace(Generation.from_json(1, facts), promoted_at=None, retired_at=None)
        if wanted.followed.is_registered(state):
            self._follower.try_on(wanted, state)
        return wanted

    def _promote(self, request: Request, state: State) -> Facts:
        follower, number, force = self._follower, request.number("generation"), request.flag("force")
        begun = self._promotions.get(request.name)
        if begun is not None:
            if begun.error is not None and not begun.alive:
                raise begun.error
            return request.answer() if begun.done and not begun.alive else _NOT_YET
        if follower.promoting:
            return _NOT_YET
        worker = self._following(request)
        if worker is None:
            return _NOT_YET
        progress, holding = worker.progress, worker.progress.holding
        if progress.live:
            return request.answer()
        if follower.generation(number).followed.is_superseded(state):
            raise older_epoch(number)
        if progress.error is not None or not holding.built:
            what = "has stopped" if progress.error is not None else f"is not built yet: {progress.lag:,} records to go"
            raise SinkError(f"generation {number} {what}", hint="`driftless status --watch` shows how far it is")
        if holding.quarantined and not force:
            raise SinkError(
                f"generation {number} has {holding.quarantined:,} quarantined documents",
                hint="see `driftless quarantine list`; --force promotes without them",
            )
        self._promotions[request.name] = follower.promote(number)
        return _NOT_YET

    # -- documents ----------------------------------------------------------------------------------------------

    def _replay(self, request: Request) -> Facts:
        return self._once_more(request, request.offsets("begin"), None)

    def _retry(self, request: Request) -> Facts:
        named = request.texts("keys")
        if named is not None:
            return self._once_more(request, {}, pa.array(named, pa.string()))
        worker = self._following(request)
        if worker is None:
            return _NOT_YET
        keys = worker.quarantine.keys
        if keys is None and request.name not in self._again:
            return request.answer(written=0, left=0)
        return self._once_more(request, {}, keys)

    def _once_more(self, request: Request, begin: dict[int, int], only: pa.StringArray | None) -> Facts:
        if request.name not in self._again:
            worker = self._following(request)
            if worker is None:
                return _NOT_YET
            if worker.progress.error is not None:
                raise worker.progress.error
            if worker.replay is not None and not worker.replay.done:
                return _NOT_YET
            self._again[request.name] = (worker, worker.apply_again(begin, only))
        worker, again = self._again[request.name]
        if again.done:
            total = again.total
            return request.answer(written=total.written, stale=total.stale, left=len(worker.quarantine))
        if worker.progress.error is not None:
            raise worker.progress.error
        if worker.paused.is_set() or not self._follower.follows(worker):
            again.done = True  # given up: the next request need not wait for it
            what = "was paused" if worker.paused.is_set() else f"has dropped generation {worker.job.generation}"
            raise SinkError(f"{request.follower} {what} before all of it was applied again", hint="ask again")
        return _NOT_YET

    def _discard(self, request: Request) -> Facts:
        keys, worker = request.texts("keys"), self._following(request)
        if worker is None:
            return _NOT_YET
        gone = worker.quarantine.discard(keys)
        worker.progress.put(quarantined=len(worker.quarantine))
        worker.progress.changed.set()
        return request.answer(discarded=gone)

    # -- the end ------------------------------------------------------------------------------------------------

    def _remove(self, request: Request, state: State) -> Facts:
        """Whatever else waits is answered with it: nobody would be there to do it."""
        facts = self._follower.remove(drop=request.flag("drop"))
        return refuse_all(state, request.follower, f"{request.follower} was removed") | facts | request.answer()
