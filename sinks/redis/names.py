"""Names in Redis: from a key's text to the name readers use, and back, so that no two keys ever meet."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from string import Formatter
from typing import Any
from urllib.parse import unquote

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from sinks._arrow import join

OURS = "driftless:"
CLAIMS = f"{OURS}names"
"""A hash: the start of readers' names -> the follower that they belong to."""

# `:` parts names everywhere in Redis, so an application's own `product:42:views` is never taken for a document's name;
# `{` and `}` would choose the cluster slot; `%` is the escape itself.
_ALWAYS = "%{}:" + "".join(map(chr, range(32))) + "\x7f"


def columns_in(template: str) -> tuple[str, ...]:
    """The columns that a template names, in its order. Raises ValueError, with a text for the operator."""
    try:
        return tuple(name for _, name, _, _ in Formatter().parse(template) if name is not None)
    except ValueError as exc:
        raise ValueError(f"`{template}`: {exc}") from exc


@dataclass(frozen=True)
class Template:
    """`product:{id}`: how a document's name is made of its key columns.

    Within a value, the characters `%`, `{`, `}`, `:`, control characters, and those that part two columns in the
    template are written as `%XX`. So values never hold what parts them, and different keys have different names.
    """

    prefix: str
    columns: tuple[str, ...]
    parts: tuple[str, ...]  # the literal text after each column
    positions: tuple[int, ...]  # of each column in the key

    @classmethod
    def parse(cls, template: str, key_columns: Sequence[str]) -> Template:
        """Raises ValueError, with a text for the operator, for a template that cannot name every key apart."""
        columns = columns_in(template)
        pieces = list(Formatter().parse(template))
        if any(spec or conversion for _, _, spec, conversion in pieces) or "{{" in template or "}}" in template:
            raise ValueError(
                f"`{template}`: only plain `{{column}}` is understood; `{{` and `}}` cannot be in the name"
            )
        literals = [literal for literal, _, _, _ in pieces]
        if pieces and pieces[-1][1] is not None:
            literals.append("")
        wanted = " and ".join(f"`{{{column}}}`" for column in key_columns)
        if sorted(columns) != sorted(key_columns):
            raise ValueError(
                f"`{template}`: must name every key column once and nothing else, so {wanted} "
                "(`key` of the view names documents by another unique key)"
            )
        prefix, parts = literals[0], tuple(literals[1:])
        if not prefix:
            raise ValueError(f"`{template}`: must start with some text of its own, such as `{key_columns[0]}:`")
        if prefix.startswith(OURS) or OURS.startswith(prefix):
            raise ValueError(f"`{template}`: names that start with `{OURS}` are kept for our own records")
        if not all(_parting(part) for part in parts[:-1]):
            raise ValueError(f"`{template}`: put a separator such as `:` between two columns")
        return cls(prefix, columns, parts, tuple(key_columns.index(column) for column in columns))

    def names(self, keys: Any) -> Any:
        """The names of a column of keys."""
        if len(self.columns) > 1:
            return pa.array([self._composite(key) for key in keys.to_pylist()], pa.string())
        if pc.any(pc.match_substring_regex(keys, f"[{re.escape(self._escaped)}]")).as_py():
            keys = pa.array([self._escape(key) for key in keys.to_pylist()], pa.string())
        return join(self.prefix, keys, self.parts[0])

    def name(self, key: str) -> str:
        return str(self.names(pa.array([key], pa.string()))[0])

    def key(self, name: str) -> str | None:
        """The key of a name, None where no key has that name. Values of composite keys come back as text."""
        found = self._pattern.fullmatch(name)
        if not found:
            return None
        values: list[str] = [""] * len(self.columns)
        for position, value in zip(self.positions, found.groups(), strict=True):
            values[position] = unquote(value) if "%" in value else value
        return values[0] if len(values) == 1 else orjson.dumps(values).decode()

    def _composite(self, key: str) -> str:
        # Numbers stay text: as numbers they would lose digits.
        values = json.loads(key, parse_int=str, parse_float=str, parse_constant=str)
        written = [self._escape(value if isinstance(value, str) else json.dumps(value)) for value in values]
        return self.prefix + "".join(written[at] + part for at, part in zip(self.positions, self.parts, strict=True))

    def _escape(self, value: str) -> str:
        return value.translate({ord(char): f"%{ord(char):02X}" for char in self._escaped})

    @cached_property
    def _escaped(self) -> str:
        return "".join(sorted(set(_ALWAYS).union(*map(_parting, self.parts[:-1]))))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        escapes = "|".join(f"%{ord(char):02X}" for char in self._escaped)
        plain = f"[^{re.escape(self._escaped)}]*"
        value = f"({plain}(?:(?:{escapes}){plain})*)"
        return re.compile(re.escape(self.prefix) + "".join(value + re.escape(part) for part in self.parts), re.DOTALL)


def _parting(literal: str) -> set[str]:
    """The characters that part two columns: those that are kept out of values, and are not part of an escape."""
    return {char for char in literal if char.isascii() and not char.isalnum()} - {"%"}


class Names:
    """All names of one follower. Each document's version is in the same cluster slot, by the braces round its name."""

    def __init__(self, pipeline: str, follower: str) -> None:
        # Escaped, so that no name has braces of its own and no two followers share a prefix.
        safe = str.maketrans({char: f"%{ord(char):02X}" for char in _ALWAYS})
        self.follower = f"{OURS}{pipeline.translate(safe)}:{follower.translate(safe)}"

    def generation(self, generation: int) -> str:
        return f"{self.follower}:{generation}"

    def dropped(self, generation: int) -> str:
        return f"{self.follower}:{generation}:dropped"

    def document(self, generation: int | None) -> tuple[str, str]:
        """What stands before and after a document's own name; nothing for the generation under readers' names."""
        return ("", "") if generation is None else (f"{self.follower}:{generation}:d:{{", "}")

    def version(self, generation: int | None) -> tuple[str, str]:
        return (f"{self.follower}:v:{{" if generation is None else f"{self.follower}:{generation}:v:{{"), "}"

    def around(self, *places: int | None) -> list[tuple[str, str]]:
        """What stands before and after a document's own name and its version's, for each place in turn."""
        return [pair for place in places for pair in (self.document(place), self.version(place))]
