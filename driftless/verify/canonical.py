"""One text for each JSON value, whoever wrote it: spaces, escapes, the order of keys and trailing zeros do not count.

Numbers are told apart by decimal value, never as floats, and from texts that look like them.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import msgspec
import orjson

_LEAST, _MOST = -(1 << 63), (1 << 64) - 1
"""Whole numbers between these stay numbers; whatever else a number is becomes a marked text."""
_WIDEST = 20
_MARK = "\0n"
"""Before the digits of a number. Postgres has no text with this character."""
_LONG = 5_000
"""Digits that are written out in full; a number of more is told by its digits and exponent."""


def canonical(text: str) -> bytes:
    """Raises ValueError for what is no JSON. Two values have the same one just where they are equal."""
    try:
        return orjson.dumps(_usual(text), option=orjson.OPT_SORT_KEYS)
    except (orjson.JSONEncodeError, ValueError, RecursionError):
        return _unusual(text)


def _unusual(text: str) -> bytes:
    """Whole numbers of more than 64 bits, half surrogates, or deep nesting."""
    try:
        return json.dumps(_careful(text), sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode(
            "utf-8", "surrogatepass"
        )
    except RecursionError:
        return _deep(text)


def _deep(text: str) -> bytes:
    """However deep it is: from the inside out."""
    open_: list[list[str]] = [[]]
    for found in _TOKEN.finditer(text):
        part = found[0].strip()
        if part in ("[", "{"):
            open_.append([part])
        elif part in ("]", "}"):
            first, *parts = open_.pop()
            if (first, part) not in (("[", "]"), ("{", "}")) or not open_:
                raise ValueError("brackets that do not match")
            open_[-1].append(f"[{','.join(parts)}]" if part == "]" else _members(parts))
        elif part not in (",", ":"):
            open_[-1].append(json.dumps(_careful(part), ensure_ascii=False))
    if len(open_) != 1 or len(open_[0]) != 1:
        raise ValueError("this is no JSON")
    return open_[0][0].encode("utf-8", "surrogatepass")


def _members(parts: list[str]) -> str:
    """Names and values in turn; of a name that comes twice the last counts."""
    pairs = dict(zip(parts[::2], parts[1::2], strict=True))
    return "{" + ",".join(f"{name}:{pairs[name]}" for name in sorted(pairs)) + "}"


def _number(text: str) -> int | str:
    """The canonical form of a number that has a point, an exponent, or many digits."""
    if "e" in text or "E" in text or len(text) > _LONG:
        return _from_decimal(text)
    digits = text.rstrip("0") if "." in text else text
    if digits[-1] == ".":
        digits = digits[:-1]
    if "." not in digits and len(digits) <= _WIDEST and _LEAST <= (whole := int(digits)) <= _MOST:
        return whole
    return _MARK + digits


def _from_decimal(text: str) -> int | str:
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits)).lstrip("0")
    bare = shown.rstrip("0")
    exponent += len(shown) - len(bare)
    if not bare:
        return 0
    minus = "-" if sign else ""
    if max(len(bare), len(bare) + exponent, -exponent) > _LONG - 10:
        return f"{_MARK}{minus}{bare}e{exponent}"
    if exponent >= 0:
        return _number(minus + bare + "0" * exponent)
    padded = bare.rjust(1 - exponent, "0")
    return f"{_MARK}{minus}{padded[:exponent]}.{padded[exponent:]}"


_TOKEN = re.compile(r'\s*(?:[\[\]{},:]|"(?:[^"\\]|\\.)*"|[^\s\[\]{},:"]+)', re.DOTALL)


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


_usual = msgspec.json.Decoder(float_hook=_number).decode
_careful = json.JSONDecoder(parse_float=_number, parse_int=_number, parse_constant=_constant).decode
