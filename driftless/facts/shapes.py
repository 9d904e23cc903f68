"""What a record of the control topic looks like, by the kind that its key names.

Whoever can write to the topic can write anything under any key. A record that no version of driftless can have written
is skipped, so that nobody who reads a fact need doubt its form. Kinds that are not known here are another version's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, NoReturn

from driftless.facts.counts import is_counts
from driftless.lsn import parse_lsn

Check = Callable[[Any], bool]


def parse(key: bytes, value: bytes | None) -> tuple[str, dict[str, object] | None]:
    """The key and the value of a record, None where it forgets a fact. Raises ValueError with a reason otherwise."""
    if not key:
        raise ValueError("has no key")
    try:
        name = key.decode()
    except UnicodeDecodeError:
        raise ValueError("has a key that is no text") from None
    if value is None:
        return name, None
    try:
        fact = _DECODER.decode(value.decode())
    except (ValueError, RecursionError):
        raise ValueError(f"is no JSON, under the key `{_shown(name)}`") from None
    if not isinstance(fact, dict) or not is_shaped(name, fact):
        raise ValueError(f"has not the form of its kind, under the key `{_shown(name)}`")
    return name, fact


def is_shaped(key: str, fact: Mapping[str, Any]) -> bool:
    """Whether a fact is one that driftless can have written under this key."""
    kind, _, rest = key.partition("/")
    if key in _FACTS:
        return _has(fact, _FACTS[key])
    if kind in _NUMBERED and not re.fullmatch(_NUMBERED[kind], rest):
        return False
    if kind in _KINDS and not _has(fact, _KINDS[kind]):
        return False
    return _reads_back(kind, fact)


def _has(fact: Mapping[str, Any], fields: Mapping[str, Check]) -> bool:
    """A name with `?` may be missing, as older versions left it out."""
    for name, check in fields.items():
        plain = name.removesuffix("?")
        if plain in fact:
            if not check(fact[plain]):
                return False
        elif plain == name:
            return False
    return True


def _reads_back(kind: str, fact: Mapping[str, Any]) -> bool:
    """What is made of several parts is tried."""
    from driftless.facts.builds import Build
    from driftless.facts.epochs import TopicLog
    from driftless.facts.generation import Generation
    from driftless.facts.streams import StreamBuild
    from driftless.table import Table

    made: dict[str, Callable[[Any], object]] = {
        "generation": lambda fact: Generation.from_json(1, fact),
        "epochs": lambda fact: TopicLog.from_json(fact).newest.floors.items(),
        "table": Table.from_json,
        "view": lambda fact: Build.from_json(1, fact),
        "stream": lambda fact: StreamBuild.from_json("", 1, fact).fingerprint,
    }
    if kind not in made:
        return True
    try:
        made[kind](fact)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        return False
    return True


def _shown(key: str) -> str:
    """As much of a key as fits into a message."""
    return key.encode("unicode_escape").decode()[:80]


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63


def _count(value: Any) -> bool:
    return _int(value) and value >= 0


def _time(value: Any) -> bool:
    """Seconds since 1970, up to the year 9999."""
    return isinstance(value, float | int) and not isinstance(value, bool) and isfinite(value) and 0 <= value < 2.5e11


def _number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool) and isfinite(value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _bool(value: Any) -> bool:
    return isinstance(value, bool)


def _map(value: Any) -> bool:
    return isinstance(value, dict)


def _offsets(value: Any) -> bool:
    return _map(value) and all(name.isdecimal() and _count(offset) for name, offset in value.items())


def _lsn(value: Any) -> bool:
    try:
        parse_lsn(value)
    except (ValueError, AttributeError):
        return False
    return True


def _marker(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and _count(value[0]) and _time(value[1])


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _epochs(value: Any) -> bool:
    fields = {"number": _count, "floors": _offsets, "why": _text, "lsn?": _count, "read?": _time, "topic_id?": _text}
    return isinstance(value, list) and bool(value) and all(_map(epoch) and _has(epoch, fields) for epoch in value)


def _tokens(value: Any) -> bool:
    return _map(value) and all(_or_none(_count)(lsn) for lsn in value.values())


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _columns(value: Any) -> bool:
    return isinstance(value, list) and all(_map(column) and _has(column, _COLUMN) for column in value)


def _table(value: Any) -> bool:
    return _map(value) and _has(value, _TABLE)


def _fields(value: Any) -> bool:
    return _map(value) and all(map(_text, value.values()))


_COLUMN: dict[str, Check] = {
    "name": _text,
    "type": _text,
    "kind?": _text,
    "array?": _bool,
    "toastable?": _bool,
    "length?": _int,
    "fields?": _columns,
}
_TABLE: dict[str, Check] = {"schema": _text, "name": _text, "columns": _columns, "key": _texts}
_LOG: dict[str, Check] = {"topic": _text, "topic_id": _text, "partitions": _count, "epochs": _epochs}
_NUMBERED = {
    "generation": r"[^/]+/\d{1,9}",
    "follower": r"[^/]+/\d{1,9}",
    "view": r"[^/]+/\d{1,9}",
    "build": r"[^/]+/\d{1,9}/\d{1,9}",
    "stream": r"[^/]+/\d{1,9}",
    "computed": r"[^/]+/\d{1,9}",
}
_KINDS: dict[str, dict[str, Check]] = {
    "lease": {
        "held": _bool,
        "token": _count,
        "held_seconds?": _time,
        "host": _text,
        "pid": _count,
        "started": _time,
        "boot?": _text,
        "space?": _text,
        "instance?": _text,
    },
    "follower": {
        "live": _bool,
        "applied_lsn": _or_none(_lsn),
        "state?": _text,
        "built?": _bool,
        "view?": _text,
        "marker_time?": _or_none(_time),
        "lag_records?": _or_none(_int),
        "documents?": _or_none(_int),
        "quarantined?": _or_none(_int),
        "trouble?": _text,
        "trouble_since?": _or_none(_time),
        "still_seconds?": _or_none(_time),
        "held_back?": _text,
        "stuck?": _text,
        "token?": _count,
        "counts?": is_counts,
    },
    "build": {
        "state": _text,
        "frontier_lsn?": _or_none(_lsn),
        "marker?": _or_none(_marker),
        "ends?": _or_none(_offsets),
        "lag_records?": _or_none(_int),
        "dirty?": _or_none(_int),
        "published?": _count,
        "store_bytes?": _count,
        "trouble?": _text,
        "trouble_since?": _or_none(_time),
        "still_seconds?": _or_none(_time),
        "error?": _or_none(_text),
    },
    "computed": {
        "state": _text,
        "frontier_lsn?": _or_none(_lsn),
        "marker?": _or_none(_marker),
        "ends?": _or_none(_offsets),
        "lag_records?": _or_none(_int),
        "closed_to?": _or_none(_time),
        "late?": _count,
        "too_late?": _count,
        "invalid?": _count,
        "corrected?": _count,
        "changed?": _count,
        "deleted?": _count,
        "dropped?": _count,
        "state_rows?": _count,
        "state_bytes?": _count,
        "published?": _count,
        "trouble?": _text,
        "trouble_since?": _or_none(_time),
        "still_seconds?": _or_none(_time),
        "error?": _or_none(_text),
    },
    "generation": {
        "view": _text,
        "table": _table,
        "kind": _text,
        "fields": _fields,
        "sink": _map,
        "where": _or_none(_text),
        "fingerprint": _text,
        "epoch?": _count,
        "build?": _count,
        "stream?": _count,
        "by_itself?": _bool,
        "promoted_at?": _or_none(_time),
        "retired_at?": _or_none(_time),
    },
    "view": {"view": _map, "epochs": _map, "log": _or_none(lambda log: _map(log) and _has(log, _LOG))},
    "stream": {
        "sql": _text,
        "events": _map,
        "table": _table,
        "log": _or_none(lambda log: _map(log) and _has(log, _LOG)),
    },
    "table": _TABLE,
    "epochs": _LOG,
    "last": {"number": _count},
    "read": {"at?": _time, "after?": _time},
    "kept": {"epoch": _count},
    "snapshot": {"id": _text, "epoch": _count, "floors": _offsets, "lsn": _count, "why": _text, "facts": _map},
    "storage": {"node": _or_none(_int), "columns": _map},
    "proven": {"lsn": _lsn, "generation": _count},
    "proof": {"lsn": _or_none(_lsn), "generation": _count, "in_sync": _bool, "trouble?": _or_none(_text)},
    "alert": {
        "alert": _text,
        "severity": _text,
        "labels": _fields,
        "summary": _text,
        "do": _text,
        "since": _time,
        "value": _number,
    },
    "strangers": {"count": _count, "since": _time, "last": _time, "end": _count, "why": _text, "by": _text},
}
_FACTS: dict[str, dict[str, Check]] = {
    "pipeline/identity": {"system_identifier": _text, "timeline": _count, "database": _text, "history?": _count},
    "pipeline/renewal": {"what": _text, "history": _bool},
    "pipeline/trust": {"tokens": _tokens, "plain": _or_none(_count)},
    "alerts/sender": {"id": _text},
    "reader/watched": {"since": _text},
    "reader/unwatched": {"since": _text, "lsn": _lsn},
}
