"""The campaign as a test, so that it and the tests of the faults share the machine. Its seed: that of this run."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

import pytest

from stack import Stack
from tests.chaos.fight import fight, plan
from tests.support.seeds import seeds


def seed() -> int:
    return seeds("campaign", 1)[0]


@pytest.mark.timeout(3600)
def test_every_follower_equals_the_source_after_faults_of_every_kind(
    stack: Stack, capfd: pytest.CaptureFixture[str]
) -> None:
    with capfd.disabled(), redirect_stdout(sys.__stderr__):  # seen while it does it: xdist lets nothing else through
        fight(stack, seed(), plan(seed()))
