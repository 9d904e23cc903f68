"""`check`, `plan` and `apply`: from a configuration to a pipeline."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from driftless.cli.base import NO, SYNC, YES, File, Json, app, err, load, out, reach
from driftless.cli.notes import notes
from driftless.cli.planned import numbered, samples_told, steps_told
from driftless.config import Config
from driftless.errors import ConfigError, SinkUnavailable, SyncError
from driftless.status import settled

Anew = Annotated[
    bool,
    typer.Option("--anew", help="Read all tables anew, also where the source is another server."),
]


def _secret(config: Config, password: object, *, store: bool) -> str | None:
    """The reference by which the Connect worker finds the password; for the local stack, kept where it can."""
    if config.connect.password is not None:
        return f"${{{config.connect.password}}}"
    if password is None:
        return None
    from stack import find_stack

    stack = find_stack(config.connect.url)
    if stack is None:
        raise ConfigError(
            "source.dsn has a password, and connect.password does not say where the Connect worker finds it",
            hint="it must not be stored in Connect: give a reference to one of the worker's config providers, "
            "as in `connect: {password: 'file:/etc/connect/shop.properties:password'}`",
        )
    if store:
        stack.write_secret(config.name, str(password))
    return f"${{dir:{stack.secrets_dir}:{config.name}}}"


def _findings(config: Config, places: Any, *, anew: bool = False) -> tuple[list[Any], bool]:
    from connectors.check import Finding, check

    findings = check(config, places, anew=anew)
    tables = places.source.tables({config.table_of(name): () for name in config.followers})
    for name, follower in config.followers.items():
        table = tables.get(config.table_of(name))
        if table is None:
            continue
        import sinks
        from driftless.sink import SinkContext

        try:
            sink = sinks.open_sink(follower.kind, follower.sink, SinkContext(config.name, name, table.key))
        except sinks.Unfit as exc:
            findings.append(Finding(config.at(("followers", name, follower.kind, exc.field), str(exc))))
            continue
        try:
            sink.check()
        except SinkUnavailable as exc:
            raise SinkUnavailable(f"followers.{name}: {exc}", hint=exc.hint) from exc
        except SyncError as exc:
            what = f"{exc}{'; ' + exc.hint if exc.hint else ''}"
            findings.append(Finding(config.at(("followers", name, follower.kind), what)))
        finally:
            sink.close()
    findings += notes(config, places.source)
    return findings, any(finding.fatal for finding in findings)


@app.command()
def check(file: File = SYNC, as_json: Json = False) -> None:
    """Look at everything before it starts: configuration, source, topics, connector, stores. Changes nothing.

    Exits 1 when something is in the way.

    Example: `driftless check -f sync.yaml`
    """
    config = load(file)
    with reach(config) as places:
        findings, fatal = _findings(config, places)
    if as_json:
        print(json.dumps({"ok": not fatal, "findings": [{"fatal": f.fatal, "what": f.what} for f in findings]}))
    else:
        for finding in findings:
            out.print(str(finding), soft_wrap=True)
        if not fatal:
            out.print("everything is ready")
    raise typer.Exit(NO if fatal else YES)


def _plan(config: Config, places: Any, *, store_secret: bool, anew: bool) -> list[Any]:
    from connectors.plan import make_plan

    findings, _ = _findings(config, places, anew=anew)
    if wrong := [str(finding) for finding in findings if finding.fatal and not finding.planned]:
        raise ConfigError(*wrong)
    secret = _secret(config, places.source.parameters.get("password"), store=store_secret)
    return make_plan(config, places, secret, anew=anew)


@app.command()
def plan(
    file: File = SYNC,
    as_json: Json = False,
    sql: Annotated[bool, typer.Option("--sql", help="Only what the database needs, for a DBA to run.")] = False,
    values: Annotated[bool, typer.Option("--values", help="Show documents with the values of a row.")] = False,
    anew: Anew = False,
    whole: Annotated[bool, typer.Option("--all", help="List every step, and a document of every view.")] = False,
) -> None:
    """Show what `apply` would do, and a document of each view that is followed. Exits 1 when it would do anything.

    A document has the types of its columns in place of their values, which only --values shows. Of many steps of one
    kind, the first are named; of many documents, the fields.

    Example: `driftless plan`

    What a DBA must run: `driftless plan --sql`

    One row of the source in each view: `driftless plan --values`
    """
    from connectors.samples import samples
    from driftless import exact

    config = load(file)
    with reach(config) as places:
        actions = _plan(config, places, store_secret=False, anew=anew)
        followed = {follower.view for follower in config.followers.values()}
        asked = config.views.keys() if whole or as_json else followed
        found = {} if sql else samples(config, places.source, asked, values=values)
        told = [] if sql or as_json else notes(config, places.source)
    if sql:
        for action in actions:
            if action.sql is not None:
                print(f"{action.sql};")
    elif as_json:
        documents = {name: sample.document for name, sample in found.items()}
        said = {name: sample.note for name, sample in found.items() if sample.note}
        print(exact.write({**_changes(actions), "samples": documents, "sample_notes": said}))
    else:
        for line in steps_told(actions, whole=whole):
            out.print(f"  {line}", soft_wrap=True)
        out.print(_counted(actions, "change", "; `driftless apply` makes them"))
        for note in told:
            out.print(f"{note}", soft_wrap=True)
        for line in samples_told(found, whole=whole or values):
            out.print(line, soft_wrap=True)
        if alone := len(config.views) - len(config.views.keys() & followed) if not whole else 0:
            out.print(f"\n{numbered(alone, 'view')} without a follower: --all shows a document of each", soft_wrap=True)
    raise typer.Exit(NO if actions else YES)


def _counted(actions: list[Any], what: str, then: str) -> str:
    return f"{numbered(len(actions), what)}{then}" if actions else "nothing to change"


def _changes(actions: list[Any]) -> dict[str, Any]:
    fields = ("verb", "what", "detail", "sql")
    return {"changes": [{key: getattr(action, key) for key in fields} for action in actions]}


@app.command()
def apply(file: File = SYNC, as_json: Json = False, anew: Anew = False) -> None:
    """Make publication, topics, connector and followers as the configuration says. Again: changes nothing.

    Where changes are missing from the log (a lost slot, a table that left the publication), it has tables read anew.

    Example: `driftless apply`

    After the server was restored, or a standby promoted: `driftless apply --anew`
    """
    from connectors.places import steps
    from connectors.watched import heed
    from driftless import names
    from driftless.control import WATCHED

    config = load(file)
    with reach(config, admin=True) as places:
        actions = _plan(config, places, store_secret=True, anew=anew)
        if actions and places.control.exists():  # before the connector may be started again
            state = places.control.read()
            places.control.write(heed(places.source, names.slot(config.name), state, watched=False))
        for some, do in steps(actions):
            if not as_json:
                for line in steps_told(some, whole=False):
                    out.print(f"  {line}", soft_wrap=True)
            with err.doing() as places.report:
                do()
        if actions:
            begun = settled(places.control.read(), places.control.now())
            places.control.write({**begun, WATCHED: None})
    if as_json:
        print(json.dumps(_changes(actions)))
    else:
        out.print(_counted(actions, "change", " made; `driftless run` follows"))
