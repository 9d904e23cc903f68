"""Numbers and what they count, written one way everywhere."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """`1 record`, `2,000 records`."""
    return f"{number:,} {what}" + "s" * (number != 1)
