"""`status` and `wait`: where every follower stands."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table as Grid
from rich.text import Text

from driftless.cli import complete
from driftless.cli.base import NO, SYNC, UNREACHABLE, YES, File, Json, app, chosen, control_of, err, load, out, say
from driftless.config import Config
from driftless.control import State
from driftless.errors import ConfigError, SourceUnavailable
from driftless.kafka import Kafka
from driftless.lsn import parse_lsn
from driftless.status import SourceStatus, status

_CONNECT_SECONDS = 5.0
"""For so long, an answer of Connect's is waited for: who looks where followers stand must not wait for a worker that
sleeps."""


def _facts(config: Config) -> dict[str, Any]:
    """The facts of `status`. A source that cannot be reached leaves its own part empty and is told on stderr."""
    from connectors.catalogue import changes
    from connectors.postgres import Postgres
    from connectors.token import untrusted
    from connectors.watched import heed
    from driftless import names

    control = control_of(config)
    state = control.read()
    source = SourceStatus()
    try:
        with Postgres(config.source.dsn) as postgres:
            slot = postgres.slot(names.slot(config.name))
            state.take(heed(postgres, names.slot(config.name), state, watched=False))
            source = SourceStatus(
                postgres.lsn(),
                slot.name if slot else None,
                slot.lag_bytes if slot else None,
                postgres.clock(),
                dict(changes(config, postgres, state)),
                list(_source_troubles(config, control.kafka, postgres, state)),
                list(filter(None, [untrusted(postgres, config.name, state)])),
            )
    except SourceUnavailable as exc:
        say(str(exc))
    return status(config, state, source, control.now())


def _source_troubles(config: Config, kafka: Kafka, postgres: Any, state: State) -> Iterator[str]:
    from connectors.connect import Connect
    from connectors.guard import connector_failed, topic_troubles, troubles, unread
    from driftless import names

    connect = Connect(config.connect.url, patience=_CONNECT_SECONDS)
    yield from map(str, troubles(config, postgres, connect, state))
    yield from map(str, topic_troubles(config, kafka, state))
    try:
        found, cause = connect.state(names.connector(config.name))
    except SourceUnavailable as exc:
        yield str(exc)
        return
    if found == "FAILED":
        yield connector_failed(cause)
    elif found != "RUNNING":
        yield f"the connector is {found}"
    elif said := unread(config.name, postgres, kafka):
        yield said


@app.command(name="status")
def status_command(
    file: File = SYNC,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again every second, until Ctrl-C.")] = False,
) -> None:
    """Where the source and every follower stand. Exits 1 when one has failed, 3 when the source cannot be reached.

    Example: `driftless status --watch`

    For a program to read: `driftless status --json`
    """
    from rich.live import Live

    config = load(file)
    facts = _facts(config)
    if as_json:
        print(json.dumps(facts))
    elif watch:
        with Live(_shown(facts), console=out, auto_refresh=False) as live, suppress(KeyboardInterrupt):
            while True:
                time.sleep(1)
                facts = _facts(config)
                live.update(_shown(facts), refresh=True)
    else:
        out.print(_shown(facts), soft_wrap=True)
    if facts["source"]["lsn"] is None:
        raise typer.Exit(UNREACHABLE)
    failed = any(f["state"] == "failed" for f in (*facts["followers"], *facts["views"]))
    raise typer.Exit(NO if failed or facts["source"]["trouble"] else YES)


def _shown(facts: dict[str, Any]) -> Group:
    """The table, and below it what has changed at the source, and what followers wait for or ended with."""
    changed = facts["source"]["changed"].items()
    lines = [facts["source"]["trouble"]] if facts["source"]["trouble"] else []
    if before := facts["source"]["unwatched_lsn"]:
        lines.append(
            f"the connector began to read the slot again before {before}, and nobody watched: had something moved it, "
            "changes would be missing; `driftless verify` proves that none are"
        )
    lines += [f"{table} changed: {reason}; see `driftless plan`" for table, reason in changed]
    lines += facts["warnings"]
    lines += [_built(view) for view in facts["views"] if "trouble" in view]
    lines += [f"{follower['name']}: {follower['trouble']}" for follower in facts["followers"] if follower["trouble"]]
    return Group(_grid(facts), *map(Text, lines))


def _built(view: dict[str, Any]) -> str:
    """A view of several tables, which somebody builds."""
    at = f"build {view['generation']} at {view['frontier_lsn'] or '-'}"
    left = f"{view['lag_records'] or 0:,} records to read, {view['dirty'] or 0:,} documents to publish"
    left += f", {view['quarantined']:,} quarantined" if view["quarantined"] else ""
    trouble = f": {view['trouble']}" if view["trouble"] else ""
    return f"view {view['name']}: {view['state']}, {at}, {left}{trouble}"


def _grid(facts: dict[str, Any]) -> Grid:
    source = facts["source"]
    title = f"{facts['pipeline']}: source at {source['lsn'] or '(unreachable)'}, slot {source['slot'] or '(none)'}"
    if source["slot_lag_bytes"] is not None:
        title += f", {source['slot_lag_bytes'] / 1e6:.1f} MB behind"
    grid = Grid(title=title, title_justify="left", box=None, pad_edge=False)
    numbers = ("gen", "lag s", "lag records", "documents", "quarantined")
    for heading in ("follower", "view", "state", "gen", "applied", *numbers[1:], "proven"):
        grid.add_column(heading, justify="right" if heading in numbers else "left")
    for f in facts["followers"]:
        shown = (
            f["generation"],
            f["applied_lsn"],
            f["lag_seconds"],
            f["lag_records"],
            f["documents"],
            f["quarantined"],
            _age(f["proven_at"]),
        )
        grid.add_row(f["name"], f["view"], f["state"], *("-" if value is None else str(value) for value in shown))
        for g in f["generations"]:
            if g["n"] != f["generation"]:
                grid.add_row("", "", g["state"], str(g["n"]), g["applied_lsn"] or "-")
    return grid


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
    lsn: Annotated[str, typer.Option("--lsn", help="The position, as pg_current_wal_lsn() gives it.")],
    follower: Annotated[
        str | None, typer.Argument(help="The follower; all if none is named.", autocompletion=complete.followers)
    ] = None,
    file: File = SYNC,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait at the most.")] = 30.0,
    as_json: Json = False,
) -> None:
    """Return when everything up to a source position can be read: read your own writes. Exits 1 when time runs out.

    Example: `driftless wait --lsn 0/1A2B3C8 product-search --timeout 10`
    """
    from connectors.postgres import Postgres
    from connectors.token import emit_marker
    from driftless.wait import Positions

    config = load(file)
    try:
        target = parse_lsn(lsn)
    except ValueError as exc:
        raise ConfigError(f"--lsn: {exc}") from None
    followers = chosen(config, [follower] if follower else [])
    with Postgres(config.source.dsn) as source, Positions(control_of(config)) as positions:
        late = positions.wait(followers, target, timeout, lambda: emit_marker(source, config.name))
    if as_json:
        print(json.dumps({"lsn": lsn, "late": late}))
    elif late:
        err.print(f"not yet there after {timeout:g} s: {', '.join(late)}")
    raise typer.Exit(NO if late else YES)
