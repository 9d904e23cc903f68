"""Events with the row of a table as it was then: as a query that goes on, or as a batch, by the one function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from driftless.facts.lookups import Lookup
from jobs.decode.spark_sql import literal, quote
from jobs.streams.lookups.as_of import Version, WaitingEvent, rows_then, still_needed
from jobs.streams.rows.keyed import EXACT, NEVER, OFFSET, PARTITION, moment
from jobs.streams.rows.version_rows import GONE, SINCE, TOLD

_FOUND = "_text string, _version string, _partition int, _offset bigint, {at} timestamp"
_STORED = "at_ms bigint, `partition` int, `offset` bigint, text string"
_ROWS = ("_ms", PARTITION, OFFSET, "_text", "_is_version")


def looked_up_rows(
    rows: DataFrame,
    versions: DataFrame,
    lookup: Lookup,
    event: str,
    types: Mapping[str, str],
    of_table: Mapping[str, str],
) -> DataFrame:
    """The rows of events with one column more, the struct of the lookup's columns; null where there was no such row.

    `rows`: of events, with PARTITION and OFFSET. `versions`: as `version_rows` gives them. `event`: the column of the
    events' time. `types`, `of_table`: Spark's, of the columns of both. In a query that goes on, an event comes once the
    moment at which it happened is closed: then every version from before is known.
    """
    by = ", ".join(
        f"try_cast({quote(mine)} AS {of_table[its]}) AS {quote(its)}"
        for mine, its in zip(lookup.by, lookup.key, strict=True)
    )
    others = ", ".join(quote(name) for name in types if name != event)
    shown = ", ".join(quote(name) for name in lookup.columns)
    waiting = rows.selectExpr(
        f"to_json(struct({by}), {EXACT}) AS _key",
        f"unix_millis({quote(event)}) AS _ms",
        PARTITION,
        OFFSET,
        f"to_json(struct({others}), {EXACT}) AS _text" if others else "'{}' AS _text",
        "false AS _is_version",
        quote(event),
    )
    known = versions.selectExpr(
        f"to_json(struct({', '.join(map(quote, lookup.key))}), {EXACT}) AS _key",
        f"{SINCE} AS _ms",
        f"`partition` AS {PARTITION}",
        f"`offset` AS {OFFSET}",
        f"CASE WHEN NOT {GONE} THEN to_json(struct({shown}), {EXACT}) END AS _text",
        "true AS _is_version",
        f"{TOLD} AS {quote(event)}",  # Spark drops what is older than the ticks; no version is
    )
    schema = _FOUND.format(at=quote(event))
    if rows.isStreaming:
        both = waiting.unionByName(known.withWatermark(event, NEVER))
        found = both.groupBy("_key").transformWithState(
            _Finder(event), schema, "append", "EventTime", eventTimeColumnName=event
        )
    else:

        def find(group: pa.Table) -> pa.Table:
            return _found(group, event)

        found = waiting.unionByName(known).drop(event).groupBy("_key").applyInArrow(find, schema)
    mine = literal(", ".join(f"{quote(name)} {kind}" for name, kind in types.items() if name != event))
    its = literal(", ".join(f"{quote(name)} {of_table[name]}" for name in lookup.columns))
    columns = [
        quote(event) if name == event else f"from_json(_text, {mine}, {EXACT}).{quote(name)} AS {quote(name)}"
        for name in types
    ]
    row = f"from_json(_version, {its}, {EXACT}) AS {quote(lookup.name)}"
    return found.selectExpr(*columns, row, PARTITION, OFFSET)


def lookup_type(lookup: Lookup, of_table: Mapping[str, str]) -> str:
    """Spark's type of the struct."""
    return f"STRUCT<{', '.join(f'{quote(name)}: {of_table[name]}' for name in lookup.columns)}>"


def _place(version: Version) -> tuple[int, int, int]:
    return version[:3]


def _found(group: pa.Table, event: str) -> pa.Table:
    """All events of one key."""
    rows = [tuple(row.values()) for row in group.select([*_ROWS]).to_pylist()]
    events = sorted(WaitingEvent(*row[:4]) for row in rows if not row[4])
    versions = sorted((Version(*row[:4]) for row in rows if row[4]), key=_place)
    found = [
        (each.text, text, each.partition, each.offset, moment(each.at_ms)) for each, text in rows_then(events, versions)
    ]
    names = ("_text", "_version", PARTITION, OFFSET, event)
    types = (pa.string(), pa.string(), pa.int32(), pa.int64(), pa.timestamp("us", tz="UTC"))
    columns = [pa.array([row[n] for row in found], kind) for n, kind in enumerate(types)]
    return pa.table(dict(zip(names, columns, strict=True)))


class _Finder(StatefulProcessor):
    """Keeps the events of a key until their moment is closed, and of the row's versions those that one to come may
    have. Nothing depends on the order in which they are read.
    """

    def __init__(self, event: str) -> None:
        self._event = event

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._events = handle.getListState("events", _STORED)
        self._versions = handle.getListState("versions", _STORED)
        self._timer = handle.getValueState("timer", "at_ms bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Keep them, and have the timer set for when the first of the events is due."""
        events, versions = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
        for row in rows:
            (versions if row["_is_version"] else events).append(tuple(row[name] for name in _ROWS[:4]))
        if events:
            self._events.appendList(events)
            self._wake(min(event[0] for event in events))
        if versions:
            self._keep([*self._known(), *(Version(*each) for each in versions)], timerValues)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Give the events that are due, each with its row."""
        now, versions = timerValues.getCurrentWatermarkInMs(), self._known()
        events = sorted(WaitingEvent(*event) for event in self._events.get())
        due = [event for event in events if event.at_ms <= now]
        for event, text in rows_then(due, versions):
            places = {PARTITION: event.partition, OFFSET: event.offset, self._event: moment(event.at_ms)}
            yield Row(_text=event.text, _version=text, **places)
        later = events[len(due) :]
        self._timer.clear()
        if later:
            self._events.put([tuple(event) for event in later])
            self._wake(later[0].at_ms)
        else:
            self._events.clear()
        if versions:
            self._keep(versions, timerValues)

    def close(self) -> None:
        """Nothing is to be closed."""

    def _known(self) -> list[Version]:
        found = (Version(*version) for version in self._versions.get()) if self._versions.exists() else ()
        return sorted(found, key=_place)

    def _keep(self, versions: Sequence[Version], timer_values: Any) -> None:
        """Those that an event may have that is to come, or that waits: it may be due, and not given yet."""
        ordered, now, due = sorted(versions, key=_place), timer_values.getCurrentWatermarkInMs(), self._due()
        kept = still_needed(ordered, min(now, due) if due else now)
        if kept:
            self._versions.put([tuple(version) for version in kept])
        else:
            self._versions.clear()

    def _due(self) -> int:
        """When the first of the events that wait happened; 0 where none does."""
        found = self._timer.get() if self._timer.exists() else None
        return 0 if found is None else int(found[0])

    def _wake(self, at_ms: int) -> None:
        """Have the timer expire once a moment is closed, unless it does so before."""
        before = self._due()
        if before and before <= at_ms:
            return
        if before:
            self._handle.deleteTimer(before - 1)
        self._handle.registerTimer(at_ms - 1)
        self._timer.update((at_ms,))
