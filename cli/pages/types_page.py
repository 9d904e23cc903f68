"""docs/types.md, made of the rules: `make docs` writes it."""

from __future__ import annotations

from pathlib import Path

from driftless.table import Column
from driftless.types import REFUSED, RULES, refusal

PAGE = Path(__file__).parent.parent.parent / "docs" / "types.md"

_HEAD = """# Types

Made by `make docs` from `driftless/types.py`; do not edit. A test holds every carried type against the server's own
answers, through the whole chain, by snapshot and by stream, with a database whose settings for printing values are
all odd.

A document shows a column as `to_jsonb` shows it in UTC: numbers exact, timestamps in ISO 8601, `bytea` as `\\x...`,
`NaN` and `infinity` as text. What the server, the database or the role is set to
(`DateStyle`, `IntervalStyle`, `bytea_output`, `extra_float_digits`) does not show: these are taken at their defaults.
**exact** below means just that. A **rule** says what is shown instead, and the SQL
that gives the same. A **refused** column is left out of documents and of the log; its table is still followed, unless
it is a column of the key.

| type | alone | in an array |
|---|---|---|
"""

_TAIL = """
And of your own making, or of an extension:

| type | alone | in an array |
|---|---|---|
| enum | exact | refused: {enum} |
| domain | as what it is made of | refused: {domain} |
| composite | exact, but refused with a `money`, `box`, `hstore` or refused type in it | refused: {composite} |
| range, multirange | exact | refused: {hex} |
| any other base type of an extension | exact, unless a function of its own makes its JSON | refused: {hex} |

Arrays of several dimensions and generated columns are refused. Arrays inside of a composite are all carried, with
one dimension.

## What is lost, known so far

Debezium 3.7 does this where nothing later can tell:

- An `interval` of `infinity` (Postgres 17 and newer) is shown as `00:00:00`. Forbid it: `check (isfinite(...))`.
- In a `date[]` and a `timestamptz[]`, a date before Christ is shown without `BC`, and in a `date[]` and a
  `timestamp[]`, the days that the Gregorian calendar left out (5 to 14 October 1582) are shown ten days later.
- `integer[]` does not keep Postgres from storing an array of two dimensions, of which the log has the name of a Java
  class, or nulls. A document with such an array is quarantined, with the name of the column. So is one with an array
  of nulls alone, of numbers, booleans, dates, times, `bytea`, `citext` or `hstore`: the log has the same for it.
- `real` values need a Connect worker on Java 19 or newer to be exact. Older ones write some with a digit more than
  needed (`1e15` as `999999990000000`), as they do with the smallest of all `double precision` values (`5e-324`):
  the same number of that type, another decimal. `timestamp` ends in the year 294247.
- A `json` value in which an object has a key twice is shown as `to_jsonb` does it, the last one wins; but all
  numbers of such a value keep only 38 digits.

What stops the connector with a message, instead of being lost: `NaN` or `Infinity` in a `numeric[]`, null in an
`ltree[]`, a `timetz` with seconds in its zone (`+02:03:04`), an `interval` of more than 2147483647 hours. Put the
column into the table's `exclude`, or change the row.

What stops a follower: a time in a range, multirange or composite that is not in UTC. The Connect worker must run
with `TZ=UTC`."""


def page() -> str:
    """The text of the page."""
    rows = []
    for name in sorted({*RULES, *REFUSED}):
        rows.append(f"| `{_SPELLED.get(name, name)}` | {_shown(Column('c', name))} | {_array(name)} |")
    reasons = {
        "enum": _why(Column("c", "mood", kind="e", array=True)),
        "domain": _why(Column("c", "int4", array=True, domains=True)),
        "composite": _why(Column("c", "pair", kind="c", array=True)),
        "hex": _why(Column("c", "cube", own=True, array=True)),
    }
    return _HEAD + "\n".join(rows) + "\n" + _TAIL.format(**reasons)


_LOST = "what-is-lost-known-so-far"
_BUT_ALONE = {"interval", "float4", "float8", "timestamp"}
_BUT_IN_ARRAYS = {"int4", "numeric", "float4", "float8", "date", "timestamp", "timestamptz"}
_SPELLED = {"char": '"char"', "bpchar": "char(n)"}


def _shown(column: Column) -> str:
    reason = refusal(column)
    if reason is not None:
        return f"refused: {_short(reason)}"
    rule = RULES[column.type]
    if not rule.says:
        return f"exact, [but](#{_LOST})" if column.type in _BUT_ALONE else "exact"
    same = "" if rule.sql == "to_jsonb({})" else f" (`{rule.sql.format('c')}`)"
    return f"rule: {rule.says}{same}"


def _array(name: str) -> str:
    if refusal(Column("c", name)) is not None:
        return "refused"
    reason = refusal(Column("c", name, array=True))
    if reason is not None:
        return f"refused: {_short(reason)}"
    if RULES[name].says:
        return "likewise"
    return f"exact, [but](#{_LOST})" if name in _BUT_IN_ARRAYS else "exact"


def _why(column: Column) -> str:
    reason = refusal(column)
    assert reason is not None
    return _short(reason)


def _short(reason: str) -> str:
    """Without the part that names the type: that stands beside it."""
    return reason.split(", ", 1)[-1].removeprefix("and ")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
