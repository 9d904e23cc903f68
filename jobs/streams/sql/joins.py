"""Joins in a stream's SQL: which events they join, and for how long one waits for others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from driftless.config.streams import EventsConfig
from driftless.facts.streams import JoinTimes
from driftless.streams.spark_words import SqlWord, spark_words
from jobs.decode.spark_sql import quote
from jobs.streams.sql.place import place

_OUTER = frozenset({"left", "right", "full", "outer"})
_HALF = frozenset({"semi", "anti"})
_CLEANUP = re.compile(r"state cleanup \[ left (?P<left>.*?), right (?P<right>.*?) \]")
_MOMENT = re.compile(r"value predicate: \(.* <= (?P<micros>-?\d+)\)$")
UNBOUND = (
    "the JOIN does not say how long after one event the other may happen, so each would be kept for ever: bound it on "
    "both sides, as `b.at BETWEEN a.at AND a.at + INTERVAL 1 MINUTE` does"
)


@dataclass(frozen=True)
class EventJoin:
    """`word`: JOIN itself. `outer`: whether events that match none are results too. `left`, `right`: the SQL for when
    one happened; empty unless two events are joined by their names in the outermost FROM.
    """

    word: SqlWord
    outer: bool
    left: str = ""
    right: str = ""


def joins(sql: str, events: Mapping[str, EventsConfig]) -> list[EventJoin]:
    """All that stand in it."""
    words, found, depth = spark_words(sql), list[EventJoin](), 0
    for number, word in enumerate(words):
        if word.quoted:
            continue
        depth += {"(": 1, ")": -1}.get(word.text, 0)
        if word.text.lower() == "join":
            before = {each.text.lower() for each in words[max(0, number - 2) : number] if not each.quoted}
            sides = _sides(words, number, events) if depth == 0 else ("", "")
            found.append(EventJoin(word, bool(before & _OUTER), *sides))
    return found


def _sides(words: list[SqlWord], number: int, events: Mapping[str, EventsConfig]) -> tuple[str, str]:
    """When an event of each side happened: `FROM events [AS] name [LEFT ...] JOIN events [AS] name ON`."""
    first = number
    while first and words[first - 1].text.lower() in _OUTER | {"inner"}:
        first -= 1
    begin = max((at for at in range(first) if words[at].text.lower() == "from" and not words[at].quoted), default=0)
    end = next((at for at in range(number, len(words)) if words[at].text.lower() in ("on", "using")), number)
    sides = [_moment(words[begin + 1 : first], events), _moment(words[number + 1 : end], events)]
    return (sides[0], sides[1]) if all(sides) else ("", "")


def _moment(words: list[SqlWord], events: Mapping[str, EventsConfig]) -> str:
    names = [word.text for word in words if word.text.lower() != "as"]
    source = events.get(names[0].lower()) if 0 < len(names) <= 2 else None
    return f"{quote(names[-1])}.{quote(source.time.event)}" if source else ""


def unprovable(sql: str, found: list[EventJoin], closes: str, *, is_pattern: bool) -> Iterator[str]:
    """What of them no batch can be compared with."""
    words = spark_words(sql)
    for join in found:
        number = next(at for at, word in enumerate(words) if word.start == join.word.start)
        half = {each.text.lower() for each in words[max(0, number - 2) : number]} & _HALF
        where = place(sql, join.word.start)
        if half:
            kind = min(half).upper()
            yield f"{where}: {kind} JOIN of events: use LEFT JOIN, and `WHERE b.id IS NULL` for those that match none"
        elif is_pattern:
            yield f"{where}: matches of a pattern in a JOIN: this version cannot do that"
        elif len(found) > 1 and (join.outer or closes):
            what = "an outer JOIN" if join.outer else "windows"
            yield f"{where}: {what} beside another JOIN: this version cannot do that; join two events"
        elif join.outer and not closes and not join.left:
            yield f"{where}: an outer JOIN: name events on both sides, in the outermost FROM"


def join_times(plan: str, found: list[EventJoin]) -> JoinTimes | None:
    """For how long an event waits for others, as Spark has it in the plan of a batch that was run at the moment 0.

    None where there is no join, or several; also where its optimizer needs none. Raises ValueError, with a text for the
    operator, where one waits for ever.
    """
    cleanups = _CLEANUP.findall(plan)
    if any(side.strip() in ("= null", "null") for sides in cleanups for side in sides):
        raise ValueError(UNBOUND)
    if len(cleanups) != 1 or len(found) != 1:
        return None
    micros = [_MOMENT.search(side) for side in cleanups[0]]
    left, right = (-(int(m["micros"]) // 1000) if m else 0 for m in micros)  # 0: both happen at the same time
    return JoinTimes(left, right, found[0].left, found[0].right)
