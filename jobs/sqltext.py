"""Names and texts as Spark SQL."""

from __future__ import annotations


def quote(name: str) -> str:
    """A column's name."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text, whatever is in it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
