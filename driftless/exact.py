"""JSON whose numbers are kept as they are written: 19.90 stays 19.90, however many digits there are."""

from __future__ import annotations

import json
from typing import Any


class Number(str):
    """A number, by its digits."""

    __slots__ = ()


def read(text: str) -> Any:
    return json.loads(text, parse_int=Number, parse_float=Number)


def read_object(text: str) -> dict[str, Any] | None:
    """None for what is no JSON object."""
    try:
        found = read(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def write(value: Any, indent: int | None = None) -> str:
    """On one line and in ASCII, or with `indent` for people; what a terminal could take for a command is escaped."""
    return _write(value, indent, "\n")


def _write(value: Any, indent: int | None, line: str) -> str:
    below = line + " " * (indent or 0)
    match value:
        case Number():
            return str(value)
        case dict():
            members = [f"{_scalar(name, indent)}: {_write(part, indent, below)}" for name, part in value.items()]
            return _group(("{", "}"), members, indent, line)
        case list():
            return _group(("[", "]"), [_write(part, indent, below) for part in value], indent, line)
    return _scalar(value, indent)


def _group(brackets: tuple[str, str], members: list[str], indent: int | None, line: str) -> str:
    first, last = brackets
    if indent is None or not members:
        return f"{first}{', '.join(members)}{last}"
    below = line + " " * indent
    return f"{first}{below}{f',{below}'.join(members)}{line}{last}"


def _scalar(value: object, indent: int | None) -> str:
    text = json.dumps(value, ensure_ascii=indent is None)
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
