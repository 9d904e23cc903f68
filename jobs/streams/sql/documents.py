"""Results of a query as documents: the same text whichever way the query was run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple, cast

import pyarrow as pa

from driftless import exact
from driftless.errors import SourceError
from jobs.streams.sql.timed import FROM, TO


class Result(NamedTuple):
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
    columns = {name: rows[name] for name in rows.column_names if name not in (FROM, TO)}
    texts = {name: _texts(column) for name, column in columns.items()}
    if any("null" in texts[name] for name in key):
        raise SourceError(
            f"the stream {stream} has a result of which {_named(key)} is null",
            hint="leave such rows out in its SQL, or give it another `key`",
        )
    if len(key) == 1:
        keys = _plain(columns[key[0]], texts[key[0]])
    else:
        keys = [f"[{','.join(parts)}]" for parts in zip(*(texts[name] for name in key), strict=True)]
    # A sign of its own is doubled: this is filled in below.
    shape = (
        "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:".replace("%", "%%") + "%s" for name in columns) + "}"
    )
    found: dict[str, Result] = {}
    for name, begin, end, *parts in zip(keys, begins, ends, *texts.values(), strict=True):
        if name in found:
            raise SourceError(
                f"the stream {stream} has two results of one key: {_named(key)} do not tell them apart",
                hint="its `key` must hold every column that its SQL groups by",
            )
        found[name] = Result(name, shape % tuple(parts), begin, end)
    yield from (found[name] for name in sorted(found))


def _named(key: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in key)


def _texts(column: pa.ChunkedArray[Any]) -> list[str]:
    """Each value as JSON. What is alike, as the begin of a window, is written once."""
    if pa.types.is_integer(column.type):
        return ["null" if value is None else str(value) for value in column.to_pylist()]
    if pa.types.is_string(column.type) or pa.types.is_temporal(column.type):
        encoded: Any = column.combine_chunks().dictionary_encode()
        written = pa.array([_write(value) for value in encoded.dictionary.to_pylist()], pa.string())
        return _strings(written.take(encoded.indices).fill_null("null"))
    return [_write(value) for value in column.to_pylist()]


def _plain(column: pa.ChunkedArray[Any], texts: list[str]) -> list[str]:
    """The texts of a column without the quotes of JSON."""
    if pa.types.is_string(column.type):
        return _strings(column)
    return [text[1:-1] for text in texts] if pa.types.is_temporal(column.type) else texts


def _strings(column: Any) -> list[str]:
    return cast(list[str], column.to_pylist())


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
    return json.dumps(_json(value), ensure_ascii=False)
