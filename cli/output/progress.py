"""Show a bootstrap: a bar with rate and time left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn

from driftless.counted import counted

LINE_SECONDS = 5.0
MOST_LINES = 8
"""Where more are under way at once, one line tells of all."""
_UNDER_WAY = ("bootstrapping", "reading")
"""States that take long enough to be watched."""


class FollowerProgress(Protocol):
    """Where a follower stands, as far as it is shown."""

    @property
    def follower(self) -> str: ...

    @property
    def state(self) -> str: ...

    @property
    def positions(self) -> Mapping[Any, int]: ...

    @property
    def done(self) -> int: ...

    @property
    def total(self) -> int: ...


@contextmanager
def show(standings: Sequence[FollowerProgress], console: Console) -> Iterator[None]:
    """Show these until the block ends. The list may fill up meanwhile."""
    ended = threading.Event()
    target = _bars if console.is_terminal else _lines
    thread = threading.Thread(target=target, args=(standings, console, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(2.0)


def _bars(standings: Sequence[FollowerProgress], console: Console, ended: threading.Event) -> None:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.fields[name]:<20}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:>9,.0f} of {task.total:,.0f}", markup=False),
        TextColumn("{task.fields[rate]:>9}", markup=False),
        TimeRemainingColumn(),
    )
    states: dict[str, str] = {}
    with Progress(*columns, console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}
        meters: dict[str, Meter] = {}
        while not ended.wait(0.2):
            for s in standings:
                if s.state in _UNDER_WAY and s.positions:
                    meter = meters.setdefault(s.follower, Meter())
                    done, total, rate = s.done, max(s.total, s.done), f"{meter.rate(s.done):,.0f}/s"
                    if s.follower not in tasks:
                        tasks[s.follower] = bars.add_task("", name=s.follower, rate=rate, total=total, completed=done)
                    bars.update(tasks[s.follower], completed=done, total=total, rate=rate)
                elif s.follower in tasks:
                    bars.remove_task(tasks.pop(s.follower))
                _say_change(states, s, console)


def _lines(standings: Sequence[FollowerProgress], console: Console, ended: threading.Event) -> None:
    states: dict[str, str] = {}
    meters: dict[str, Meter] = {}
    due = time.monotonic() + LINE_SECONDS
    while not ended.wait(0.2):
        for s in standings:
            _say_change(states, s, console)
        if time.monotonic() < due:
            continue
        due = time.monotonic() + LINE_SECONDS
        under_way = [s for s in standings if s.state in _UNDER_WAY and s.positions and s.total]
        if len(under_way) > MOST_LINES:
            done, total = sum(s.done for s in under_way), sum(s.total for s in under_way)
            console.print(f"{len(under_way)} under way: {done:,} of {total:,} records", soft_wrap=True)
            continue
        for s in under_way:
            rate = meters.setdefault(s.follower, Meter()).rate(s.done)
            left = f", {max(0, s.total - s.done) / rate:,.0f} s left" if rate > 0 else ""
            line = f"{s.follower}: {s.done:,} of {max(s.total, s.done):,}, {rate:,.0f}/s{left}"
            console.print(line, soft_wrap=True)


def _say_change(states: dict[str, str], s: FollowerProgress, console: Console) -> None:
    if states.get(s.follower) != s.state and s.positions:
        states[s.follower] = s.state
        console.print(f"{s.follower}: {s.state}{_how_far(s.done, s.total)}", soft_wrap=True)


def _how_far(done: int, total: int) -> str:
    """What is read may be known before it is known how much there is."""
    if done == 0 and total == 0:
        return ""
    return f" at {done:,} of {total:,} records" if done <= total else f" at {counted(done, 'record')}"


class Meter:
    """Records a second over the last half minute."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []

    def rate(self, done: int) -> float:
        now = time.monotonic()
        self._seen = [(t, n) for t, n in self._seen if t > now - 30] + [(now, done)]
        (t0, n0), (t1, n1) = self._seen[0], self._seen[-1]
        return (n1 - n0) / (t1 - t0) if t1 > t0 else 0.0
