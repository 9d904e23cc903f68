"""Where a pipeline stands, as the terminal shows it: a table, and lines below it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.table import Table as Grid
from rich.text import Text

from cli.output.console import visible
from driftless.control.health import Problem, clock, lines

TREND = 30
"""Points of a sparkline, one a second."""
_BLOCKS = " ▁▂▃▄▅▆▇█"
_LEAST_SECONDS = 1.0
"""A lag that fills a sparkline at the least: below it nobody has to look."""
_STYLES = {
    "live": "green",
    "failed": "bold red",
    "stopped": "red",
    **dict.fromkeys(("bootstrapping", "rebuilding", "promoting", "paused"), "yellow"),
}


@dataclass(frozen=True)
class Trend:
    """Of a follower that is watched. `rate`: writes a second. `lags`: seconds, oldest first, NaN for unknown ones."""

    rate: float | None
    lags: Sequence[float]


def sparkline(lags: Sequence[float]) -> str:
    """A block for each lag, the greatest one the highest; a blank where nothing is known."""
    most = max([_LEAST_SECONDS, *(lag for lag in lags if not math.isnan(lag))])
    return "".join(" " if math.isnan(lag) else _BLOCKS[max(1, round(8 * lag / most))] for lag in lags)


def shown(facts: Mapping[str, Any], width: int, trends: Mapping[str, Trend] | None = None) -> Group:
    """The table, and below it how far views are, and what is wrong. `trends`: of each follower, where it is watched."""
    told = [_built(view) for view in facts["views"] if "trouble" in view]
    told += [_computed(stream) for stream in facts["streams"]]
    if before := facts["source"]["unwatched_lsn"]:
        told.append(
            f"The connector reconnected to its replication slot before {before} while no `driftless run` was watching. "
            "If the slot was advanced in between, changes are missing. Run `driftless verify` to check."
        )
    told += facts["warnings"]
    told += lines(Problem.from_json(p) for p in facts["problems"])
    return Group(grid(facts, width, trends or {}), *told)


def _built(view: Mapping[str, Any]) -> str:
    """A view of several tables, which somebody builds."""
    at = f"build {view['generation']} at {view['frontier_lsn'] or '-'}"
    left = f"{view['lag_records'] or 0:,} records to read, {view['dirty'] or 0:,} documents to publish"
    left += f", {view['quarantined']:,} quarantined" if view["quarantined"] else ""
    return f"view {view['name']}: {view['state']}, {at}, {left}"


def _computed(stream: Mapping[str, Any]) -> str:
    """A stream, which somebody computes."""
    closed = "-" if stream["closed_to"] is None else clock(stream["closed_to"])
    left = f"{stream['lag_records'] or 0:,} events to read, {stream['state_rows']:,} groups open"
    reasons = ("late", "too_late", "corrected", "invalid", "changed", "deleted", "dropped", "skipped")
    counts = [(stream[why], why) for why in reasons if stream[why]]
    left += "".join(f", {count:,} {why.replace('_', ' ')}" for count, why in counts)
    left += "".join(f", {column} ± {100 * error:g} %" for column, error in stream["approximate"].items())
    build = stream["generation"] or "-"
    return f"stream {stream['name']}: {stream['state']}, build {build}, closed to {closed}, {left}"


_NUMBERS = ("gen", "lag s", "lag records", "documents", "quarantined", "writes/s")
_LESS_NEEDED = (
    *("proven", "view", "applied", "lag records", "quarantined", "documents"),
    *("lag, 30 s", "writes/s"),
)
"""`status` leaves out these columns, in this order, if the terminal is too narrow. It never cuts a name: the
longest name of a follower fits in 80 columns. It also reports the quarantine below the table.
"""


def grid(facts: Mapping[str, Any], width: int, trends: Mapping[str, Trend]) -> Grid:
    """A line for each follower, and for each generation that readers do not see."""
    source = facts["source"]
    title = f"{facts['pipeline']}: source at {source['lsn'] or '(unreachable)'}, slot {source['slot'] or '(none)'}"
    if source["slot_lag_bytes"] is not None:
        title += f", {source['slot_lag_bytes'] / 1e6:,.1f} MB behind"
    headings = ["follower", "view", "state", "gen", "applied", "lag s", "lag records", "documents", "quarantined"]
    headings += [*(("writes/s", "lag, 30 s") if trends else ()), "proven"]
    rows = [row for follower in facts["followers"] for row in _rows(follower, trends.get(follower["name"]))]

    def needed() -> int:
        return sum(max(len(row.get(h, "")) for row in ({h: h}, *rows)) + 2 for h in headings) - 2

    for heading in _LESS_NEEDED:
        if heading in headings and needed() > width:
            headings.remove(heading)
    wide = max(needed(), len(title)) if needed() > width else None
    found = Grid(title=title, title_justify="left", box=None, pad_edge=False, width=wide)
    for heading in headings:
        found.add_column(heading, justify="right" if heading in _NUMBERS else "left", no_wrap=True, overflow="ignore")
    for row in rows:
        cells = {heading: Text(visible(row.get(heading, ""))) for heading in headings}
        cells["state"].stylize(_STYLES.get(row["state"], ""))
        found.add_row(*cells.values())
    return found


def _rows(follower: Mapping[str, Any], trend: Trend | None) -> Iterator[dict[str, str]]:
    """A follower, and below it the generations that readers do not see."""
    f = follower
    yield {
        "follower": f["name"],
        "view": f["view"],
        "state": f["state"],
        "gen": _cell(f["generation"]),
        "applied": _cell(f["applied_lsn"]),
        "lag s": _cell(f["lag_seconds"]),
        "lag records": _cell(f["lag_records"]),
        "documents": _cell(f["documents"]),
        "quarantined": _cell(f["quarantined"]),
        "proven": _cell(_age(f["proven_at"])),
        **({"writes/s": _cell(trend.rate), "lag, 30 s": sparkline(trend.lags)} if trend else {}),
    }
    for g in f["generations"]:
        if g["n"] != f["generation"]:
            yield {"state": g["state"], "gen": _cell(g["n"]), "applied": _cell(g["applied_lsn"])}


def _cell(value: object) -> str:
    """As `verify` writes it: thousands apart, seconds to a tenth."""
    if isinstance(value, float):
        return f"{value:,.1f}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _age(at: float | None) -> str | None:
    """How long ago that was, in one word."""
    if at is None:
        return None
    seconds = max(0.0, time.time() - at)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"
