"""What a follower does when it is asked: promote, apply again, let go, end. The commands are in driftless/cli."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from driftless.control import State
from driftless.errors import Fenced, SinkError, SourceUnavailable, SyncError
from driftless.generation import end_keys, overtaken
from driftless.request import Request
from jobs.again import Again
from jobs.follow import Follow
from jobs.keeper import Facts

if TYPE_CHECKING:
    from jobs.follower import Follower


class Answers:
    """The requests of one follower. A request that takes long is looked at again with every turn until it is done."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._again: dict[str, Again] = {}
        self._promoting = ""

    def answer(self, request: Request, state: State) -> Facts:
        """The facts that answer a request; none while it is not done. What is refused is answered with the reason."""
        verbs: dict[str, Callable[[Request], Facts]] = {
            "promote": partial(self._promote, state=state),
            "replay": self._replay,
            "retry": self._retry,
            "discard": self._discard,
            "remove": self._remove,
        }
        try:
            if request.verb not in verbs:
                raise SinkError(f"this version of the runner cannot `{request.verb}`")
            return verbs[request.verb](request)
        except (Fenced, SourceUnavailable):
            raise  # with the next turn it is looked at again, by whoever has the lease then
        except SyncError as exc:
            return request.answer(str(exc) + (f"; {exc.hint}" if exc.hint else ""))

    def _following(self, request: Request) -> Follow:
        """The generation that a request means: the one it names, else the one that readers see."""
        number = request.arguments.get("generation")
        found = self._follower.following(None if number is None else int(number))
        if found.hold.is_set():
            raise SinkError(f"{request.follower} is paused", hint=f"`driftless resume {request.follower}` first")
        return found

    def _promote(self, request: Request, state: State) -> Facts:
        follower, number = self._follower, int(request.arguments["generation"])
        if follower.promoting:
            return {}
        progress = self._following(request).progress
        refused = follower.refused(number)
        if self._promoting == request.id and refused is not None:
            raise refused
        if progress.live:
            return request.answer()
        if overtaken(follower.generation(number), state):
            raise SinkError(
                f"generation {number} is of an older epoch of the log: it may hold rows that are gone",
                hint="`driftless rebuild` makes a new one from the log",
            )
        if progress.error is not None or not progress.built:
            what = "has stopped" if progress.error is not None else f"is not built yet: {progress.lag:,} records to go"
            raise SinkError(f"generation {number} {what}", hint="`driftless status --watch` shows how far it is")
        if progress.quarantined and not request.arguments["force"]:
            raise SinkError(
                f"generation {number} has {progress.quarantined:,} quarantined documents",
                hint="see `driftless quarantine list`; --force promotes without them",
            )
        self._promoting = request.id
        follower.promote(number)
        return {}

    def _replay(self, request: Request) -> Facts:
        begin = {int(p): int(offset) for p, offset in request.arguments["begin"].items()}
        return self._once_more(request, begin, None)

    def _retry(self, request: Request) -> Facts:
        quarantine = self._following(request).quarantine
        named = request.arguments.get("keys")
        keys = quarantine.keys if named is None else pa.array(named, pa.string())
        if keys is None and request.id not in self._again:
            return request.answer(written=0, left=0)
        return self._once_more(request, {}, keys)

    def _once_more(self, request: Request, begin: dict[int, int], only: pa.StringArray | None) -> Facts:
        follow = self._following(request)
        if request.id not in self._again:
            if follow.again is not None and not follow.again.done:
                return {}
            self._again[request.id] = follow.apply_again(begin, only)
        again = self._again[request.id]
        if follow.progress.error is not None:
            raise follow.progress.error
        if not again.done:
            return {}
        del self._again[request.id]
        total = again.total
        return request.answer(written=total.written, stale=total.stale, left=len(follow.quarantine))

    def _discard(self, request: Request) -> Facts:
        follow = self._following(request)
        gone = follow.quarantine.discard(request.arguments.get("keys"))
        follow.progress.quarantined = len(follow.quarantine)
        follow.progress.changed.set()
        return request.answer(discarded=gone)

    def _remove(self, request: Request) -> Facts:
        follower = self._follower
        facts: Facts = {f"paused/{request.follower}": None}
        for number in follower.numbers:
            if request.arguments["drop"]:
                follower.drop(number)
            facts |= dict.fromkeys(end_keys(request.follower, number))
        follower.removed = True
        return facts | request.answer()
