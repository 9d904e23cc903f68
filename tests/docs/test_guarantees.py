"""docs/guarantees.md: every test that it names exists, and no fault of the catalogue is left out."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.files import ROOT, find

PAGE = ROOT / "docs" / "guarantees.md"
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")
FAULTS = {*range(1, 52), 53, 54, 58}
"""Of the catalogue. Those that were found since are numbered from 61 on."""


def named_in(file: str) -> set[str]:
    """The names of the tests in a file, those of classes too."""
    tree = ast.parse(find(file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED.findall(PAGE.read_text(encoding="utf-8")))))
def test_every_test_that_the_page_names_exists(file: str, name: str) -> None:
    assert "/" not in file, "a page names a test by its file alone, so that the file can move"
    assert name in named_in(file)


def test_the_table_has_every_fault_once() -> None:
    rows = [int(row) for row in re.findall(r"^\| (\d+) ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)]
    assert [row for row in rows if row < 61] == sorted(FAULTS)
    assert len(rows) == len(set(rows)), "a number stands twice"


def test_every_fault_has_a_test_or_says_that_it_has_none() -> None:
    for row in re.findall(r"^\| \d+ .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE):
        assert NAMED.search(row) or "not yet" in row, row
