"""`python -m tests.chaos.named`: run the tests that docs/guarantees.md names for the faults of the catalogue."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "guarantees.md"


def named(page: str) -> list[tuple[str, str]]:
    """(file, test) of each. What a suite's file has runs in the tests of the stores, and is left to them."""
    faults = page.partition("## The faults")[2]
    return list(dict.fromkeys(re.findall(r"`((?:chain/)?test_\w+\.py)::(\w+)`", faults)))


def main() -> int:
    found = named(PAGE.read_text(encoding="utf-8"))
    files = dict.fromkeys(f"tests/{file}" for file, _ in found)
    several = ["--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    return int(pytest.main([*several, *files, "-k", " or ".join(test for _, test in found), *sys.argv[1:]]))


if __name__ == "__main__":
    sys.exit(main())
