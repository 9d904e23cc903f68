"""Results of a query as documents: the same text whichever way the query was run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from driftless import exact
from driftless.errors import SourceError
from jobs.streams.sql.query import FROM, TO


@dataclass(frozen=True)
class Result:
    """A document with its key. `begin`, `end`: of its window, in milliseconds; None where nothing closes."""

    key: str
    document: str
    begin: int | None = None
    end: int | None = None


def results(stream: str, rows: pa.Table, key: Sequence[str]) -> Iterator[Result]:
    """Of each row, in the order of keys. Raises SourceError where a key is null, or two rows have one.

    The key is as that of a row: one column's text, or a JSON array of several columns.
    """
    begins, ends = (rows[c].to_pylist() if c in rows.column_names else [None] * rows.num_rows for c in (FROM, TO))
    columns = [(name, rows[name].to_pylist()) for name in rows.column_names if name not in (FROM, TO)]
    keys = [[name for name, _ in columns].index(name) for name in key]
    found: dict[str, Result] = {}
    for begin, end, *values in zip(begins, ends, *(values for _, values in columns), strict=True):
        names = [values[place] for place in keys]
        if any(name is None for name in names):
            raise SourceError(
                f"the stream {stream} has a result of which {_named(key)} is null",
                hint="leave such rows out in its SQL, or give it another `key`",
            )
        name = _text(names[0]) if len(names) == 1 else json.dumps([_json(n) for n in names], **_COMPACT)
        if name in found:
            raise SourceError(
                f"the stream {stream} has two results of one key: {_named(key)} do not tell them apart",
                hint="its `key` must hold every column that its SQL groups by",
            )
        parts = [
            f"{json.dumps(c, ensure_ascii=False)}:{_write(value)}"
            for (c, _), value in zip(columns, values, strict=True)
        ]
        found[name] = Result(name, "{" + ",".join(parts) + "}", begin, end)
    yield from (found[name] for name in sorted(found))


_COMPACT: dict[str, Any] = {"ensure_ascii": False, "separators": (",", ":")}


def _named(key: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in key)


def _text(value: object) -> str:
    written = _json(value)
    return written if isinstance(written, str) else json.dumps(written)


def _json(value: object) -> Any:
    """As `to_jsonb` has it: moments and dates in ISO 8601."""
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat()
        case date():
            return value.isoformat()
        case Decimal():
            return exact.Number(format(value, "f"))
        case dict():
            return {name: _json(part) for name, part in value.items()}
        case list():
            return [_json(part) for part in value]
    return value


def _write(value: object) -> str:
    match value:
        case Decimal():
            return format(value, "f")
        case dict() | list():
            return exact.write(_json(value))
    return json.dumps(_json(value), **_COMPACT)
