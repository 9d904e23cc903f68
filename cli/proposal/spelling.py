"""Names of the database as they are written: in YAML, in a comment, and made fit for the name of a view."""

from __future__ import annotations

import re
import unicodedata

SLUG = 40
"""Characters of a view's name: the longest name of a follower, 48, less its ending."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def slug(text: str, *, fallback: str = "table") -> str:
    """`Order Lines` -> `order_lines`: lower-case letters, digits and `_`, beginning with a letter."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)
    plain = unicodedata.normalize("NFKD", split).encode("ascii", "ignore").decode().lower()
    made = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")
    if not made:
        return fallback
    return (made if made[0].isalpha() else f"{fallback}_{made}")[:SLUG].rstrip("_")


def shown(text: str) -> str:
    """On one line, whatever characters are in it."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def key(text: str) -> str:
    """A name as the key of a mapping."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return '"' + "".join(map(_escaped, text)) + '"'


def value(text: str) -> str:
    """A name as a value, where `${` would be taken for a variable."""
    return key(text.replace("${", "$${"))


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return char if char.isprintable() else f"\\U{ord(char):08x}"
