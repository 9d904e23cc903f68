"""Results of a query as documents: the same text whichever way the query was run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise, repeat
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from driftless import exact
from driftless.errors import SourceError
from jobs.streams.sql.timed import FROM, TO

_FIRST_YEAR = 1000
"""Arrow writes the year of an earlier moment with fewer than four digits."""
_TEXT = pa.large_string()
"""All documents of a batch may be more than 2 GB."""


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
    columns = {name: rows[name].combine_chunks() for name in rows.column_names if name not in (FROM, TO)}
    texts = {name: _texts(column) for name, column in columns.items()}
    if any(columns[name].null_count for name in key):
        raise SourceError(
            f"the stream {stream} has a result of which {_named(key)} is null",
            hint="leave such rows out in its SQL, or give it another `key`",
        )
    if len(key) == 1:
        keys = _plain(columns[key[0]], texts[key[0]])
    else:
        keys = _joined("[", ",", [("", texts[name]) for name in key], "]")
    order = pc.sort_indices(keys)
    names = _strings(keys.take(order))
    if any(before == after for before, after in pairwise(names)):
        raise SourceError(
            f"the stream {stream} has two results of one key: {_named(key)} do not tell them apart",
            hint="its `key` must hold every column that its SQL groups by",
        )
    parts = [(f"{json.dumps(name, ensure_ascii=False)}:", text) for name, text in texts.items()]
    documents = _joined("{", ",", parts, "}").take(order)
    moments = (
        rows[c].combine_chunks().take(order).to_pylist() if c in rows.column_names else repeat(None) for c in (FROM, TO)
    )
    yield from map(Result, names, _strings(documents), *moments)


def _joined(begin: str, between: str, parts: Sequence[tuple[str, Any]], end: str) -> Any:
    """Of each row its texts, each after what is written before it."""
    pieces: list[Any] = []
    for number, (before, text) in enumerate(parts):
        pieces += [pa.scalar(f"{between if number else begin}{before}", _TEXT), text]
    return pc.binary_join_element_wise(*pieces, pa.scalar(end, _TEXT), pa.scalar("", _TEXT))


def _named(key: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in key)


def _texts(column: Any) -> Any:
    """Each value as JSON. What is alike, as the begin of a window, is written once."""
    if pa.types.is_integer(column.type):
        return column.cast(_TEXT).fill_null("null")
    if not (pa.types.is_string(column.type) or pa.types.is_temporal(column.type)):
        return pa.array([_write(value) for value in column.to_pylist()], _TEXT)
    encoded = column.dictionary_encode()
    written = _moments(encoded.dictionary)
    if written is None:
        written = pa.array([_write(value) for value in encoded.dictionary.to_pylist()], _TEXT)
    return written.take(encoded.indices).fill_null("null")


def _moments(values: Any) -> Any:
    """Moments as `_write` has them; None where they are none, or one is before `_FIRST_YEAR`."""
    if not pa.types.is_timestamp(values.type) or (len(values) and pc.min(values).as_py().year < _FIRST_YEAR):
        return None
    texts = pc.strftime(values.cast(pa.timestamp("us", "UTC")), '"%Y-%m-%dT%H:%M:%S+00:00"')
    return pc.replace_substring(texts, ".000000+", "+").cast(_TEXT)


def _plain(column: Any, texts: Any) -> Any:
    """The texts of a column without the quotes of JSON."""
    if pa.types.is_string(column.type):
        return column.cast(_TEXT)
    return pc.utf8_slice_codeunits(texts, 1, -1) if pa.types.is_temporal(column.type) else texts


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
