"""The functions that the row store's statements call, which SQLite does not have."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

from driftless.table import Table
from driftless.views.shard import shard_of
from driftless.where.clause import compute, parse
from jobs.decode.where_sql import numeric_order
from jobs.views.values import evaluate
from jobs.views.values.sqlite_values import double_order, literal, matches, moment_order
from jobs.views.values.tally import TallyOfRows, average_of, merged, sum_of


def register(connection: sqlite3.Connection, circles: dict[str, str]) -> None:
    """Make them known. Of null all but those that compute give null. `circles`: table -> key of a row that is its own
    ancestor, which `df_circle` puts there.
    """
    functions: list[tuple[str, int, Callable[..., Any]]] = [
        ("df_numeric", 1, _of_some(lambda text: numeric_order(Decimal(text.strip('"'))))),
        ("df_float", 2, _of_some(lambda text, single: double_order(text, single=bool(single)))),
        ("df_moment", 1, _of_some(moment_order)),
        ("df_shard", 2, _of_some(lambda key, shards: shard_of(str(key), shards))),
        ("df_like", 2, _of_some(matches)),
        ("df_admitted", -1, lambda what, *row: _compiled(what)(row)),
        ("df_shown", -1, lambda what, *row: _compiled(what).shown(row)),
        ("df_order", -1, lambda what, *row: _compiled(what).order(row)),
    ]
    functions += [("df_merged", 2, merged), ("df_sum", 1, sum_of), ("df_avg", 1, average_of)]
    connection.create_aggregate("df_tally", 2, TallyOfRows)  # type: ignore[arg-type]  # of which they know one form
    for name, arguments, function in functions:
        connection.create_function(name, arguments, function, deterministic=True)
    connection.create_function("df_circle", 2, lambda table, key: 0 * len(circles.setdefault(table, str(key))))


def admitted_sql(where: str, table: Table, texts: dict[str, str]) -> str:
    """A condition that computes something, over the JSON texts of a row. `texts`: column -> its place."""
    return _call("df_admitted", "where", where, parse(where).columns, table, texts)


def shown_sql(text: str, table: Table, texts: dict[str, str]) -> str:
    """The JSON text of what is computed."""
    return _call("df_shown", "computed", text, compute(text).columns, table, texts)


def order_sql(text: str, table: Table, texts: dict[str, str]) -> str:
    """What sorts as that value does."""
    return _call("df_order", "computed", text, compute(text).columns, table, texts)


def _call(function: str, what: str, text: str, columns: frozenset[str], table: Table, texts: dict[str, str]) -> str:
    part = table.part(columns)
    given = literal(json.dumps({what: text, "table": part.to_json()}))
    return f"{function}({', '.join([given, *(texts[column.name] for column in part.columns)])})"


@lru_cache(maxsize=256)
def _compiled(what: str) -> Any:
    told = json.loads(what)
    table = Table.from_json(told["table"])
    return evaluate.condition(told["where"], table) if "where" in told else evaluate.computed(told["computed"], table)


def _of_some(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda value, *others: None if value is None else function(value, *others)
