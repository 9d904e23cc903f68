"""`pause`, `resume` and `remove`: a follower as a whole."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.base import SYNC, File, app, out
from cli.fulfil import fulfil, opened
from cli.generations import Follower


@app.command()
def pause(follower: Follower, file: File = SYNC) -> None:
    """Hold one follower where it stands; the others go on. It stays paused until `resume`, also over restarts.

    Example: `driftless pause product-cache`
    """
    _, control, _ = opened(file, follower)
    control.write({f"paused/{follower}": {}})
    out.print(f"{follower}: paused; `driftless resume {follower}` resumes it")


@app.command()
def resume(follower: Follower, file: File = SYNC) -> None:
    """Let a paused follower go on from where it stands.

    Example: `driftless resume product-cache`
    """
    _, control, state = opened(file, follower)
    if state.get(f"paused/{follower}") is None:
        out.print(f"{follower}: was not paused")
        return
    control.write({f"paused/{follower}": None})
    out.print(f"{follower}: resumed")


@app.command()
def remove(
    follower: Follower,
    file: File = SYNC,
    drop: Annotated[bool, typer.Option("--drop", help="Delete its documents from the store too.")] = False,
) -> None:
    """Stop a follower and forget it. Its documents stay in the store, as they are, unless you say --drop.

    Take it out of sync.yaml afterwards, or the next `apply` recreates it.

    Example: `driftless remove product-cache --drop`
    """
    config, control, _ = opened(file, follower)
    fulfil(config, control, follower, "remove", drop=drop)
    out.print(f"{follower}: removed{', and its documents' if drop else '; its documents stay in the store'}")
    out.print("take it out of sync.yaml, or the next `apply` recreates it")
