"""What the plan that Spark makes of a stream's SQL says of the columns of its results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_GROUPED = re.compile(r"^[^\w:]*Aggregate \[(?P<by>.*?)\], \[(?P<shown>.*)\]$", re.MULTILINE)
"""That of the query itself: what is named in WITH stands after a colon."""
_COLUMN = re.compile(r"(?P<name>[^#(),]+)#\d+L?")
_SHOWN = re.compile(r"(?P<what>.+) AS (?P<name>[^#]+)#\d+L?")


def left_out_of_key(plan: str, key: Sequence[str]) -> Iterator[str]:
    """Columns by which the outermost query groups, and that no column of the key shows: two results may then have one
    key. `plan`: as Spark has analysed it.

    What is grouped by is looked at where it is a column; of an expression it is seen when two results meet.
    """
    found = _GROUPED.search(plan)
    if found is None:
        return
    shown = [_told(item) for item in _items(found["shown"])]
    of_key = [what for name, what in shown if name in key]
    for item in _items(found["by"]):
        column = _COLUMN.fullmatch(item)
        if column is None:
            continue
        is_window = column["name"] in ("window", "session_window")
        if not any(item in what if is_window else item == what for what in of_key):
            yield column["name"]


def _told(item: str) -> tuple[str, str]:
    """The name of a column of the result, and what it shows."""
    if renamed := _SHOWN.fullmatch(item):
        return renamed["name"], renamed["what"]
    column = _COLUMN.fullmatch(item)
    return (column["name"] if column else "", item)


def _items(text: str) -> Iterator[str]:
    """What stands between commas, but for those within brackets."""
    depth, begin = 0, 0
    for place, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and depth == 0:
            yield text[begin:place].strip()
            begin = place + 1
    yield text[begin:].strip()


_DISTINCT = re.compile(r"approx_count_distinct\(.*?, (?P<error>[0-9.E-]+), \d+, \d+\)")
_THETA = re.compile(r"theta_sketch_agg\(.*?, (?P<bits>\d+), \d+, \d+\)")


def approximate(plan: str) -> dict[str, float]:
    """By its name, how far a column of the result is from the exact number, as a share of that: the standard error.
    `plan`: as Spark has analysed it.

    That of approx_count_distinct is the one that it is asked for. That of a theta sketch of 2^n entries is 1 / 2^(n/2),
    by the documentation of Apache DataSketches.
    """
    grouped = _GROUPED.search(plan)
    found = {}
    for name, what in map(_told, _items(grouped["shown"])) if grouped else ():
        if asked := _DISTINCT.search(what):
            found[name] = float(asked["error"])
        elif sketch := _THETA.search(what):
            found[name] = round(2 ** (-int(sketch["bits"]) / 2), 4)
    return found
