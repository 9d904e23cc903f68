"""The tally of values: all that a sum and an average take, and such that a value can be taken away again."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from jobs.views.values import numerics

Tally = tuple[int, Decimal, dict[str, int]]
"""How many values there are, the sum of those that are finite, and how many there are of each scale or word."""


class TallyOfRows:
    """An aggregate function of SQLite: the tally of values, each added, or taken away where the sign is -1."""

    def __init__(self) -> None:
        self._count, self._total, self._scales = 0, Decimal(0), dict[str, int]()

    def step(self, sign: int, text: str | None) -> None:
        if text is None:
            return
        value = numerics.read(text)
        self._count += sign
        word = str(numerics.scale(value)) if value.is_finite() else numerics.write(value)
        self._scales[word] = self._scales.get(word, 0) + sign
        if value.is_finite():
            self._total = numerics.EXACT.add(self._total, value if sign > 0 else value.copy_negate())

    def finalize(self) -> str:
        return _write(self._count, self._total, self._scales)


def merged(text: str | None, other: str | None) -> str | None:
    if text is None or other is None:
        return text or other
    (count, total, scales), (more, added, others) = _read(text), _read(other)
    for word, number in others.items():
        scales[word] = scales.get(word, 0) + number
    return _write(count + more, numerics.EXACT.add(total, added), scales)


def sum_of(text: str | None) -> str | None:
    """Its JSON text; None where there are no values."""
    found = _total(text)
    return None if found is None else numerics.as_json(found)


def average_of(text: str | None) -> str | None:
    found = _total(text)
    return None if found is None or text is None else numerics.as_json(numerics.divide(found, Decimal(_read(text)[0])))


def _total(text: str | None) -> Decimal | None:
    if text is None:
        return None
    count, total, scales = _read(text)
    if count == 0:
        return None
    words = {word for word in scales if word[-1].isalpha()}
    if words:
        return Decimal(words.pop()) if len(words) == 1 else Decimal("NaN")
    most = max(map(int, scales))
    return numerics.EXACT.quantize(total, Decimal(1).scaleb(-most))


def _read(text: str) -> Tally:
    count, total, scales = json.loads(text)
    return count, Decimal(total), scales


def _write(count: int, total: Decimal, scales: dict[str, int]) -> str:
    told: list[Any] = [count, str(total), {word: number for word, number in scales.items() if number}]
    return json.dumps(told, separators=(",", ":"))
