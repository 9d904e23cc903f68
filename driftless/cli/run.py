"""`run`: follow until told to stop."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Annotated

import typer

from driftless.cli.base import SYNC, File, app, chosen, err, load, reach
from driftless.config import Config
from driftless.errors import SourceError


@app.command()
def run(
    names: Annotated[list[str] | None, typer.Argument(help="Followers to run; all if none is named.")] = None,
    file: File = SYNC,
    until_caught_up: Annotated[bool, typer.Option("--until-caught-up", help="End when all is applied.")] = False,
    memory: Annotated[str, typer.Option("--memory", help="Heap of the Spark driver.")] = "1g",
) -> None:
    """Follow until stopped with Ctrl-C or SIGTERM. Several processes may share the followers between them."""
    from driftless.progress import show
    from jobs.runner import Runner
    from jobs.spark import submitted
    from stack import fetch

    config = load(file)
    followers = chosen(config, names or [])
    say: Callable[[str], None] = lambda line: err.print(line, markup=False, soft_wrap=True)  # noqa: E731
    until_lsn = _position_to_reach(config, say) if until_caught_up else None
    jars = [] if submitted() else fetch(["spark"], say)["spark"]
    runner = Runner(config, followers, jars, memory=memory)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: runner.stop.set())
    with show(runner.progress, err):
        runner.run(until_lsn=until_lsn, until_caught_up=until_caught_up, report=say)


def _position_to_reach(config: Config, say: Callable[[str], None]) -> int | None:
    """A marker written now, when source and connector work: all that is committed comes before it."""
    from driftless import names

    try:
        with reach(config) as places:
            state, _ = places.connect.state(names.connector(config.name))
            if state == "RUNNING":
                lsn: int = places.source.emit_marker()
                return lsn
            say(f"the connector is {state}: following to the log's end as it is")
    except SourceError as exc:
        say(f"{exc}: following to the log's end as it is")
    return None
