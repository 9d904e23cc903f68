"""The campaign's plan: the same for the same seed, and every fault before any comes again."""

from __future__ import annotations

from tests.chaos.__main__ import plan
from tests.chaos.faults import FAULTS


def test_a_seed_gives_the_same_plan_and_another_seed_another() -> None:
    assert plan(7, 40, []) == plan(7, 40, [])
    assert plan(7, 40, []) != plan(8, 40, [])


def test_every_fault_comes_once_before_any_comes_again() -> None:
    names = [name for name, _ in plan(7, 2 * len(FAULTS), [])]
    assert set(names[: len(FAULTS)]) == set(FAULTS) == set(names[len(FAULTS) :])


def test_a_plan_may_be_of_some_faults_alone() -> None:
    assert {name for name, _ in plan(7, 5, ["kill redis"])} == {"kill redis"}
