"""Where the files of the repository are, wherever a test stands that asks."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def find(name: str) -> Path:
    """The one file of this name below tests/: pages name a test by it alone, so that it can move."""
    found = sorted((ROOT / "tests").rglob(name))
    if len(found) != 1:
        there = ", ".join(str(path.relative_to(ROOT)) for path in found)
        raise LookupError(f"{name} is in several folders: {there}" if found else f"there is no {name} below tests/")
    return found[0]
