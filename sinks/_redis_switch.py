"""Switching the readers' names of a Redis follower from one generation to another."""

from __future__ import annotations

from driftless.errors import SinkMisconfigured
from sinks._redis_names import Names
from sinks._redis_wire import Refused, Script, Server

_STATE, _SWITCH = Script("state.lua"), Script("switch.lua")
# Six names each: some 2 ms of the server's time for each call.
_PAGE = 250


def switch(server: Server, names: Names, generation: int) -> None:
    """Put a generation under the readers' names, in slices; what was there goes on under shadow names.

    Each document is switched in one step with its version. Between the first and the last slice readers see some
    documents of each generation, and neither takes writes: the follower waits, and catches up. After a crash, the same
    call goes on where it stopped.
    """
    keys = [names.follower, names.generation(generation)]
    try:
        leaving = int(server.run(_STATE, keys, ["begin", str(generation)]))
    except Refused as refused:
        raise SinkMisconfigured(
            f"Generation {generation} cannot be promoted: {refused}",
            hint="It must have been created, and a switch that was begun must be finished first.",
        ) from refused
    if leaving != generation:
        # First what the new generation has, then what only the old one had.
        for place in (generation, None):
            before, after = names.version(place)
            for page in server.scan(before, page=_PAGE):
                found = [name[len(before) : -len(after)] for name in page]
                server.run(_SWITCH, [names.follower, *_six(names, found, leaving, generation)], [str(generation)])
    server.run(_STATE, keys, ["finish", str(generation)])


def _six(names: Names, found: list[str], leaving: int, coming: int) -> list[str]:
    around = [pair for place in (None, leaving, coming) for pair in (names.document(place), names.version(place))]
    return [f"{before}{name}{after}" for name in found for before, after in around]
