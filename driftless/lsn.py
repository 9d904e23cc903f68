"""Positions of the write-ahead log, as integers inside and as Postgres writes them outside."""

from __future__ import annotations

import re

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def parse_lsn(text: str) -> int:
    """`16/B374D848` -> integer. Raises ValueError for anything else."""
    match = _LSN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not an LSN; Postgres writes them as in 16/B374D848")
    return int(match[1], 16) << 32 | int(match[2], 16)


def format_lsn(lsn: int) -> str:
    """Integer -> `16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
