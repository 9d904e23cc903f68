"""What is wrong in a view of several tables is told all at once, with its line and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from driftless.views.resolve import CapturedTables, resolve
from tests.driftless.config.test_config import load_text, problems
from tests.driftless.views import computed_mistakes
from tests.driftless.views.views_mistakes import BY_THE_TABLES, IN_THE_FILE, RIGHT, TABLES, UNIQUE

_FILE = [*IN_THE_FILE, *computed_mistakes.IN_THE_FILE]
_TABLES = [*BY_THE_TABLES, *computed_mistakes.BY_THE_TABLES]


@pytest.fixture
def told(tmp_path: Path) -> Callable[[str], list[str]]:
    """What `check` tells of the views of a file that the loader takes."""

    def tell(text: str) -> list[str]:
        config = load_text(tmp_path, text)
        excluded = {name: table.exclude for name, table in config.source.tables.items()}
        source = CapturedTables(TABLES, lambda name: UNIQUE[name], excluded)
        found = [said for name, view in config.views.items() for said in resolve(name, view, source)[1]]
        return [config.at(at, what).removeprefix(f"{tmp_path}/sync.yaml:") for at, what in found]

    return tell


def test_without_a_mistake_it_is_taken(told: Callable[[str], list[str]]) -> None:
    assert told(RIGHT) == []


@pytest.mark.parametrize(("old", "new", "said"), [m[1:] for m in _FILE], ids=[m[0] for m in _FILE])
def test_a_mistake_in_the_file(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in RIGHT
    assert problems(tmp_path, RIGHT.replace(old, new, 1)) == [f"sync.yaml:{line}" for line in said.splitlines()]


@pytest.mark.parametrize(("old", "new", "said"), [m[1:] for m in _TABLES], ids=[m[0] for m in _TABLES])
def test_a_mistake_that_only_the_tables_tell(told: Callable[[str], list[str]], old: str, new: str, said: str) -> None:
    assert old in RIGHT
    assert told(RIGHT.replace(old, new, 1)) == said.splitlines()


def test_all_mistakes_are_told_at_once(tmp_path: Path, told: Callable[[str], list[str]]) -> None:
    chosen = {"a typo in a relation", "a table between that is not captured", "the order twice", "no shards"}
    text, said = RIGHT, []
    for what, old, new, line in IN_THE_FILE:
        if what in chosen:
            text = text.replace(old, new, 1)
            said.append(f"sync.yaml:{line}")
    assert sorted(problems(tmp_path, text)) == sorted(said)
    chosen = {
        "a column to show",
        "to in the wrong table",
        "types that cannot be compared",
        "an order that the log lacks",
    }
    text, said = RIGHT, []
    for what, old, new, line in BY_THE_TABLES:
        if what in chosen:
            text = text.replace(old, new, 1)
            said.append(line)
    assert sorted(told(text)) == sorted(said)
