"""The generations of a Redis follower: making them, putting one under the readers' names, and dropping them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from driftless.errors import SinkMisconfigured, SinkUnavailable
from driftless.sink import Progress, SinkContext
from sinks import HORIZON_SECONDS, drop_of_live
from sinks._retry import attempts
from sinks.redis.names import CLAIMS, OURS, Names, Template
from sinks.redis.room import require_room
from sinks.redis.wire import RedisServer, Refused, Script

_STATE, _REMOVE, _COUNT = map(Script, ("state.lua", "remove.lua", "count.lua"))
_SWITCH = Script("tried.lua", "move.lua", "switch.lua")
# Names in one call: some three milliseconds of the server's time.
_PAGE = 100
SWITCHING = "Wait until `driftless status` does not say `promoting` any more, then start again."
_LONGEST = 9
"""Digits of a generation's number."""


@dataclass(frozen=True)
class ReadersView:
    """Which generation is under the readers' names, and which one is coming there, while a switch goes on."""

    live: int | None = None
    coming: int | None = None

    def of(self, generation: int) -> tuple[str, tuple[int | None, ...]]:
        """Where a generation is, in the words of cas.lua, and the places of the names that it takes to write to it.

        A place is what `Names` takes: None for the readers' names.
        """
        switched = None, self.live or 0, self.coming
        if generation == self.live:
            return ("live", (None,)) if self.coming is None else (f"leaving for {self.coming}", switched)
        if generation == self.coming:
            return f"coming after {self.live or 0}", switched
        return "shadow", (generation,)


class Generations:
    """One generation is under the readers' names, the others under shadow names in the same slots.

    What takes many calls, a switch or a drop, is first written down in the follower's hash. Killed anywhere, it is
    finished by whatever is next asked of the generations, here or in another process; two at once do no harm.
    """

    def __init__(self, server: RedisServer, names: Names, template: Template, context: SinkContext) -> None:
        self._server = server
        self._names = names
        self._start = template.prefix
        self._context = context

    def place(self, generation: int) -> int | None:
        """Where all of a generation is: None for the readers' names, else its number: what `Names` takes."""

        def look(client: Any) -> int | None:
            view = self.readers_view(client)
            if view.coming is not None:
                what = f"`{self._context.follower}` is being switched to generation {view.coming}"
                raise SinkUnavailable(what, hint=SWITCHING)
            return None if view.live == generation else generation

        return self._server.ask(look)

    def readers_view(self, client: Any) -> ReadersView:
        """To be called inside `RedisServer.ask` or `RedisServer.once`."""
        live, coming = client.hmget(self._names.follower, "live", "switching")
        return ReadersView(self._number(live), self._number(coming))

    def _number(self, found: bytes | None) -> int | None:
        """Of a generation, as the follower's hash has it. Raises SinkMisconfigured where somebody else wrote there."""
        if found is None:
            return None
        if not found.isdigit() or len(found) > _LONGEST:
            raise SinkMisconfigured(
                f"`{self._names.follower}` in Redis is not as it was left: somebody else has written to it",
                hint=f"Names that start with `{OURS}` are driftless's own. Take the keys of this follower away, and "
                f"build it again: driftless rebuild {self._context.follower}",
            )
        return int(found)

    def create(self, generation: int) -> None:
        """Also finds out whether a copy beside the one that readers have fits into memory, before it is begun."""
        self._settle()
        self._claim()
        if not self._server.call("EXISTS", self._names.generation(generation)):
            live = self._number(self._server.call("HGET", self._names.follower, "live"))
            if live is not None and live != generation:
                require_room(self._server, self._names, generation, self.count(live), self._context.follower)
        self._state("create", generation, self._start)

    def promote(self, generation: int, progress: Progress) -> None:
        """Put a generation under the readers' names, in slices; what was there goes on under shadow names.

        Each document is switched in one step with its version. Between the first and the last slice readers see some
        documents of each generation. Writes go on: one to a document that has not been switched yet switches it first.
        """
        for _ in attempts(self._server.retry_seconds):
            self._settle()
            try:
                leaving = int(self._state("begin", generation))
            except Refused as refused:
                if "switching" in str(refused):  # to another one, begun since we looked
                    continue
                raise SinkMisconfigured(
                    f"Generation {generation} of `{self._context.follower}` cannot be promoted: there is none",
                    hint="Build it first, with `driftless rebuild`.",
                ) from refused
            if leaving != generation:
                self._switch(leaving, generation, progress)
            return
        what = f"`{self._context.follower}` is being switched to another generation, again and again"
        raise SinkUnavailable(what, hint=SWITCHING)

    def promoted(self) -> int | None:
        found = self._server.call("HGET", self._names.follower, "promoted")
        return self._number(found)

    def drop(self, generation: int, *, also_live: bool) -> None:
        """In pages. Writers are held off first."""
        if not also_live:
            # Before a switch that was begun is finished here: it may be what makes this generation the live one.
            self._server.ask(partial(self._require_unseen, generation))
        for _ in attempts(self._server.retry_seconds):
            self._settle()
            try:
                where = self._state("drop", generation, str(HORIZON_SECONDS), "live" if also_live else "shadow")
            except Refused as refused:
                if "live" in str(refused):
                    raise drop_of_live(self._context.follower, generation) from refused
                continue  # a switch was begun since we looked
            self._remove(generation, None if where == b"live" else generation)
            return
        what = f"`{self._context.follower}` is being switched; generation {generation} stays meanwhile"
        raise SinkUnavailable(what, hint=SWITCHING)

    def _require_unseen(self, generation: int, client: Any) -> None:
        view = self.readers_view(client)
        if generation == view.coming or generation == view.live:
            going = client.hexists(self._names.follower, f"dropping:{generation}")
            if not going:  # else what somebody asked for with `also_live` was killed, and is finished
                raise drop_of_live(self._context.follower, generation)

    def revive(self, generation: int) -> None:
        """Make a generation again of which the server knows nothing; raise where it was dropped on purpose."""
        if self._server.call("EXISTS", self._names.dropped(generation)):
            raise SinkMisconfigured(
                f"Generation {generation} of `{self._context.follower}` was dropped",
                hint="Another runner dropped it while this one still wrote to it: stop this one.",
            )
        self.create(generation)  # the server lost its data: `save` will say so

    def count(self, generation: int) -> int:
        """One look at counters that every write keeps up; it does not see what others put or deleted.

        Documents that expire are counted by the second in which they do, so nobody need look at them again.
        """
        return int(self._server.run(_COUNT, [self._names.generation(generation)], []))

    def _state(self, what: str, generation: int, *more: str) -> Any:
        keys = [self._names.follower, self._names.generation(generation), self._names.dropped(generation), CLAIMS]
        return self._server.run(_STATE, keys, [what, str(generation), *more])

    def _settle(self) -> None:
        """Finish what a process that was killed had begun."""
        state = self._server.call("HGETALL", self._names.follower)
        if begun := self._number(state.get(b"switching")):
            self._switch(self._number(state.get(b"live")) or 0, begun, lambda _: None)
        for name, where in state.items():
            if name.startswith(b"dropping:") and name[9:].isdigit():
                generation = int(name[9:])
                self._remove(generation, None if where == b"live" else generation)

    def _claim(self) -> None:
        self.check()
        self._server.call("HSET", CLAIMS, self._start, self._names.follower)

    def check(self) -> None:
        """Two followers that wrote the same names would undo each other's work for ever. Raises SinkMisconfigured."""
        mine = self._start
        for name, owner in self._server.call("HGETALL", CLAIMS).items():
            start, follower = name.decode(errors="replace"), owner.decode(errors="replace")
            if follower != self._names.follower and (start.startswith(mine) or mine.startswith(start)):
                raise SinkMisconfigured(
                    f"Names that start with `{mine}` would meet those of another follower, `{follower}`, `{start}`",
                    hint="Give each follower a `key` with a start of its own, or another database of the server.",
                )

    def _switch(self, leaving: int, coming: int, progress: Progress) -> None:
        """Go through a switch that has been begun, from the start: what was switched before is not touched again."""
        done, starts = 0, self._starts()
        try:
            # First all that the old generation has, then what only the new one has, which is few by then. Writers put
            # nothing more where this looks; see cas.lua.
            for place in (None, coming):
                before, after = self._names.version(place)
                for page in self._server.scan(before, page=_PAGE):
                    six = self._six(_documents(page, before, after, starts), leaving, coming)
                    done += self._server.run(_SWITCH, [self._names.follower, *six], [str(coming)])
                    progress(done)
        except Refused as refused:
            live, switching = self._server.call("HMGET", self._names.follower, "live", "switching")
            if switching is None and live is not None and int(live) == coming:
                return  # another process went through the same switch, and finished it
            what = f"Another process switched `{self._context.follower}` meanwhile"
            raise SinkUnavailable(what, hint=SWITCHING) from refused
        self._state("finish", coming)

    def _six(self, found: list[str], leaving: int, coming: int) -> list[str]:
        around = self._names.around(None, leaving, coming)
        return [f"{before}{name}{after}" for name in found for before, after in around]

    def _remove(self, generation: int, place: int | None) -> None:
        before, after = self._names.version(place)
        around, starts = self._names.document(place), self._starts()
        for page in self._server.scan(before, page=_PAGE):
            names = _documents(page, before, after, starts)
            keys = [start + name + end for name in names for start, end in ((before, after), around)]
            if not self._server.run(_REMOVE, [self._names.follower, *keys], [str(generation)]):
                return  # another process finished the drop; what is there now is new
        self._state("dropped", generation)

    def _starts(self) -> tuple[str, ...]:
        """With what the names of this follower's documents start, in all its generations."""
        state = self._server.call("HGETALL", self._names.follower)
        return tuple(value.decode(errors="replace") for name, value in state.items() if name.startswith(b"names:"))


def _documents(versions: list[str], before: str, after: str, starts: tuple[str, ...]) -> list[str]:
    """The names of the documents whose versions are under these names.

    One that no document of this follower can have is left out: whatever somebody puts under names of ours, it leads to
    none of his.
    """
    names = (name[len(before) : -len(after)] for name in versions if name.endswith(after))
    return [name for name in names if not starts or name.startswith(starts)]
