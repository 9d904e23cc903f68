"""The tally of values: all that a sum and an average take, and such that a value can be taken away again.

Of each scale it has how many values there are and their sum, as a whole number of the last digit's unit; and how many
there are of NaN and of the infinities. So the scale of a sum is that of the values that are left.
"""

from __future__ import annotations

from decimal import Decimal

from jobs.views.values import numerics

Tally = dict[str, list[int]]
"""Scale, or the word of what is not finite -> how many values, and their sum. Of what comes and goes both may be less
than nothing, and the one nothing without the other.
"""


class TallyOfRows:
    """An aggregate function of SQLite: the tally of values, each added, or taken away where the sign is -1."""

    def __init__(self) -> None:
        self._found: dict[int | str, list[int]] = {}

    def step(self, sign: int, text: str | None) -> None:
        if text is None:
            return
        point = text.find(".")
        scale: int | str = 0 if point < 0 else len(text) - point - 1
        try:
            units = int(text) if point < 0 else int(text[:point] + text[point + 1 :])
        except ValueError:
            scale, units = _unusual(text)
        entry = self._found.setdefault(scale, [0, 0])
        entry[0] += sign
        entry[1] += sign * units

    def finalize(self) -> str:
        return _write({str(scale): entry for scale, entry in self._found.items()})


def merged(text: str | None, other: str | None) -> str | None:
    if text is None or other is None:
        return text or other
    found = _read(text)
    for scale, (count, units) in _read(other).items():
        entry = found.setdefault(scale, [0, 0])
        entry[0] += count
        entry[1] += units
    return _write(found)


def sum_of(text: str | None) -> str | None:
    """Its JSON text; None where there are no values."""
    if text and ";" not in text and text[0].isdigit():  # of one scale, as of most columns
        scale, _, units = text.split(":")
        return _with_point(units, int(scale))
    found = _total(_read(text))
    return None if found is None else numerics.as_json(found)


def average_of(text: str | None) -> str | None:
    tally = _read(text)
    found, count = _total(tally), sum(count for count, _ in tally.values())
    return None if found is None else numerics.as_json(numerics.divide(found, Decimal(count)))


def _total(tally: Tally) -> Decimal | None:
    if not tally:
        return None
    words = {word for word in tally if word[-1].isalpha()}
    if words:
        return Decimal(words.pop()) if len(words) == 1 else Decimal("NaN")
    most = max(map(int, tally))
    return Decimal(sum(units * 10 ** (most - int(scale)) for scale, (_, units) in tally.items())).scaleb(
        -most, numerics.EXACT
    )


def _unusual(text: str) -> tuple[int | str, int]:
    """With an exponent, or no number."""
    value = numerics.read(text)
    if not value.is_finite():
        return numerics.write(value), 0
    scale = numerics.scale(value)
    return scale, int(value.scaleb(scale, numerics.EXACT))


def _with_point(units: str, scale: int) -> str:
    if not scale:
        return units
    sign, digits = ("-", units[1:]) if units[0] == "-" else ("", units)
    digits = digits.rjust(scale + 1, "0")
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}"


def _read(text: str | None) -> Tally:
    parts = (part.split(":") for part in text.split(";")) if text else ()
    return {scale: [int(count), int(Decimal(units))] for scale, count, units in parts}


def _write(tally: Tally) -> str:
    """`scale:count:units` of each scale, with `;` between them."""
    # A whole number of more digits than Python writes by itself is written by Decimal.
    kept = ((s, count, units) for s, (count, units) in tally.items() if count or units)
    return ";".join(f"{scale}:{count}:{Decimal(units):f}" for scale, count, units in kept)
