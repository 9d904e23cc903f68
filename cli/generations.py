"""`rebuild`, `promote` and `replay`: a follower's generations."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated

import typer

from cli import complete
from cli.base import NO, SYNC, File, Json, app, no_generation, out
from cli.fulfil import fulfil, granted, have_done, opened
from driftless.control.rebuild import fact_of_table, rebuild_stream, wanted_generation
from driftless.control.request import Request, answered, ask
from driftless.control.topic import Control
from driftless.errors import ConfigError, SinkError
from driftless.facts.epochs import TopicLog
from driftless.facts.generation import (
    generations,
)
from driftless.facts.state import State
from driftless.facts.streams import newest_stream_build
from driftless.kafka.client import Offsets
from driftless.pipeline import control_of, load

Follower = Annotated[
    str, typer.Argument(help="The follower's name in sync.yaml.", metavar="FOLLOWER", autocompletion=complete.followers)
]


@app.command()
def rebuild(
    follower: Annotated[
        str,
        typer.Argument(
            help="The follower's name in sync.yaml, or a stream's.", metavar="NAME", autocompletion=complete.compared
        ),
    ],
    file: File = SYNC,
    no_promote: Annotated[
        bool, typer.Option("--no-promote", help="Build it, and leave readers where they are.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Build a new generation from the log beside the live one, check it, and switch readers to it.

    The live one stays fresh meanwhile, and goes on following for as long as `keep` says: `promote` goes back to it.
    Asked again while one is being built, it waits for that one.

    Example: `driftless rebuild product-search`

    Without switching readers: `driftless rebuild product-search --no-promote`

    A stream, from the first event that there is, and then its followers: `driftless rebuild page_minute`
    """
    if (loaded := load(file)) and follower in loaded.streams and follower not in loaded.followers:
        number = rebuild_stream(loaded, control_of(loaded), follower)
        if as_json:
            print(json.dumps({"stream": follower, "build": number}))
        else:
            out.print(f"{follower}: build {number} is begun; `driftless status` shows how far it is")
        return
    config, control, state = opened(file, follower)
    wanted = wanted_generation(config, state, follower, auto_promote=not no_promote)
    request = ask(control, follower, "rebuild", generation=wanted.to_json())
    state = have_done(config, control, follower, lambda state: _is_over(state, request), request)
    number = int(granted(state, request)["generation"])
    found, fact = generations(state, follower).get(number), state.get(f"follower/{follower}/{number}") or {}
    promoted = found is not None and found.promoted_at is not None
    if not (promoted or (no_promote and found is not None and fact.get("built"))):
        raise SinkError(
            f"generation {number} is not {'built' if no_promote else 'promoted'}: {_why_not(state, follower, number)}",
            hint="readers see what they saw before",
        )
    if as_json:
        print(json.dumps({"follower": follower, "generation": number, "promoted": promoted}))
    else:
        out.print(f"{follower}: generation {number} is {'live' if promoted else 'built, and not promoted'}")


def _is_over(state: State, request: Request) -> bool:
    """Whether the generation is where it was to go, or will not get there by itself."""
    answer, follower = answered(state, request), request.follower
    if answer is None or answer.get("error"):
        return answer is not None
    number = int(answer["generation"])
    generation = generations(state, follower).get(number)
    if generation is None or generation.promoted_at is not None or state.get(f"paused/{follower}") is not None:
        return True
    fact = state.get(f"follower/{follower}/{number}")
    if fact is None:
        return False
    return fact["state"] == "failed" or bool(fact["held_back"]) or (bool(fact["built"]) and not generation.auto_promote)


def _why_not(state: State, follower: str, number: int) -> str:
    known = generations(state, follower)
    if number not in known:
        return f"it was replaced by generation {max(known)}" if known else f"{follower} was removed"
    if state.get(f"paused/{follower}") is not None:
        return f"{follower} was paused; `driftless resume {follower}` resumes it"
    fact = state.get(f"follower/{follower}/{number}") or {}
    return str(fact.get("trouble") or "`driftless status` shows where it stands")


@app.command()
def promote(
    follower: Follower,
    generation: Annotated[
        int,
        typer.Option(
            "--generation", help="Its number, as `driftless status` shows it.", autocompletion=complete.generations
        ),
    ],
    file: File = SYNC,
    force: Annotated[bool, typer.Option("--force", help="Also with quarantined documents.")] = False,
) -> None:
    """Switch readers to another generation, also back to one that they have left.

    Example: `driftless promote product-search --generation 1`
    """
    config, control, state = opened(file, follower)
    known = generations(state, follower)
    if generation not in known:
        raise no_generation(follower, generation, known)
    fulfil(config, control, follower, "promote", generation=generation, force=force)
    out.print(f"{follower}: readers see generation {generation}")


@app.command()
def replay(
    follower: Follower,
    begin: Annotated[
        str,
        typer.Option(
            "--from",
            help="`start`, an offset, or a time such as 2026-03-01T12:00.",
            metavar="WHERE",
            autocompletion=complete.beginnings,
        ),
    ],
    file: File = SYNC,
    as_json: Json = False,
) -> None:
    """Apply an old range of the log again, up to where the follower stands. Changes nothing that is right.

    Exits 1 when a write was missing.

    Example: `driftless replay product-cache --from start`

    What came after a moment: `driftless replay product-cache --from 2026-03-01T12:00Z`
    """
    config, control, state = opened(file, follower)
    stream = newest_stream_build(state, config.followers[follower].view)
    own = None if stream is None else stream.log
    offsets = _offsets(control, own or TopicLog.from_json(fact_of_table(config, state, follower, "epochs")), begin)
    answer = fulfil(config, control, follower, "replay", begin={str(p): o for p, o in offsets.items()})
    result = {key: answer[key] for key in ("written", "stale", "left")}
    if as_json:
        print(json.dumps({"follower": follower, **result}))
    else:
        out.print(f"{follower}: {result['stale']:,} writes were there already, {result['written']:,} were missing")
    if result["written"]:
        raise typer.Exit(NO)


def _offsets(control: Control, log: TopicLog, begin: str) -> Offsets:
    if begin == "start":
        return dict(log.floor)
    if begin.isdecimal():
        return {p: max(int(begin), floor) for p, floor in log.floor.items()}
    try:
        moment = datetime.fromisoformat(begin)
    except ValueError:
        raise ConfigError(
            f"--from: `{begin}` is neither `start`, nor an offset, nor a time in ISO 8601",
            hint="write a time as in `--from 2026-03-01T12:00Z`",
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return control.kafka.offsets_at(log.topic, log.partitions, moment.timestamp())
