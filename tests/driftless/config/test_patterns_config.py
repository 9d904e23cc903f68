"""Mistakes in `patterns`, each with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftless.streams.patterns import Pattern, PatternStep
from tests.driftless.config.test_config import GOOD, load_text, problems

PATTERNS = """events:
  clicks: {topic: app.clicks, columns: {id: bigint, page: text, at: timestamptz}, time: {event: at}}
patterns:
  alone:
    events: clicks
    by: [page]
    steps:
      - {name: seen, where: "id > 7"}
      - {unless: "id < 3", within: 10s}
"""
BEGIN = GOOD.count("\n")


def test_a_pattern_is_read_as_it_is_written(tmp_path: Path) -> None:
    steps = 'steps: [{name: seen, where: "id > 7", times: 3, within: 2m, unless: "id = 9"}]\n'
    text = PATTERNS.partition("steps:")[0] + steps
    pattern = load_text(tmp_path, GOOD + text).patterns["alone"].pattern
    assert pattern == Pattern("clicks", ("page",), (PatternStep("seen", "id > 7", 120_000, 3, "id = 9"),))
    assert Pattern.from_json(pattern.to_json()) == pattern
    assert load_text(tmp_path, GOOD + PATTERNS).patterns["alone"].pattern.span == 10_000


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("events: clicks", "events: click", 5, "there are no events `click`; did you mean `clicks`?"),
        ("  alone:", "  clicks:", 4, "there are events `clicks` too: a query cannot tell them apart"),
        ("where: ", "were: ", 8, "unknown field; did you mean `where`?"),
        (", within: 10s", "", 4, "step 2: how long may it take? give it `within`"),
        ("within: 10s", "within: 10", 9, "write a number and a unit"),
        ("name: seen, ", "", 4, "step 1: `name` and `where` belong together"),
        ("name: seen", "name: began", 4, "`began` would be two columns of a match"),
        ("name: seen", "name: page", 4, "`page` would be two columns of a match"),
        ("name: seen", "name: seen, within: 3s", 4, "step 1: the first step waits for nothing"),
        ("name: seen", "name: seen, times: 2", 4, "step 1: how long may it take? give it `within`"),
        ("name: seen", "name: seen, times: 0", 8, "at least 1"),
        ('{name: seen, where: "id > 7"}', '{unless: "id > 7", within: 1s}', 4, "step 1: only the last step"),
        ('unless: "id < 3", ', "", 4, "step 2: it has neither `where` nor `unless`"),
        ('{unless: "id < 3", ', '{unless: "id < 3", times: 3, ', 4, "step 2: `times` is of events that come"),
        ('      - {unless: "id < 3", within: 10s}\n', "", 4, "one step for one event is no pattern"),
    ],
)
def test_a_mistake_of_a_pattern_is_told_with_its_line(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    found = problems(tmp_path, GOOD + PATTERNS.replace(old, new, 1))
    assert any(each.startswith(f"sync.yaml:{BEGIN + line}: ") and said in each for each in found), found
