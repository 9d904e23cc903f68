"""`quarantine`: documents that a store refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.table import Table as Grid

from driftless import exact
from driftless.cli import complete
from driftless.cli.base import NO, SYNC, YES, File, Json, app, chosen, load, out
from driftless.cli.fulfil import fulfil, opened
from driftless.cli.generations import Follower
from driftless.cli.run import spark_jars
from driftless.config import Config
from driftless.control import State
from driftless.errors import ConfigError
from driftless.generation import Generation, generations
from driftless.kafka import Kafka
from driftless.quarantine import Held, QuarantineLog
from driftless.version import split_version

commands = typer.Typer(no_args_is_help=True, help="Documents that a store refused: see them, try again, let them go.")
app.add_typer(commands, name="quarantine")

Keys = Annotated[list[str] | None, typer.Argument(help="Keys as `list` shows them; all if none is named.")]
Number = Annotated[
    int | None,
    typer.Option("--generation", help="One generation; the live one if left out.", autocompletion=complete.generations),
]


@commands.command("list")
def list_command(
    follower: Annotated[
        str | None, typer.Argument(help="One follower; all if none is named.", autocompletion=complete.followers)
    ] = None,
    file: File = SYNC,
    limit: Annotated[int, typer.Option("--limit", help="How many to show; 0 for all.")] = 100,
    as_json: Json = False,
) -> None:
    """Show what is held back, and why. Exits 1 when there is anything.

    A document leaves by itself when a newer version of it, or its delete, goes through.

    Example: `driftless quarantine list product-search --limit 10`
    """
    config = load(file)
    chosen(config, [follower] if follower else [])
    count = 0
    shown: list[Held] = []
    for held in QuarantineLog(Kafka(config.kafka), config.name).read(follower):
        count += 1
        if not limit or len(shown) < limit:
            shown.append(held)
    if as_json:
        print(json.dumps({"count": count, "quarantined": [_facts(held) for held in shown]}))
    elif count:
        grid = Grid("follower", "gen", "key", "since", "reason", box=None, pad_edge=False)
        for held in shown:
            grid.add_row(held.follower, str(held.generation), held.key, _since(held), held.reason)
        out.print(grid)
        if count > len(shown):
            out.print(f"... and {count - len(shown):,} more; --limit 0 shows all")
    else:
        out.print("nothing is quarantined")
    raise typer.Exit(NO if count else YES)


def _since(held: Held) -> str:
    return datetime.fromtimestamp(held.time, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _facts(held: Held) -> dict[str, Any]:
    epoch, offset = split_version(held.version)
    return {**vars(held), "epoch": epoch, "offset": offset}


@commands.command()
def show(
    follower: Follower,
    key: Annotated[str, typer.Argument(help="The key as `list` shows it.")],
    file: File = SYNC,
    values: Annotated[bool, typer.Option("--values", help="Show the values too, as the log has them.")] = False,
    as_json: Json = False,
) -> None:
    """Show one document that is held back: the whole reason, and with --values what it holds.

    Example: `driftless quarantine show product-search 42 --values`
    """
    config, control, state = opened(file, follower)
    found = [held for held in QuarantineLog(control.kafka, config.name).read(follower) if held.key == key]
    if not found:
        raise ConfigError(f"{follower}: `{key}` is not quarantined; see `driftless quarantine list {follower}`")
    facts = [_facts(held) for held in found]
    if values:
        for fact in facts:
            generation = generations(state, follower)[fact["generation"]]
            fact["document"] = _document(config, control.kafka, state, follower, generation, key)
    if as_json:
        print(exact.write(facts))
        return
    for fact in facts:
        for name, value in fact.items():
            shown = exact.write(value, 2) if name == "document" else value
            out.print(f"{name:<11} {shown}", soft_wrap=True)


def _document(config: Config, kafka: Kafka, state: State, follower: str, generation: Generation, key: str) -> Any:
    """The newest document of a key, made of the log as the follower makes it."""
    from jobs.job import make_job
    from jobs.look import newest_document

    job = make_job(config, follower, generation, state, kafka)
    document = newest_document(job, kafka, spark_jars(), key)
    return None if document is None else exact.read(document)


@commands.command()
def retry(
    follower: Follower, keys: Keys = None, file: File = SYNC, generation: Number = None, as_json: Json = False
) -> None:
    """Give the newest state of quarantined documents to the store again. Exits 1 when it still refuses some.

    Example: `driftless quarantine retry product-search`

    Only these two: `driftless quarantine retry product-search 42 43`
    """
    config, control, _ = opened(file, follower)
    answer = fulfil(config, control, follower, "retry", keys=keys or None, generation=generation)
    if as_json:
        print(json.dumps({"follower": follower, "written": answer["written"], "left": answer["left"]}))
    else:
        out.print(f"{follower}: {answer['written']:,} written, {answer['left']:,} still quarantined")
    raise typer.Exit(NO if answer["left"] else YES)


@commands.command()
def discard(
    follower: Follower, keys: Keys = None, file: File = SYNC, generation: Number = None, as_json: Json = False
) -> None:
    """Let quarantined documents go without writing them: the follower then lacks them, until they change.

    Example: `driftless quarantine discard product-search 42`
    """
    config, control, _ = opened(file, follower)
    answer = fulfil(config, control, follower, "discard", keys=keys or None, generation=generation)
    if as_json:
        print(json.dumps({"follower": follower, "discarded": answer["discarded"]}))
    else:
        out.print(f"{follower}: {answer['discarded']:,} discarded")
