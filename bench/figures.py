"""What a claim gives: figures with their ratios, as a table for the terminal and for docs/benchmarks.md."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.table import Table as Grid

from stack import Stack

Report = Callable[[str], None]
HEADINGS = ("what", "ours", "reference", "ratio", "aim")


@dataclass(frozen=True)
class Scale:
    """How much a claim does. Every count follows `rows`, so that a tiny run does the same things as a full one."""

    rows: int = 500_000
    pairs: int = 2
    warm_up: int = 300
    changes: int = 200


@dataclass(frozen=True)
class Figure:
    """One measured thing. `ratio`: ours to the reference, as the aim reads it."""

    name: str
    ours: float
    unit: str
    reference: float
    ratio: float
    aim: str = ""

    def cells(self) -> tuple[str, ...]:
        return (
            self.name,
            f"{_number(self.ours)} {self.unit}",
            f"{_number(self.reference)} {self.unit}",
            f"{self.ratio:.2f}",
            self.aim,
        )


class Claim(Protocol):
    """A module of this folder that measures one claim."""

    def run(self, stack: Stack, scale: Scale, report: Report) -> list[Figure]:
        """Measure, and leave nothing behind on the stack. Raises AssertionError where documents or counts differ."""


def grid(title: str, figures: Sequence[Figure]) -> Grid:
    table = Grid(title=title, title_justify="left", box=None, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in ("what", "aim") else "right")
    for figure in figures:
        table.add_row(*figure.cells())
    return table


def markdown(figures: Sequence[Figure]) -> str:
    lines = [HEADINGS, ("---", "--:", "--:", "--:", "---"), *(figure.cells() for figure in figures)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that so many percent are at or below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, -(-len(ordered) * percent // 100) - 1)]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
