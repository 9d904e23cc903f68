"""What somebody probably meant, where a name is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def nearest(wrong: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """What was probably meant; `cutoff`: how alike it must be, from 0 to 1."""
    return next(iter(difflib.get_close_matches(wrong, sorted(known), n=1, cutoff=cutoff)), None)


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """`; did you mean ...?` where something known is near, else the list of what is known."""
    names: Sequence[str] = sorted(known)
    if near := nearest(wrong, names):
        return f"; did you mean `{near}`?"
    return f"; known: {', '.join(f'`{name}`' for name in names)}" if names else ""
