"""From records of a stream's log to rows for a row store: the JSON text of each member of a document by itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from driftless import exact
from driftless.errors import DecodeError
from driftless.facts.epochs import TopicLog
from jobs.decode.records import version_sql
from jobs.decode.rows import FIXED

_DOCUMENT = "document"


def placed_documents_sql(log: TopicLog) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Two steps of `selectExpr` over Kafka's columns, ending in FIXED and the document, which is null for a delete.

    What a stream has computed is of no transaction.
    """
    parse = (
        "CAST(key AS STRING) AS key",
        "CAST(value AS STRING) AS document",
        f"{version_sql(log)} AS version",
        "`partition`",
        "`offset`",
    )
    made = {"prev_commit_lsn": "-1L AS prev_commit_lsn", "gone": "document IS NULL AS gone"}
    return parse, (*(made.get(name, f"`{name}`") for name in FIXED), _DOCUMENT)


def member_rows(topic: str, found: pa.Table, columns: Sequence[str]) -> pa.Table:
    """FIXED, and in place of the document a text for each column, which is null for a member that is null or missing.

    Spark would make 1.5 of a number that is written 1.50. Raises DecodeError, with the place, for what no stream can
    have written.
    """
    places = zip(*(found[name].to_pylist() for name in ("partition", "offset", "key", _DOCUMENT)), strict=True)
    texts: list[list[str | None]] = [[] for _ in columns]
    for partition, offset, key, document in places:
        row = {} if document is None else exact.read_object(document)
        if row is None or key is None:
            raise DecodeError(
                f"{topic}/{partition}/{offset}: it is no document of a stream",
                hint="another program has written it; `driftless rebuild` of the stream begins a new log",
            )
        for name, column in zip(columns, texts, strict=True):
            column.append(_text(row.get(name)))
    kept = found.drop_columns([_DOCUMENT])
    return pa.table(
        [*kept.columns, *(pa.array(column, pa.string()) for column in texts)],
        names=[*kept.column_names, *(f"c{number}" for number in range(len(columns)))],
    )


def _text(value: Any) -> str | None:
    match value:
        case None | exact.Number():
            return value
        case str():
            return json.dumps(value, ensure_ascii=False)
    return exact.write(value)
