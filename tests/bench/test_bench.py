"""Every measured claim runs at a tiny scale: what it applies is compared exactly, what it takes is not judged."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bench import record
from bench.__main__ import CLAIMS, measure
from bench.figures import Figure, Scale, grid, percentile
from bench.rows import SMALL, TABLE, Rows, final
from stack import Stack

TINY = Scale(rows=1_000, pairs=1, warm_up=2, changes=4)
FIGURES = {
    "apply": 8,
    "latency": 12,
    "memory": 4,
    "growth": 4,
    "rebuild": 8,
    "snapshot": 1,
    "quarantine": 4,
    "views": 17,
    "idle": 4,
    "growth_views": 3,
    "verify": 12,
    "streams": 3,
    "stream_latency": 4,
    "growth_streams": 4,
}


@pytest.mark.soak
@pytest.mark.server
@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_gives_each_figure_with_its_ratio(stack: Stack, claim: str) -> None:
    figures = measure(claim, stack, TINY)  # raises where a count or a document is not the one it should be
    assert len(figures) >= FIGURES[claim]
    for figure in figures:
        assert all(math.isfinite(value) and value > 0 for value in (figure.ours, figure.reference, figure.ratio)), (
            figure
        )
    assert grid(claim, figures).row_count == len(figures)


def test_the_changes_of_a_run_are_those_it_says() -> None:
    changes = list(Rows().mixed(1_000))
    assert len({change.id for change in changes}) == 800
    assert sum(change.value is None for change in changes) == 62
    assert len(final(changes)) == 749
    sizes = [len(change.document) for change in changes if change.document is not None]
    assert (len(sizes), sum(sizes)) == (938, 248_488)  # 265 bytes each


def test_the_same_seed_gives_the_same_rows() -> None:
    assert list(Rows().mixed(50)) == list(Rows().mixed(50))
    assert Rows().table == TABLE
    assert Rows(small=True).table == SMALL


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(value) for value in range(1, 201)]
    assert (percentile(values, 50), percentile(values, 95), percentile([7.0], 95)) == (100.0, 190.0, 7.0)


def test_figures_replace_the_last_ones_and_what_is_written_by_hand_stays(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"# By hand\n{record._BEGIN}old\n{record._END}### apply\nAfter.\n")
    figure, other = (Figure(f"a {thing}", 1234.0, "changes/s", 2468.0, 0.5, "at least 0.5") for thing in "xy")
    record.write("A machine.", Scale(), {"apply": [other]}, page=page)
    record.write("Another.", Scale(rows=7), {"growth": [other]}, page=page)
    record.write("A third.", Scale(), {"apply": [figure]}, page=page)
    heading = "| what | ours | reference | ratio | aim |\n| --- | --: | --: | --: | --- |\n"
    row = "| a {} | 1,234 changes/s | 2,468 changes/s | 0.50 | at least 0.5 |\n"
    assert page.read_text() == (
        f"# By hand\n{record._BEGIN}"
        f"### apply\n\nA third. `--rows 500000 --pairs 2`.\n\n{heading}{row.format('x')}\n"
        f"### growth\n\nAnother. `--rows 7 --pairs 2`.\n\n{heading}{row.format('y')}\n"
        f"{record._END}### apply\nAfter.\n"
    )
