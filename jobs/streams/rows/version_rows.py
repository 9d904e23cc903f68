"""From records of a table's log to versions of its rows, each with the moment from which it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from driftless.facts.event_source import EventSource
from jobs.decode.spark_sql import quote
from jobs.decode.values import row_schema, text_sql
from jobs.streams.rows.captured_rows import header_sql
from jobs.streams.rows.event_rows import typed_sql

SINCE = "_since"
"""The column that says since when a version holds, in milliseconds: 0 for what the snapshot has read."""
TOLD = "_told"
"""The column that says when the log had it at the earliest, as a timestamp."""
GONE = "_gone"
"""The column that says whether it is a delete. Of one, only the key's columns are there."""
_ROW, _KEY, _OP, _TEXTS = "_row", "_key_row", "_op", "_texts"


def version_rows(records: DataFrame, source: EventSource, key: Sequence[str]) -> DataFrame:
    """Of Kafka's columns with headers: `partition`, `offset`, SINCE, TOLD, GONE, and the declared columns, typed.

    `key`: the columns of the primary key. Records that are no row of the connector's are left out. A value that its
    type cannot hold, as a `numeric` that is no number, is null.
    """
    rows = source.captured
    assert rows is not None
    known = {column.name: column for column in rows.columns}
    keys = [known[name] for name in key]
    parsed = records.selectExpr(
        "`partition`",
        "`offset`",
        f"from_json(CAST(value AS STRING), {row_schema([*rows.columns])}) AS {_ROW}",
        f"from_json(CAST(key AS STRING), {row_schema(keys)}) AS {_KEY}",
        f"{header_sql('op')} AS {_OP}",
        f"CAST(floor(try_cast({header_sql('ts')} AS BIGINT) / 1000) AS BIGINT) AS {SINCE}",
        f"value IS NULL AS {GONE}",
        "`timestamp`",
    )
    # Each delete has a second tombstone, without headers.
    told = parsed.where(
        f"({GONE} AND {_OP} = 'd' OR NOT {GONE} AND {_OP} IN ('c', 'u', 'r')) AND ({_OP} = 'r' OR {SINCE} IS NOT NULL)"
    )
    members = ", ".join(
        f"'{n}', CAST({text_sql(column, f'{_KEY if name in key else _ROW}.{quote(name)}')} AS STRING)"
        for n, (name, column) in enumerate(known.items())
    )
    texts = told.selectExpr(
        "`partition`",
        "`offset`",
        f"CASE WHEN {_OP} = 'r' THEN 0 ELSE {SINCE} END AS {SINCE}",
        f"CASE WHEN {_OP} = 'r' THEN `timestamp` ELSE timestamp_millis({SINCE}) END AS {TOLD}",
        GONE,
        f"named_struct({members}) AS {_TEXTS}",
    )
    typed = [f"{typed_sql(f'{_TEXTS}.`{n}`', source.columns[name])} AS {quote(name)}" for n, name in enumerate(known)]
    return texts.selectExpr("`partition`", "`offset`", SINCE, TOLD, GONE, *typed)


def empty_versions(rows: DataFrame, types: Mapping[str, str]) -> DataFrame:
    """The same columns, of no row."""
    places = ("CAST(NULL AS INT) AS `partition`", "CAST(NULL AS BIGINT) AS `offset`")
    since = (f"CAST(NULL AS BIGINT) AS {SINCE}", f"CAST(NULL AS TIMESTAMP) AS {TOLD}", f"false AS {GONE}")
    declared = (f"CAST(NULL AS {kind}) AS {quote(name)}" for name, kind in types.items())
    return rows.where("false").selectExpr(*places, *since, *declared)
