"""`quarantine`: documents that a store refused, or that are too large for the log of a view."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as Grid

from cli import complete
from cli.base import NO, SYNC, YES, File, Json, app, out
from cli.fulfil import fulfil, opened
from cli.run import spark_jars
from driftless import exact, names
from driftless.config.models import Config
from driftless.control.quarantine import Held, QuarantineLog
from driftless.control.topic import Control
from driftless.errors import ConfigError
from driftless.facts.builds import build_of, newest_number
from driftless.facts.generation import Generation, generations
from driftless.facts.state import State
from driftless.kafka.client import Kafka
from driftless.pipeline import control_of, load
from driftless.suggest import did_you_mean
from driftless.version import split_version

commands = typer.Typer(no_args_is_help=True, help="Documents that were refused: see them, try again, let them go.")
app.add_typer(commands, name="quarantine")

Keys = Annotated[list[str] | None, typer.Argument(help="Keys as `list` shows them; all if none is named.")]
Holder = Annotated[
    str,
    typer.Argument(
        help="The follower's name in sync.yaml; or the view's, for documents that are too large for its log.",
        metavar="FOLLOWER|VIEW",
        autocompletion=complete.followers_and_views,
    ),
]
Number = Annotated[
    int | None,
    typer.Option("--generation", help="One generation; the live one if left out.", autocompletion=complete.generations),
]


@commands.command("list")
def list_command(
    follower: Annotated[
        str | None,
        typer.Argument(help="One follower or view; all if none is named.", autocompletion=complete.followers_and_views),
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
    follower = follower and _who(config, follower)
    count = 0
    shown: list[Held] = []
    for held in QuarantineLog(control_of(config).kafka, config.name).read(follower):
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
    follower: Holder,
    key: Annotated[str, typer.Argument(help="The key as `list` shows it.")],
    file: File = SYNC,
    values: Annotated[bool, typer.Option("--values", help="Show the values too, as the log has them.")] = False,
    as_json: Json = False,
) -> None:
    """Show one document that is held back: the whole reason, and with --values what it holds.

    Example: `driftless quarantine show product-search 42 --values`
    """
    config, control, state, follower = _opened(file, follower)
    found = [held for held in QuarantineLog(control.kafka, config.name).read(follower) if held.key == key]
    if not found:
        raise ConfigError(
            f"{follower}: `{key}` is not quarantined", hint=f"`driftless quarantine list {follower}` shows what is"
        )
    facts = [_facts(held) for held in found]
    if values:
        for fact in facts:
            if follower not in config.followers:
                fact["document"] = _at_the_source(config, state, follower, fact["generation"], key)
                continue
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
    from jobs.follow.job_spec import make_job
    from jobs.newest_document import newest_document

    job = make_job(config, follower, generation, state, kafka)
    document = newest_document(job, kafka, spark_jars(), key)
    return None if document is None else exact.read(document)


def _at_the_source(config: Config, state: State, lease: str, number: int, key: str) -> Any:
    """The document of a key as the source gives it: the log of the view does not have it."""
    from connectors.postgres.source_snapshot import document
    from driftless.views.sql import select

    build = build_of(state, _view(lease), number)
    text = None if build is None else document(config.source.dsn, select(build.view), key)
    return None if text is None else exact.read(text)


def _who(config: Config, name: str) -> str:
    """By what name its entries are kept: a follower's own, or that of the lease of a view."""
    if name in config.followers:
        return name
    built = [view for view, declared in config.views.items() if declared.joined]
    if _view(name) in built:
        return names.view_lease(_view(name))
    raise ConfigError(
        f"there is no follower or view of several tables `{name}`{did_you_mean(name, [*config.followers, *built])}",
        hint="`driftless quarantine list` without a name shows what is held back, and whose it is",
    )


def _view(name: str) -> str:
    """Of which view it is the name, or that of its lease."""
    return name.removeprefix(names.view_lease(""))


def _opened(file: Path, name: str) -> tuple[Config, Control, State, str]:
    """The configuration, the pipeline's state, and by what name entries are kept."""
    config = load(file)
    who = _who(config, name)
    if who in config.followers:
        return *opened(file, name), who
    control = control_of(config)
    return config, control, control.read(), who


def _have_done(file: Path, name: str, verb: str, keys: list[str] | None, generation: int | None) -> dict[str, int]:
    """Have whoever runs the follower, or builds the view, do it; the numbers of the answer."""
    config, control, state, who = _opened(file, name)
    if who in config.followers:
        answers = [fulfil(config, control, who, verb, keys=keys, generation=generation)]
    else:
        view, build = _view(who), newest_number(state, _view(who)) if generation is None else generation
        answers = [
            fulfil(config, control, names.view_lease(view, n), verb, shard=(view, n), keys=keys, build=build)
            for n in range(config.views[view].shards)
        ]
    numbers = [name for name, value in answers[0].items() if isinstance(value, int)]
    return {name: sum(answer[name] for answer in answers) for name in numbers}


@commands.command()
def retry(
    follower: Holder, keys: Keys = None, file: File = SYNC, generation: Number = None, as_json: Json = False
) -> None:
    """Give the newest state of quarantined documents to the store again. Exits 1 when it still refuses some.

    Example: `driftless quarantine retry product-search`

    Only these two: `driftless quarantine retry product-search 42 43`
    """
    answer = _have_done(file, follower, "retry", keys or None, generation)
    if as_json:
        print(json.dumps({"follower": follower, "written": answer["written"], "left": answer["left"]}))
    else:
        out.print(f"{follower}: {answer['written']:,} written, {answer['left']:,} still quarantined")
    raise typer.Exit(NO if answer["left"] else YES)


@commands.command()
def discard(
    follower: Holder, keys: Keys = None, file: File = SYNC, generation: Number = None, as_json: Json = False
) -> None:
    """Let quarantined documents go without writing them: the follower then lacks them, until they change.

    Example: `driftless quarantine discard product-search 42`
    """
    answer = _have_done(file, follower, "discard", keys or None, generation)
    if as_json:
        print(json.dumps({"follower": follower, "discarded": answer["discarded"]}))
    else:
        out.print(f"{follower}: {answer['discarded']:,} discarded")
