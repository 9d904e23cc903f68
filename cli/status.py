"""`status` and `wait`: where every follower stands."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Group
from rich.table import Table as Grid

from cli import complete
from cli.base import NO, SYNC, UNREACHABLE, YES, File, Json, app, moment_of, out, say
from driftless.config.models import Config
from driftless.control.health import Problem, clock, lines
from driftless.control.topic import Control
from driftless.control.wait import START_SECONDS
from driftless.errors import ConfigError
from driftless.lsn import format_lsn, parse_lsn
from driftless.pipeline import chosen, control_of, load
from driftless.suggest import did_you_mean


@app.command(name="status")
def status_command(
    file: File = SYNC,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again every second, until Ctrl-C.")] = False,
) -> None:
    """Where the source and every follower stand, and what is wrong. Exits 0 when all is well.

    Exits 1 when anything is wrong: a follower that has failed, waits, stands still, holds documents in quarantine, or
    that nobody runs; a view or the connector likewise; a table that has changed. One that is paused, or being built,
    is well. Exits 3 when a server cannot be reached.

    Example: `driftless status --watch`

    For a program to read: `driftless status --json`
    """
    from serve.facts.standing import facts_of

    config = load(file)
    control = control_of(config)
    facts = facts_of(config, control)
    if as_json:
        print(json.dumps(facts))
    elif watch:
        with suppress(KeyboardInterrupt):
            _watch(config, control, facts)
        raise typer.Exit(YES)  # whoever watches has seen it, and has ended it
    else:
        out.print(_shown(facts), soft_wrap=True)
    raise typer.Exit(UNREACHABLE if facts["unreachable"] else NO if facts["problems"] else YES)


def _watch(config: Config, control: Control, facts: dict[str, Any]) -> NoReturn:
    """Show the newest facts until Ctrl-C. In a file, a new block stands only where a state or a problem is another."""
    from rich.live import Live

    from serve.facts.standing import facts_of

    if out.is_terminal:
        with Live(_shown(facts), console=out, auto_refresh=False) as live:
            while True:
                time.sleep(1)
                live.update(_shown(facts_of(config, control)), refresh=True)
    told: object = None
    while True:
        every = (*facts["followers"], *facts["views"], *facts["streams"])
        states = [(one["name"], one["state"], one["generation"]) for one in every]
        problems = [(p["who"], p["what"]) for p in facts["problems"]]
        if told != (states, problems):
            told = (states, problems)
            out.print(_shown(facts), soft_wrap=True)
        time.sleep(1)
        facts = facts_of(config, control)


def _shown(facts: dict[str, Any]) -> Group:
    """The table, and below it how far views are, and what is wrong."""
    told = [_built(view) for view in facts["views"] if "trouble" in view]
    told += [_computed(stream) for stream in facts["streams"]]
    if before := facts["source"]["unwatched_lsn"]:
        told.append(
            f"The connector reconnected to its replication slot before {before} while no `driftless run` was watching. "
            "If the slot was advanced in between, changes are missing. Run `driftless verify` to check."
        )
    told += facts["warnings"]
    told += lines(Problem.from_json(p) for p in facts["problems"])
    return Group(_grid(facts, out.width), *told)


def _built(view: dict[str, Any]) -> str:
    """A view of several tables, which somebody builds."""
    at = f"build {view['generation']} at {view['frontier_lsn'] or '-'}"
    left = f"{view['lag_records'] or 0:,} records to read, {view['dirty'] or 0:,} documents to publish"
    left += f", {view['quarantined']:,} quarantined" if view["quarantined"] else ""
    return f"view {view['name']}: {view['state']}, {at}, {left}"


def _computed(stream: dict[str, Any]) -> str:
    """A stream, which somebody computes."""
    closed = "-" if stream["closed_to"] is None else clock(stream["closed_to"])
    left = f"{stream['lag_records'] or 0:,} events to read, {stream['state_rows']:,} groups open"
    reasons = ("late", "too_late", "corrected", "invalid", "changed", "deleted", "dropped", "skipped")
    counts = [(stream[why], why) for why in reasons if stream[why]]
    left += "".join(f", {count:,} {why.replace('_', ' ')}" for count, why in counts)
    left += "".join(f", {column} ± {100 * error:g} %" for column, error in stream["approximate"].items())
    build = stream["generation"] or "-"
    return f"stream {stream['name']}: {stream['state']}, build {build}, closed to {closed}, {left}"


_NUMBERS = ("gen", "lag s", "lag records", "documents", "quarantined")
_LESS_NEEDED = ("proven", "view", "applied", "lag records", "quarantined", "documents")
"""`status` leaves out these columns, in this order, if the terminal is too narrow. It never cuts a name: the
longest name of a follower fits in 80 columns. It also reports the quarantine below the table.
"""


def _grid(facts: dict[str, Any], width: int) -> Grid:
    source = facts["source"]
    title = f"{facts['pipeline']}: source at {source['lsn'] or '(unreachable)'}, slot {source['slot'] or '(none)'}"
    if source["slot_lag_bytes"] is not None:
        title += f", {source['slot_lag_bytes'] / 1e6:,.1f} MB behind"
    headings = ["follower", "view", "state", "gen", "applied", "lag s", "lag records", "documents", "quarantined"]
    headings.append("proven")
    rows = [row for follower in facts["followers"] for row in _rows(follower)]

    def needed() -> int:
        return sum(max(len(row.get(h, "")) for row in ({h: h}, *rows)) + 2 for h in headings) - 2

    for heading in _LESS_NEEDED:
        if needed() > width:
            headings.remove(heading)
    wide = max(needed(), len(title)) if needed() > width else None
    grid = Grid(title=title, title_justify="left", box=None, pad_edge=False, width=wide)
    for heading in headings:
        grid.add_column(heading, justify="right" if heading in _NUMBERS else "left", no_wrap=True, overflow="ignore")
    for row in rows:
        grid.add_row(*(row.get(heading, "") for heading in headings))
    return grid


def _rows(follower: dict[str, Any]) -> Iterator[dict[str, str]]:
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


@app.command()
def wait(
    follower: Annotated[
        str | None,
        typer.Argument(
            help="The follower, or with --closed the stream; all if none is named.", autocompletion=complete.followers
        ),
    ] = None,
    lsn: Annotated[
        str | None,
        typer.Option(
            "--lsn", help="The position, as pg_current_wal_lsn() gives it; all that is committed now if left out."
        ),
    ] = None,
    file: File = SYNC,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait at the most.")] = 30.0,
    closed: Annotated[
        str | None,
        typer.Option(
            "--closed",
            metavar="TIME",
            help="A time such as 2026-03-01T12:00Z: return when all windows of a stream up to it are published.",
        ),
    ] = None,
    start: Annotated[
        float, typer.Option("--start", help="Seconds that a run may take to start, of a follower that nobody runs.")
    ] = START_SECONDS,
    as_json: Json = False,
) -> None:
    """Return when everything up to a source position can be read: read your own writes. Exits 1 when time runs out.

    Exits 1 at once where a follower has failed, is paused, or its log is not whole; after --start where nobody runs it.

    Example: `driftless wait --lsn 0/1A2B3C8 product-search --timeout 10`

    All that is committed now, in every follower: `driftless wait`

    The windows of a stream that end at or before a moment: `driftless wait --closed 2026-03-01T12:00Z page_minute`
    """
    if closed is not None:
        _wait_closed(load(file), closed, follower, timeout, as_json=as_json)
    from connectors.pipeline.guard import inherited
    from connectors.pipeline.token import emit_marker
    from connectors.postgres.client import Postgres
    from driftless.control.wait import Positions

    config = load(file)
    try:
        target = None if lsn is None else parse_lsn(lsn)
    except ValueError as exc:
        raise ConfigError(f"--lsn: {exc}", hint="`select pg_current_wal_lsn()` gives one") from None
    followers = chosen(config, [follower] if follower else [])
    with Postgres(config.source.dsn) as source, Positions(control_of(config)) as positions:
        wanted = source.lsn() if target is None else target
        marker = partial(emit_marker, source, config.name)
        late = positions.wait(followers, wanted, timeout, marker, start=start, report=say)
        why = positions.hopeless
        if not late and (missing := next(inherited(config, source), None)) is not None:
            late, why = followers, dict.fromkeys(followers, f"{missing.what}; {missing.hint}")
    if as_json:
        reasons = {name: why.get(name, f"not yet there after {timeout:g} s") for name in late}
        print(json.dumps({"lsn": format_lsn(wanted), "late": late, "why": reasons}))
    elif late:
        for name, reason in why.items():
            say(f"{name}: {reason}")
        if slow := [name for name in late if name not in why]:
            say(f"not yet there after {timeout:g} s: {', '.join(slow)}")
    raise typer.Exit(NO if late else YES)


def _wait_closed(config: Config, closed: str, stream: str | None, timeout: float, *, as_json: bool) -> NoReturn:
    """`wait --closed`: of one stream, or of all."""
    from driftless.control.wait_closed import closed_late

    if not config.streams:
        raise ConfigError("--closed: there are no streams in sync.yaml", hint="`driftless wait` waits for followers")
    if stream is not None and stream not in config.streams:
        raise ConfigError(
            f"there is no stream `{stream}`{did_you_mean(stream, config.streams)}", hint="name a stream of sync.yaml"
        )
    moment = moment_of("--closed", closed)
    late, why = closed_late(control_of(config), [stream] if stream else [*config.streams], moment, timeout)
    reasons = {name: why.get(name, f"not yet there after {timeout:g} s") for name in late}
    if as_json:
        print(json.dumps({"closed": closed, "late": late, "why": reasons}))
    else:
        for name in late:
            say(f"{name}: {reasons[name]}")
    raise typer.Exit(NO if late else YES)
