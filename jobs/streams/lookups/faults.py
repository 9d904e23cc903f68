"""What a stream's SQL over events with rows of tables may not be."""

from __future__ import annotations

from collections.abc import Iterator

from driftless.config.streams import StreamConfig
from driftless.facts.lookups import Lookup
from driftless.facts.streams import CHANGES


def lookup_faults(
    stream: StreamConfig, lookups: tuple[Lookup, ...], *, is_joined: bool, is_pattern: bool
) -> Iterator[tuple[str, str]]:
    """The field of the stream, and what is wrong."""
    if not lookups:
        return
    name = lookups[0].name
    if len({lookup.events for lookup in lookups}) > 1 or is_joined:
        yield "sql", f"a JOIN of events that have rows of tables, as `{name}`: this version cannot do that"
    if is_pattern:
        yield "sql", f"a pattern beside rows of tables, as `{name}`: this version cannot do that"
    if stream.emit == CHANGES:
        yield (
            "emit",
            f"which row of `{name}` an event has is known when its moment is over: each window is published once; "
            "leave it out",
        )
