"""Names and texts as Spark SQL."""

from __future__ import annotations


def quote(name: str) -> str:
    """A column's name."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text, whatever is in it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


POISON = "this value is not carried: "
"""Begins what an expression says of a value that can never become part of a document: that document is refused."""

RENAMED = "which was renamed or dropped"
"""Ends what is said of a record that lacks a column."""
SEVERAL = "an array of several dimensions"
NULLS = f"{SEVERAL}, or of nothing but nulls: the log has the same for both"


def refuse(column: str, why: str) -> str:
    """The expression that refuses the document of a row, because of a column's value."""
    return f"raise_error({literal(f'{POISON}column {column}: {why}')})"
