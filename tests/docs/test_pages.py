"""What the pages show of the code: diagrams that any terminal shows, and every standing word in the glossary."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.files import ROOT

FOLDERS = ("cli", "driftless", "connectors", "jobs", "sinks", "stack", "bench", "tests")
MODULE = re.compile(rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)})/[\w/]+\.(?:py|lua)\b")
STANDING = """version epoch floor frontier marker generation promote quarantine cut shard dirty lease follower view
token stale slice sink write key position build checkpoint horizon tombstone root drift"""
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "architecture.md"], ids=lambda page: page.name)
def test_diagrams_fit_a_plain_terminal(page: Path) -> None:
    diagrams = re.findall(r"^```\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for diagram in diagrams for line in diagram.splitlines()]
    assert lines
    assert [line for line in lines if len(line) > 80 or not line.isascii()] == []


def test_the_glossary_says_each_word_in_two_lines_and_in_order() -> None:
    entries = re.findall(r"^\*\*(.+?)\*\* - (?:.+)\n(?:.+)\n(?:\n|\Z)", GLOSSARY, re.MULTILINE)
    assert entries == re.findall(r"^\*\*(.+?)\*\*", GLOSSARY, re.MULTILINE)
    assert entries == sorted(entries)
    assert {*STANDING.split(), "row store"} <= set(entries)


def test_every_word_of_the_glossary_names_its_module() -> None:
    entries = re.split(r"^(?=\*\*)", GLOSSARY, flags=re.MULTILINE)[1:]
    assert [entry for entry in entries if not MODULE.search(entry)] == []
