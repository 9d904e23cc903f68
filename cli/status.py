"""`status` and `wait`: where every follower stands."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, NoReturn

import typer

from cli import complete
from cli.base import NO, SYNC, UNREACHABLE, YES, File, Json, app, moment_of, out, say
from cli.output.standing import TREND, Trend, shown
from driftless.config.models import Config
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
        out.print(shown(facts, out.width), soft_wrap=True)
    raise typer.Exit(UNREACHABLE if facts["unreachable"] else NO if facts["problems"] else YES)


def _watch(config: Config, control: Control, facts: dict[str, Any]) -> NoReturn:
    """Show the newest facts until Ctrl-C. In a file, a new block stands only where a state or a problem is another."""
    from serve.facts.standing import facts_of

    if out.is_terminal:
        _watch_on_screen(config, control, facts)
    told: object = None
    while True:
        every = (*facts["followers"], *facts["views"], *facts["streams"])
        states = [(one["name"], one["state"], one["generation"]) for one in every]
        problems = [(p["who"], p["what"]) for p in facts["problems"]]
        if told != (states, problems):
            told = (states, problems)
            out.print(shown(facts, out.width), soft_wrap=True)
        time.sleep(1)
        facts = facts_of(config, control)


def _watch_on_screen(config: Config, control: Control, facts: dict[str, Any]) -> NoReturn:
    """What runs tell is a second old at the most; the source is asked every ten seconds."""
    from rich.live import Live

    from serve.facts.collector import Collector

    collector = Collector(config, control, step=1.0)
    history = collector.history
    collector.start()
    with Live(shown(facts, out.width), console=out, auto_refresh=False) as live:
        while True:
            time.sleep(1)
            snapshot = collector.look()
            if collector.ready.is_set():
                trends = {name: Trend(history.rate(name), history.lags(name, TREND)) for name in config.followers}
                live.update(shown(snapshot.facts, out.width, trends), refresh=True)


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
