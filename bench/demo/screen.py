"""What the demo shows: on a terminal, places that are written over; elsewhere, plain lines."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

_LINE_SECONDS = 4.0


class Screen:
    """Says what happens, with the time since the beginning."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._begun = time.monotonic()
        self._steps = 0

    @property
    def watched(self) -> bool:
        """Whether a person watches, to whom the same place can be shown again and again."""
        return self._console.is_terminal

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._begun

    def step(self, title: str) -> None:
        """Begin a new part."""
        self._steps += 1
        self._console.print(f"\n[bold cyan]{self._steps}. {title}[/]  [dim]{clock(self.seconds)}[/]")

    def say(self, text: str, style: str = "") -> None:
        """A line, or several, set in under the step's title. Long ones are not broken, so that they can be copied."""
        for line in text.splitlines() or [""]:
            self._console.print(Text(f"   {line}".rstrip(), style))

    def quote(self, text: str) -> None:
        """What a command printed; on a terminal no line is longer than it is wide."""
        for line in text.splitlines():
            shown = Text(f"     {line}", "dim")
            if self.watched:
                shown.truncate(self._console.width, overflow="ellipsis")
            self._console.print(shown)

    @contextmanager
    def board(self, every: float = _LINE_SECONDS) -> Iterator[Board]:
        """A place for facts that change. Without a terminal they are written at most once in `every` seconds."""
        if not self.watched:
            yield Board(self, None, every)
            return
        with Live(console=self._console, auto_refresh=False, vertical_overflow="visible") as live:
            yield Board(self, live, every)


class Board:
    """See `Screen.board`."""

    def __init__(self, screen: Screen, live: Live | None, every: float) -> None:
        self._screen = screen
        self._live = live
        self._every = every
        self._due = 0.0
        self._last: list[str] = []

    def show(self, lines: Sequence[str], *, last: bool = False) -> None:
        """Show these instead of what was shown before. `last`: it stays, so it is written in any case."""
        lines = list(lines)
        if self._live is not None:
            width = self._screen._console.width
            self._live.update(Text("\n".join(f"   {line}"[:width] for line in lines)), refresh=True)
        elif (last or time.monotonic() >= self._due) and lines != self._last:
            self._due, self._last = time.monotonic() + self._every, lines
            for line in lines:
                self._screen.say(line)


def clock(seconds: float) -> str:
    """`3:05`"""
    return "{}:{:02}".format(*divmod(int(seconds), 60))


def columns(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Rows of cells as lines, each column as wide as it must be. `right`: columns that stand to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


class Meter:
    """How fast something goes, and how long it still takes. The clock runs from the first that is seen of it."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self.total = total
        self._since: tuple[float, int] | None = None
        self._rate = 0.0

    def line(self, done: int, *, bar: bool) -> str:
        """`products   44,026 of 100,000   8,412/s   7 s left`"""
        now = time.monotonic()
        if self._since is None and done:
            self._since = now, done
        begun, first = self._since or (now, done)
        if done < self.total or not self._rate:
            self._rate = (done - first) / (now - begun) if now > begun else 0.0
        parts = [f"{self._what:<14}", f"{done:>8,} of {self.total:<8,}"]
        if bar:
            filled = round(20 * min(1.0, done / self.total)) if self.total else 20
            parts.insert(1, "█" * filled + "░" * (20 - filled))
        if self._rate > 0:
            parts.append(f"{self._rate:7,.0f}/s")
            if done < self.total:
                parts.append(f"{(self.total - done) / self._rate:4.0f} s left")
        return "  ".join(parts).rstrip()
