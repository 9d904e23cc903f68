"""`pause`, `resume` and `remove`: a follower as a whole; and `destroy`, of all that a pipeline has."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from cli.base import NO, SYNC, YES, File, Json, app, err, exit_code, out, say, told
from cli.fulfil import fulfil, opened
from cli.generations import Follower
from cli.output.planned import steps_told
from driftless.control.request import is_running
from driftless.control.topic import Control
from driftless.errors import SourceError, SyncError
from driftless.facts.state import State
from driftless.pipeline import control_of, load


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


@app.command()
def destroy(
    file: File = SYNC,
    as_json: Json = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Take away all that `apply` and `run` made: connector, slot, publication, triggers, topics, documents and rows.

    It shows all of it first, and asks. Tables of the source stay, and topics that events are read from. It names what
    it could not take away; run it again, and it resumes there.

    Example: `driftless destroy`

    In a script: `driftless destroy --yes`
    """
    from cli.removal.found import found

    config = load(file)
    control = control_of(config)
    existing = control.kafka.topics()
    state = _at_rest(control, existing)
    with found(config, control, state, existing) as parts:
        if as_json and not yes:
            print(json.dumps(_facts(parts, parts.unseen)))
            raise typer.Exit(NO if parts.actions or parts.unseen else YES)
        if not as_json:
            _show(parts)
        if parts.actions and not yes:
            _confirm(config.name)
            _at_rest(control, existing)
        failed = [*parts.unseen, *_failed(parts.documents)]
        for steps in parts.log:
            if broken := _failed(steps):
                failed += broken
                break
        failed += [] if failed else _failed(parts.last)
    if as_json:
        print(json.dumps(_facts(parts, failed)))
    elif not failed:
        out.print(f"nothing is left of the pipeline {config.name}{', but for what stays' if parts.left else ''}")
    if failed:
        say("some of it is left: put right what is said above, and run `driftless destroy` again")
    raise typer.Exit(max(map(exit_code, failed)) if failed else YES)


def _at_rest(control: Control, existing: set[str]) -> State:
    """The pipeline's state. Raises SourceError where somebody runs it."""
    if control.topic not in existing:
        return State({})
    state, now = control.read(), control.now()
    if going := sorted(name for name in state.by_prefix("lease") if is_running(state, name, now)):
        raise SourceError(
            f"{', '.join(going)}: somebody runs {'it' if len(going) == 1 else 'them'}",
            hint="stop every `driftless run` of this pipeline first, on all machines",
        )
    return state


def _show(parts: Any) -> None:
    for line in steps_told(parts.actions, whole=True):
        out.print(f"  {line}", soft_wrap=True)
    for what, why in parts.left:
        out.print(f"  stays: {what}: {why}", soft_wrap=True)
    for exc in parts.unseen:
        say(told(exc))


def _confirm(pipeline: str) -> None:
    try:
        given = typer.prompt(f"this cannot be undone: type {pipeline} to take all of it away", err=True)
    except typer.Abort:
        given = ""
        say("")  # what follows begins its own line
    if given != pipeline:
        say("nothing was taken away; `--yes` does it without a question")
        raise typer.Exit(NO)


def _failed(actions: list[Any]) -> list[SyncError]:
    """Do each, whatever becomes of the others; what failed."""
    failed = list[SyncError]()
    for action in actions:
        try:
            with err.doing() as report:
                report(str(action))
                action.do()
        except SyncError as exc:
            say(f"{action.what} stays: {told(exc)}")
            if action.sql is not None:
                say(f"  a DBA may run: {action.sql};")
            failed.append(exc)
    return failed


def _facts(parts: Any, failed: list[SyncError]) -> dict[str, Any]:
    return {
        "changes": [{"verb": a.verb, "what": a.what, "detail": a.detail, "sql": a.sql} for a in parts.actions],
        "left": [{"what": what, "why": why} for what, why in parts.left],
        "failed": [told(exc) for exc in failed],
    }
