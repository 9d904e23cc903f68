"""`python -m tests.chaos.named`: the campaign, and beside it the tests that docs/guarantees.md names for the faults."""

from __future__ import annotations

import re
import sys

import pytest

from tests.chaos.case import seed
from tests.chaos.case import test_every_follower_equals_the_source_after_faults_of_every_kind as campaign
from tests.chaos.fight import announce, plan
from tests.support.files import ROOT, find

CAMPAIGN = "case.py"
LONGEST = (CAMPAIGN, "test_two_operators.py", "test_kills.py")
"""Begun first, so that no worker is alone with one at the end."""
PAGE = ROOT / "docs" / "guarantees.md"


def named(page: str) -> list[tuple[str, str]]:
    """(file, test) of each. What a suite's file has runs in the tests of the stores, and is left to them."""
    faults = page.partition("## The faults")[2]
    return list(dict.fromkeys(re.findall(r"`(test_\w+\.py)::(\w+)`", faults)))


def main() -> int:
    found = [(CAMPAIGN, campaign.__name__), *named(PAGE.read_text(encoding="utf-8"))]
    files = dict.fromkeys(str(find(file)) for file in (*LONGEST, *(file for file, _ in found)))
    announce(seed(), plan(seed()))
    several = ["--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    return int(pytest.main([*several, *files, "-k", " or ".join(test for _, test in found), *sys.argv[1:]]))


if __name__ == "__main__":
    sys.exit(main())
