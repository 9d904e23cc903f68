"""What Spark says of a value that an expression of a stream's SQL cannot be computed of."""

from __future__ import annotations

import re

_FAULTS = re.compile(
    r"\[((?:[A-Z_]+_)?(?:DIVIDE_BY_ZERO|OVERFLOW|OUT_OF_RANGE|INVALID_INPUT|ARRAY_INDEX\w*)|USER_RAISED_EXCEPTION)[.\]]"
)
"""What Spark calls a value that an expression cannot be computed of: it never passes, however often it is tried."""


def sql_fault(said: str) -> str:
    """The name of such an error in what Spark says; empty where it may pass."""
    found = _FAULTS.search(said)
    return found[1] if found else ""
