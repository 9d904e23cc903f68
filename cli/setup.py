"""`check`, `plan` and `apply`: from a configuration to a pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import typer
from rich.text import Text

from cli.base import NO, SYNC, YES, File, Json, app, err, out, reach
from cli.output.notes import notes
from cli.output.planned import numbered, samples_told, steps_told, worker_told
from driftless.config.models import Config
from driftless.control.status import settled
from driftless.errors import ConfigError, SinkUnavailable, SourceUnavailable, SyncError
from driftless.facts.state import State
from driftless.kafka.client import Kafka
from driftless.pipeline import load

_STORES_AT_ONCE = 8
Resnapshot = Annotated[
    bool,
    typer.Option("--anew", help="Re-snapshot all tables, also where the source is another server."),
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


def _findings(
    config: Config, context: Any, streams: Mapping[str, Any], *, resnapshot: bool = False
) -> tuple[list[Any], bool]:
    """`streams`: as Spark has analysed them."""
    from connectors.pipeline.check import check

    findings = check(config, context, streams, resnapshot=resnapshot)
    keys = _keys(config, context)
    findings += [finding for name in config.followers for finding in _store(config, keys, name)]
    findings += notes(config, context.source, streams)
    return findings, any(finding.fatal for finding in findings)


def _keys(config: Config, context: Any) -> dict[str, tuple[str, ...]]:
    """Follower -> the key columns of its documents, where they can be told."""
    roots = {name: root for name in config.followers if (root := config.table_of(name)) is not None}
    tables = context.source.tables(dict.fromkeys(roots.values(), ()))
    streams = {name: config.streams[stream].key for name in config.followers if (stream := config.stream_of(name))}
    views = {name: config.views.get(follower.view) for name, follower in config.followers.items()}
    own = {name: view.key for name, view in views.items() if view is not None and view.key is not None}
    found = {name: own.get(name, tables[root].key) for name, root in roots.items() if root in tables}
    return found | streams


def _store(
    config: Config, keys: Mapping[str, tuple[str, ...]], name: str, *, rehearse: State | None = None
) -> Iterator[Any]:
    """What is wrong with a follower's store. `rehearse`: also whether it takes what this state does not have in it yet,
    and whether readers see in it what this state says.
    """
    import sinks
    from connectors.pipeline.check import Finding
    from driftless.sink import SinkContext

    follower = config.followers[name]
    if name not in keys:
        return
    at = ("followers", name, follower.kind)
    try:
        sink = sinks.open_sink(follower.kind, follower.sink, SinkContext(config.name, name, keys[name]))
    except sinks.Unfit as exc:
        yield Finding(config.at((*at, exc.field), str(exc)))
        return
    try:
        if rehearse is None:
            sink.check()
        else:
            sink.rehearse()
            yield from _readers(config, name, rehearse, sink.promoted())
    except SinkUnavailable as exc:
        if rehearse is None:
            raise SinkUnavailable(f"followers.{name}: {exc}", hint=exc.hint) from exc
        yield Finding(config.at(at, told_of(exc)))
    except SyncError as exc:
        yield Finding(config.at(at, told_of(exc)))
    finally:
        sink.close()


def told_of(exc: SyncError) -> str:
    return f"{exc}{'; ' + exc.hint if exc.hint else ''}"


def _readers(config: Config, name: str, state: State, seen: int | None) -> Iterator[Any]:
    """Where readers do not see the generation that they are said to see, as when somebody has deleted it."""
    from connectors.pipeline.check import Finding

    live = [int(n) for n, fact in state.by_prefix(f"follower/{name}").items() if fact.value.get("live")]
    if live and seen not in live:
        shown = "none" if seen is None else f"generation {seen}"
        what = (
            f"generation {live[0]} is live, and readers see {shown}: somebody has deleted it, or changed what readers "
            f"see; `driftless run {name}` fills it again, `driftless rebuild {name}` makes another"
        )
        yield Finding(config.at(("followers", name), what), planned=True)


def _analysed(config: Config, context: Any) -> tuple[dict[str, Any], list[Any]]:
    """Each stream as Spark understands it, and what is wrong with those that it does not. It needs a JVM."""
    from cli.run import spark_jars
    from connectors.pipeline.check import Finding
    from connectors.pipeline.event_tables import table_faults, with_columns
    from connectors.postgres.client import captured_tables
    from jobs.spark.session import session, stop
    from jobs.streams.sql.analysis import analyse

    found: dict[str, Any] = {}
    wrong: list[Any] = []
    if not config.streams:
        return found, wrong
    tables: dict[str, Any] = {}
    if config.captured_events:
        tables = captured_tables(context.source, config)
        config = with_columns(config, tables)
        if any(tables[name] is None for name in config.captured_events) or [*table_faults(config, tables)]:
            return found, wrong  # `check` says what is wrong with them
    spark = session(spark_jars())
    try:
        for name in config.streams:
            analysed = analyse(spark, config, name, tables)
            if isinstance(analysed, list):
                wrong += [Finding(config.at(("streams", name, m.field), m.what)) for m in analysed]
            else:
                found[name] = analysed
    finally:
        stop(spark)
    return found, wrong


def _more(config: Config, context: Any, streams: Mapping[str, Any]) -> Iterator[Any]:
    """What would stop `apply` or `run`, and what has stopped them before: after all else is right."""
    from connectors.pipeline.check import Finding
    from connectors.pipeline.plan import make_plan
    from driftless.control.health import follower_problems, view_problems
    from driftless.control.status import SourceStatus, status

    state = context.control.read() if context.control.exists() else State({})
    keys = _keys(config, context)
    with ThreadPoolExecutor(_STORES_AT_ONCE) as pool:
        for found in pool.map(lambda name: list(_store(config, keys, name, rehearse=state)), config.followers):
            yield from found
    try:
        secret = _secret(config, context.source.parameters.get("password"), store=False)
        make_plan(config, context, secret, streams)
    except SourceUnavailable:
        raise
    except SyncError as exc:
        yield Finding(told_of(exc))
    if not state.facts:
        return
    # What the stores were asked has taken its time: leases would seem to have run out by now.
    state, now = context.control.read(), context.control.now()
    shown = status(config, state, SourceStatus(), now)
    problems = [p for follower in shown["followers"] for p in follower_problems(state, follower, now)]
    for view in shown["views"]:
        if config.views[view["name"]].joined:
            problems += view_problems(state, view, now, None)
    # What nobody runs, or was not applied yet, is not in the way: `check` comes before both.
    for problem in (p for p in problems if not p.do.startswith("run `driftless run") or "failed" in p.what):
        if problem.do != "run `driftless apply`":
            yield Finding(str(problem), planned=True)


def _admin(config: Config, context: Any) -> Iterator[Any]:
    """What keeps `apply` from the rights of `admin_dsn`, where that is given."""
    from connectors.pipeline.check import Finding
    from connectors.postgres.client import Postgres

    if config.source.admin_dsn is None:
        return
    at = ("source", "admin_dsn")
    try:
        with Postgres(config.source.admin_dsn) as admin:
            if admin.identity() != context.source.identity():
                yield Finding(config.at(at, "leads to another server or database than `dsn`"))
    except SyncError as exc:
        yield Finding(config.at(at, told_of(exc)))


def _log_in_as_spark(config: Config, kafka: Kafka) -> None:
    """Try the Java client too, which has names of its own for security. It needs a JVM: only where security is set."""
    from cli.run import spark_jars
    from jobs.spark.login import log_in_without_spark

    if config.kafka.security is not None:
        log_in_without_spark(kafka, spark_jars())


@app.command()
def check(file: File = SYNC, as_json: Json = False) -> None:
    """Look at everything before it starts: configuration, source, topics, connector, stores. Changes nothing.

    In each store it makes something small under a name that nobody reads, and takes it away again: whether `apply` and
    `run` may. Exits 1 when something is in the way, or wrong with what runs.

    Example: `driftless check -f sync.yaml`
    """
    config = load(file)
    with reach(config) as context:
        streams, wrong = _analysed(config, context)
        findings, _ = _findings(config, context, streams)
        findings += [*wrong, *_admin(config, context)]
        fatal = any(finding.fatal for finding in findings)
        _log_in_as_spark(config, context.kafka)
        if not any(finding.fatal and not finding.planned for finding in findings):
            findings += _more(config, context, streams)
            fatal = any(finding.fatal for finding in findings)
    if as_json:
        print(json.dumps({"ok": not fatal, "findings": [{"fatal": f.fatal, "what": f.what} for f in findings]}))
    else:
        for line in dict.fromkeys(map(str, findings)):
            out.print(line, soft_wrap=True)
        if not fatal:
            out.print("everything is ready")
    raise typer.Exit(NO if fatal else YES)


def _plan(config: Config, context: Any, *, store_secret: bool, resnapshot: bool) -> tuple[list[Any], dict[str, Any]]:
    """What is to be done, and the streams as Spark has analysed them."""
    from connectors.pipeline.plan import make_plan

    streams, refused = _analysed(config, context)
    findings, _ = _findings(config, context, streams, resnapshot=resnapshot)
    findings += refused
    if wrong := [str(finding) for finding in findings if finding.fatal and not finding.planned]:
        raise ConfigError(*wrong, hint="put these right; `driftless check` looks at them again")
    secret = _secret(config, context.source.parameters.get("password"), store=store_secret)
    return make_plan(config, context, secret, streams, resnapshot=resnapshot), streams


@app.command()
def plan(
    file: File = SYNC,
    as_json: Json = False,
    sql: Annotated[bool, typer.Option("--sql", help="Only what the database needs, for a DBA to run.")] = False,
    values: Annotated[bool, typer.Option("--values", help="Show documents with the values of a row.")] = False,
    resnapshot: Resnapshot = False,
    whole: Annotated[bool, typer.Option("--all", help="List every step, and a document of every view.")] = False,
) -> None:
    """Show what `apply` would do, and a document of each view that is followed. Exits 1 when it would do anything.

    A document has the types of its columns in place of their values, which only --values shows. Of many steps of one
    kind, the first are named; of many documents, the fields.

    Example: `driftless plan`

    What a DBA must run: `driftless plan --sql`

    One row of the source in each view: `driftless plan --values`
    """
    from connectors.pipeline.samples import samples
    from driftless import exact

    config = load(file)
    with reach(config) as context:
        actions, streams = _plan(config, context, store_secret=False, resnapshot=resnapshot)
        followed = {follower.view for follower in config.followers.values()} & config.views.keys()
        asked = config.views.keys() if whole or as_json else followed
        found = {} if sql else samples(config, context.source, asked, streams, values=values)
        told = [] if sql or as_json else notes(config, context.source, streams)
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
        if config.kafka.security is not None and any(action.what.startswith("connector ") for action in actions):
            for line in worker_told(config.kafka.security):
                out.print(Text(line), soft_wrap=True)
        if alone := len(config.views) - len(config.views.keys() & followed) if not whole else 0:
            out.print(f"\n{numbered(alone, 'view')} without a follower: --all shows a document of each", soft_wrap=True)
    raise typer.Exit(NO if actions else YES)


def _counted(actions: list[Any], what: str, then: str) -> str:
    return f"{numbered(len(actions), what)}{then}" if actions else "nothing to change"


def _changes(actions: list[Any]) -> dict[str, Any]:
    fields = ("verb", "what", "detail", "sql")
    return {"changes": [{key: getattr(action, key) for key in fields} for action in actions]}


@app.command()
def apply(file: File = SYNC, as_json: Json = False, resnapshot: Resnapshot = False) -> None:
    """Make publication, topics, connector and followers as the configuration says. Again: changes nothing.

    Where changes are missing from the log (a lost slot, a table that left the publication), it re-snapshots the tables.

    Example: `driftless apply`

    After the server was restored, or a standby promoted: `driftless apply --anew`
    """
    from connectors.pipeline.plan_context import steps
    from connectors.postgres.slot_reader import slot_reader_facts
    from driftless import names
    from driftless.facts.state import WATCHED

    config = load(file)
    with reach(config, admin=True) as context:
        context.tell = lambda line: err.print(line, soft_wrap=True)
        actions, _ = _plan(config, context, store_secret=True, resnapshot=resnapshot)
        if actions and context.control.exists():  # before the connector may be started again
            state = context.control.read()
            context.control.write(slot_reader_facts(context.source, names.slot(config.name), state, watched=False))
        for some, do in steps(actions):
            if not as_json:
                for line in steps_told(some, whole=False):
                    out.print(f"  {line}", soft_wrap=True)
            with err.doing() as context.report:
                do()
        if actions:
            begun = settled(context.control.read(), context.control.now())
            context.control.write({**begun, WATCHED: None})
    if as_json:
        print(json.dumps(_changes(actions)))
    else:
        out.print(_counted(actions, "change", " made; `driftless run` follows"))
