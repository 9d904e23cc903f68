"""Whether a second copy of a follower's documents fits into a Redis server, asked before it is begun."""

from __future__ import annotations

from typing import Any

from driftless.errors import SinkMisconfigured
from sinks.redis.names import Names
from sinks.redis.wire import RedisServer

_SAMPLE = 400
# Beside what MEMORY USAGE knows: the two entries of the table of all names, which doubles when it is full.
_TABLE_BYTES = 64


def require_room(server: RedisServer, names: Names, generation: int, documents: int, follower: str) -> None:
    """Raise unless there is memory for one more copy of the documents under the readers' names.

    Judged from the documents that there are, by a sample of them; a generation that turns out larger is held back when
    the server is full, as any writer is. Where the server has no limit, the machine's memory is taken for it.
    """
    if documents == 0:
        return
    memory = server.call("INFO", "memory")
    limit = memory["maxmemory"] or memory.get("total_system_memory", 0)
    # What waits for a slow disk or replica is in use, but not counted against the limit.
    taken = memory["used_memory"] - memory.get("mem_not_counted_for_evict", 0)
    needed, free = round(documents * _mean_bytes(server, names, generation)), limit - taken
    if limit and needed > free:
        raise SinkMisconfigured(
            f"Redis has no room for generation {generation} of `{follower}`: a second copy of its {documents} "
            f"documents needs about {_megabytes(needed)}; {_megabytes(max(0, free))} of {_megabytes(limit)} are free",
            hint="Give it more memory (`maxmemory`) or drop a generation that is kept, and do the same again.",
        )


def _mean_bytes(server: RedisServer, names: Names, generation: int) -> float:
    before, after = names.version(None)
    found: list[str] = []
    for page in server.scan(before, page=_SAMPLE):
        found += [name[len(before) : -len(after)] for name in page]
        if len(found) >= _SAMPLE:
            break
    if not found:
        return 0

    def usage(client: Any) -> list[int | None]:
        with client.pipeline(transaction=False) as all_of_them:
            for name in found:
                all_of_them.memory_usage(name)
                all_of_them.memory_usage(before + name + after)
            answers: list[int | None] = all_of_them.execute()
            return answers

    # The copy's names are longer: a document's by the shadow name's parts, its version's by the generation.
    around, shadow = names.document(generation), names.version(generation)
    longer = sum(map(len, around)) + sum(map(len, shadow)) - len(before) - len(after)
    return sum(size or 0 for size in server.ask(usage)) / len(found) + longer + _TABLE_BYTES


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
