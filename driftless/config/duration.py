"""Lengths of time in sync.yaml: a number and a unit, as in `7d`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

_DURATION = re.compile(r"(\d+)\s*(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_IN_WORDS = re.compile(r"(\d+)\s*(ms|milli|s|m|h|d)[a-z]*", re.IGNORECASE)


def _duration(given: object) -> object:
    if isinstance(given, str) and _DURATION.fullmatch(given):
        return given
    meant = ""
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        meant = f"; `{given}` of what: `{given}s`, `{given}m`, `{given}h`, `{given}d`?"
    elif isinstance(given, str) and (words := _IN_WORDS.fullmatch(given)):
        unit = words[2].lower()
        meant = f"; did you mean `{words[1]}{'ms' if unit == 'milli' else unit}`?"
    elif str(given).startswith("-"):
        meant = "; it cannot be negative"
    raise ValueError(f"write a number and a unit: ms, s, m, h or d, as in `7d`{meant}")


def milliseconds(duration: str) -> int:
    """`7d` -> 604800000."""
    match = _DURATION.fullmatch(duration)
    if match is None:
        raise ValueError(f"{duration!r} is not a duration")
    return int(match[1]) * _UNIT_MS[match[2]]


Duration = Annotated[str, BeforeValidator(_duration), WithJsonSchema({"type": "string", "format": "duration"})]
