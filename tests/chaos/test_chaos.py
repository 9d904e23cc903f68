"""The campaign's plan: the same for the same seed, and every fault before any comes again."""

from __future__ import annotations

from tests.chaos import operators
from tests.chaos.faults import FAULTS
from tests.chaos.fight import plan
from tests.chaos.named import PAGE, named


def test_a_seed_gives_the_same_plan_and_another_seed_another() -> None:
    assert plan(7, 40, []) == plan(7, 40, [])
    assert plan(7, 40, []) != plan(8, 40, [])


def test_two_operators_do_the_same_for_a_seed_and_all_there_is_to_do() -> None:
    assert operators.plan(7, 25, 8) == operators.plan(7, 25, 8)
    assert operators.plan(7, 25, 8) != operators.plan(8, 25, 8)
    planned = operators.plan(7, 100, 8)
    assert {verb for commands in planned.operators for _, verb, _, _ in commands} == set(operators.VERBS)
    assert ([len(commands) for commands in planned.operators], len(planned.kills)) == ([100, 100], 8)


def test_every_fault_comes_once_before_any_comes_again() -> None:
    names = [name for name, _ in plan(7, 2 * len(FAULTS), [])]
    assert set(names[: len(FAULTS)]) == set(FAULTS) == set(names[len(FAULTS) :])


def test_a_plan_may_be_of_some_faults_alone() -> None:
    assert {name for name, _ in plan(7, 5, ["kill redis"])} == {"kill redis"}


def test_the_tests_of_the_faults_are_those_that_the_page_names() -> None:
    page = "## The promises\n`test_a.py::test_no`\n## The faults\n"
    page += "| 1 | `test_b.py::test_x`, `suite.py::test_z` | `test_a.py::test_y`\n| 2 | `test_b.py::test_x` |"
    assert named(page) == [("test_b.py", "test_x"), ("test_a.py", "test_y")]
    assert len(named(PAGE.read_text(encoding="utf-8"))) > 70
