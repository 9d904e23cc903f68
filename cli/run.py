"""`run`: follow until told to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from cli import complete
from cli.base import SYNC, File, app, err, interrupt, reach, say
from cli.watch import SourceWatch
from driftless.config.models import Config
from driftless.errors import ConfigError, SourceError
from driftless.metrics.figures import work_figures
from driftless.pipeline import load
from driftless.suggest import did_you_mean


@app.command()
def run(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Followers, views and streams to run; all if none is named.",
            autocompletion=complete.runnables,
        ),
    ] = None,
    file: File = SYNC,
    until_caught_up: Annotated[bool, typer.Option("--until-caught-up", help="End when all is applied.")] = False,
    memory: Annotated[str, typer.Option("--memory", help="Heap of the Spark driver.")] = "1g",
    checkpoints: Annotated[
        Path | None,
        typer.Option("--checkpoints", help="Where streams keep their state on a cluster: a folder of all machines."),
    ] = None,
    metrics: Annotated[
        int | None,
        typer.Option("--metrics", min=0, max=65535, metavar="PORT", help="Serve this process's figures there."),
    ] = None,
) -> None:
    """Follow until stopped with Ctrl-C or SIGTERM. Several processes may share the followers between them.

    Example: `driftless run`

    A view of several tables, or one shard of it, without its followers: `driftless run order`, `driftless run order/2`

    A stream without its followers: `driftless run page_minute`

    One follower in a process of its own: `driftless run product-search --memory 2g`

    Build all and end: `driftless run --until-caught-up`

    Figures of this process alone, for a Prometheus on this machine: `driftless run --metrics 8481`
    """
    try:
        config = load(file)
        followers, views, streams = runnable(config, names or [])
        until_lsn = _position_to_reach(config) if until_caught_up else None
        run_here(
            config,
            followers,
            views=views,
            streams=streams,
            memory=memory,
            checkpoints=None if checkpoints is None else checkpoints.absolute(),
            metrics=metrics,
            until_lsn=until_lsn,
            until_caught_up=until_caught_up,
        )
    except KeyboardInterrupt:
        if until_caught_up:
            raise


def runnable(config: Config, given: list[str]) -> tuple[list[str], list[tuple[str, int]], list[str]]:
    """The followers, the shards of views of several tables, and the streams that are named; all if nothing is."""
    shards = {name: range(view.shards) for name, view in config.views.items() if view.joined}
    if not given:
        every = [(name, shard) for name, all_ in shards.items() for shard in all_]
        return list(config.followers), every, list(config.streams)
    views = []
    for name in given:
        view, _, shard = name.partition("/")
        if view in shards and not shard:
            views += [(view, n) for n in shards[view]]
        elif view in shards and shard.isdecimal() and int(shard) in shards[view]:
            views.append((view, int(shard)))
        elif view in shards:
            raise ConfigError(
                f"the view `{view}` has no shard `{shard}`",
                hint=f"its shards are 0 to {len(shards[view]) - 1}: `driftless run {view}/0` builds the first",
            )
        elif name in config.views and name not in config.followers:
            raise ConfigError(
                f"the view `{name}` is of one table: its followers read the table's log, and nothing builds it",
                hint="name its followers instead",
            )
        elif name not in config.followers and name not in config.streams:
            known = did_you_mean(name, [*config.followers, *shards, *config.streams])
            raise ConfigError(
                f"there is no follower or view of several tables `{name}`{known}",
                hint="name followers or views of sync.yaml, or none to run all; -f names another file",
            )
    streams = [name for name in given if name in config.streams]
    return [name for name in given if name in config.followers], views, streams


def run_here(
    config: Config,
    followers: list[str],
    *,
    views: Sequence[tuple[str, int]] = (),
    streams: Sequence[str] = (),
    memory: str = "1g",
    checkpoints: Path | None = None,
    metrics: int | None = None,
    **until: Any,
) -> bool:
    """Run followers, build views and compute streams here, until a signal or as `Runner.run` has it.

    Returns whether it was a signal. Raises KeyboardInterrupt where the signal comes before anything is followed.
    """
    from cli.output.progress import show
    from jobs.runner import Runner
    from stack import stack_home

    rows = stack_home() / "rows"
    runner = Runner(
        config,
        followers,
        spark_jars(),
        views=views,
        streams=streams,
        rows=rows,
        checkpoints=checkpoints,
        memory=memory,
    )
    if metrics is not None:
        from serve.http.exposition import expose_process

        port = expose_process(config.name, metrics, lambda: work_figures(runner.facts()))
        say(f"metrics of this process on http://127.0.0.1:{port}/metrics")
    interrupted = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        if not runner.end():
            interrupt(number, frame)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    watch = SourceWatch(config, runner.halt)
    watch.look()
    watch.start()
    try:
        with show(runner.progress, err):
            runner.run(report=say, **until)
    finally:
        watch.stop()
    return interrupted.is_set()


def spark_jars() -> Sequence[Path]:
    """What Spark needs beside the Python package; spark-submit has been told of it already."""
    from jobs.spark.session import submitted
    from stack import fetch

    return [] if submitted() else fetch(["spark"], say)["spark"]


def _position_to_reach(config: Config) -> int | None:
    """A marker written now, when source and connector work: all that is committed comes before it."""
    from connectors.pipeline.token import emit_marker
    from driftless import names

    try:
        with reach(config) as places:
            state, _ = places.connect.state(names.connector(config.name))
            if state == "RUNNING":
                lsn: int = emit_marker(places.source, config.name)
                return lsn
            say(f"the connector is {state}: following to the log's end as it is")
    except SourceError as exc:
        say(f"{exc}: following to the log's end as it is")
    return None
