"""What is computed of a row, and over the rows of a relation, by a few plain lines: nothing of the product is here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

Test = Callable[[Any], Any]


def _number(test: Callable[[Decimal], Any]) -> Test:
    return lambda n: None if n is None else test(n)


def _text(test: Callable[[str], Any]) -> Test:
    return lambda s: None if s is None else test(s)


def _upper(text: str) -> str:
    return "".join(c.upper() if c.isascii() else c for c in text)


COMPUTED: list[tuple[str, str, str, Test]] = [
    ("int4", "n", "{} + 1", _number(lambda n: n + 1)),
    ("int4", "n", "CASE WHEN {} > 2 THEN 'many' WHEN {} IS NULL THEN 'none' END", lambda n: _sized(n)),
    ("int4", "n", "nullif({}, 1) * -2", lambda n: None if n in (None, 1) else n * -2),
    ("text", "s", "upper({}) || '!'", _text(lambda s: _upper(s) + "!")),
    ("text", "s", "coalesce({}, 'none')", lambda s: "none" if s is None else s),
    ("text", "s", "length({})", _text(lambda s: Decimal(len(s)))),
    ("jsonb", "j", "{} -> 'a' ->> 1", lambda j: "2.50" if isinstance(j, dict) else None),
    ("bool", "b", "'book'", lambda _: "book"),
]
"""Of a column of that type: the text, and what it gives."""


def _sized(n: Decimal | None) -> str | None:
    return "none" if n is None else "many" if n > 2 else None


COMPUTING_WHERES: list[tuple[str, str, str, Test]] = [
    ("int4", "n", "{} + 1 > 2", lambda n: n is not None and n > 1),
    ("text", "s", "lower({}) IN ('b', 'z')", lambda s: s is not None and s.lower() in ("b", "z") and s.isascii()),
    ("text", "s", "coalesce(length({}), 7) > 1", lambda s: s is None or len(s) > 1),
]


def aggregate(function: str, values: Iterable[Any], place: Callable[[Any], Any]) -> Any:
    """`place`: where Postgres sorts a value."""
    there = [value for value in values if value is not None]
    if function == "count":
        return Decimal(len(list(there)))
    if not there:
        return None
    if function in ("min", "max"):
        return (min if function == "min" else max)(there, key=place)
    words = {value for value in there if isinstance(value, str)}
    if words:
        return words.pop() if len(words) == 1 else "NaN"
    context = Context(prec=200)
    total = Decimal(0)
    for value in there:
        total = context.add(total, value)
    return total if function == "sum" else _average(total, len(there))


def _average(total: Decimal, count: int) -> Decimal:
    """With 16 significant digits or a few more, in groups of four, as Postgres has it."""
    digits = -int(total.as_tuple().exponent)

    def group(n: Fraction) -> tuple[int, int]:
        power = 0
        while n and n >= 10000 ** (power + 1):
            power += 1
        while n and n < Fraction(10000) ** power:
            power -= 1
        return power, int(n / Fraction(10000) ** power)

    (weight, first), (other, other_first) = group(abs(Fraction(total))), group(Fraction(count))
    scale = max(16 - 4 * (weight - other - (first <= other_first)), digits, 0)
    wide = Context(prec=400)
    return wide.divide(total, Decimal(count)).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, wide)
