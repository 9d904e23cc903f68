"""Matches of a pattern as rows, from rows of events: as a query that goes on, or as a batch, by the one function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from driftless.streams.patterns import Pattern, PatternStep
from jobs.decode.spark_sql import literal, quote
from jobs.streams.patterns.matches import PlacedEvent, matches
from jobs.streams.rows.keyed import EXACT, OFFSET, PARTITION, moment

BEGAN, AT = "began", "at"
"""Columns of a match: when its first event happened, and when it was complete."""
_FOUND = "_key string, _began bigint, at timestamp, _texts array<string>"
_EVENT = "at_ms bigint, `partition` int, `offset` bigint, holds bigint, text string"


def pattern_rows(rows: DataFrame, pattern: Pattern, event: str, types: dict[str, str]) -> DataFrame:
    """Of each match the columns `by`, BEGAN, AT, and for each step that has a name the last of its events, as a struct.

    `rows`: of events, with PARTITION and OFFSET. `event`: the column of their time. `types`: Spark's, of their columns.
    """
    by = ", ".join(map(quote, pattern.by))
    columns = ", ".join(map(quote, types))
    prepared = rows.where(" AND ".join(f"{quote(name)} IS NOT NULL" for name in pattern.by)).selectExpr(
        f"to_json(struct({by}), {EXACT}) AS _key",
        f"unix_millis({quote(event)}) AS _ms",
        PARTITION,
        OFFSET,
        f"{_holds(pattern.steps)} AS _holds",
        f"to_json(struct({columns}), {EXACT}) AS _text",
        quote(event),
    )
    if rows.isStreaming:
        processor = _Matcher(pattern)
        found = prepared.groupBy("_key").transformWithState(
            processor, _FOUND, "append", "EventTime", eventTimeColumnName=AT
        )
    else:

        def find(group: pa.Table) -> pa.Table:
            return _found(group, pattern.steps)

        found = prepared.drop(event).groupBy("_key").applyInArrow(find, _FOUND)
    key_types = literal(", ".join(f"{quote(name)} {types[name]}" for name in pattern.by))
    event_types = literal(", ".join(f"{quote(name)} {kind}" for name, kind in types.items()))
    shown = [f"from_json(_key, {key_types}, {EXACT}).{quote(name)} AS {quote(name)}" for name in pattern.by]
    shown += [f"timestamp_millis(_began) AS {BEGAN}", AT]
    named = [step.name for step in pattern.steps if step.name]
    shown += [f"from_json(_texts[{n}], {event_types}, {EXACT}) AS {quote(name)}" for n, name in enumerate(named)]
    return found.selectExpr(*shown)


def pattern_types(pattern: Pattern, types: dict[str, str]) -> dict[str, str]:
    """Spark's types of the columns of its rows."""
    struct = f"STRUCT<{', '.join(f'{quote(name)}: {kind}' for name, kind in types.items())}>"
    named = {step.name: struct for step in pattern.steps if step.name}
    return {**{name: types[name] for name in pattern.by}, BEGAN: "TIMESTAMP", AT: "TIMESTAMP", **named}


def _holds(steps: Sequence[PatternStep]) -> str:
    """Which conditions an event meets, as bits of a number."""
    parts = ["CAST(0 AS BIGINT)"]
    for number, step in enumerate(steps):
        for bit, condition in ((1, step.where), (2, step.unless)):
            if condition:
                parts.append(f"CASE WHEN ({condition}\n) THEN {bit << 2 * number} ELSE 0 END")
    return " + ".join(parts)


def _found(group: pa.Table, steps: Sequence[PatternStep]) -> pa.Table:
    """All matches of one key."""
    rows = group.select(["_ms", PARTITION, OFFSET, "_holds", "_text"]).to_pylist()
    key = group["_key"][0].as_py()
    events = sorted(PlacedEvent(*row.values()) for row in rows)
    found = [(key, m.began_ms, moment(m.at_ms), [*m.events]) for m in matches(events, steps)]
    names = ("_key", "_began", "at", "_texts")
    types = (pa.string(), pa.int64(), pa.timestamp("us", tz="UTC"), pa.list_(pa.string()))
    columns = [pa.array([row[n] for row in found], kind) for n, kind in enumerate(types)]
    return pa.table(dict(zip(names, columns, strict=True)))


class _Matcher(StatefulProcessor):
    """Keeps the events of a key until no match that is still open can have them, and gives matches once they are
    complete and everything before has been read.

    Its state is events alone. What it gives is what all of them match, as far as it was not given before: so nothing
    depends on the order in which they came.
    """

    def __init__(self, pattern: Pattern) -> None:
        self._steps, self._span = pattern.steps, pattern.span

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._events = handle.getListState("events", _EVENT)
        self._clock = handle.getValueState("clock", "given_ms bigint, timer_ms bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Keep them, and have the timer set for when the first of them is known to be in order."""
        new = [(r["_ms"], r[PARTITION], r[OFFSET], r["_holds"], r["_text"]) for r in rows]
        self._events.appendList(new)
        given, timer = self._times()
        self._set_timer(given, timer, min(timer or new[0][0], *(event[0] for event in new)))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Give what has become complete."""
        now = timerValues.getCurrentWatermarkInMs()
        given, _ = self._times()
        events = sorted(PlacedEvent(*event) for event in self._events.get())
        found = list(matches(events, self._steps))
        for match in found:
            if given < match.at_ms <= now:
                yield Row(_key=key[0], _began=match.began_ms, at=moment(match.at_ms), _texts=[*match.events])
        kept = [event for event in events if event.at_ms > now - self._span]
        if not kept:
            self._events.clear()
            self._clock.clear()
            return
        if len(kept) < len(events):
            self._events.put([tuple(event) for event in kept])
        later = [match.at_ms for match in found] + [event.at_ms for event in kept]
        self._set_timer(now, 0, min([at for at in later if at > now], default=kept[0].at_ms + self._span + 1))

    def close(self) -> None:
        """Nothing is to be closed."""

    def _times(self) -> tuple[int, int]:
        """Up to when matches were given, and when the timer is set for; 0 for none."""
        found = self._clock.get() if self._clock.exists() else None
        return (0, 0) if found is None else (found[0], found[1])

    def _set_timer(self, given: int, before: int, at: int) -> None:
        if before == at:
            return
        if before:
            self._handle.deleteTimer(before - 1)
        self._handle.registerTimer(at - 1)  # it expires once the moment is beyond it
        self._clock.update((given, at))
