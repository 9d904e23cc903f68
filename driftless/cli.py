"""The command. The only module that puts the domain, the connectors, the jobs and the local stack together."""

from __future__ import annotations

import json
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as Grid

import driftless
from driftless import config as configuration
from driftless.config import Config
from driftless.control import Control
from driftless.errors import ConfigError, SinkUnavailable, SourceError, SourceUnavailable, StackError, SyncError
from driftless.kafka import Kafka
from driftless.lsn import parse_lsn
from driftless.status import SourceStatus, status

YES, NO, WRONG, UNREACHABLE = 0, 1, 2, 3
"""Exit codes: done or yes; the answer is no; wrong use or configuration; a server cannot be reached."""

app = typer.Typer(
    name="driftless",
    help="Keeps search indexes and caches in step with Postgres, and proves it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

File = Annotated[Path, typer.Option("--file", "-f", help="The configuration.", show_default=True)]
Json = Annotated[bool, typer.Option("--json", help="Print facts as JSON.")]
SYNC = Path("sync.yaml")


def main() -> None:
    """Run the command; an operator's mistake ends in a message and an exit code, never in a traceback."""
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S", level=logging.WARNING)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    try:
        app()
    except KeyboardInterrupt:
        err.print("interrupted")
        sys.exit(130)
    except SyncError as exc:
        err.print(str(exc) if isinstance(exc, ConfigError) else f"error: {exc}", markup=False, soft_wrap=True)
        if exc.hint:
            err.print(f"  {exc.hint}", soft_wrap=True)
        sys.exit(exit_code(exc))


def exit_code(exc: SyncError) -> int:
    """The contract's exit code for an error."""
    if isinstance(exc, SourceUnavailable | SinkUnavailable) or (isinstance(exc, StackError) and exc.unreachable):
        return UNREACHABLE
    return WRONG if isinstance(exc, ConfigError | StackError) else NO


def _version(asked: bool) -> None:
    if asked:
        out.print(f"driftless {driftless.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def load(file: Path) -> Config:
    """The configuration, whole and checked."""
    import sinks

    return configuration.load(file, {kind: sinks.config_model(kind) for kind in sinks.kinds()})


@app.command()
def up(
    name: Annotated[str, typer.Option("--name", help="One of several stacks side by side.")] = "default",
    as_json: Json = False,
) -> None:
    """Start Postgres, Kafka, Connect with Debezium, OpenSearch and Redis on this machine, on loopback.

    They are fetched once. A stack that is up is left as it is.
    """
    from stack import Stack

    endpoints = Stack(name).up(lambda line: err.print(line, markup=False, soft_wrap=True))
    if as_json:
        print(json.dumps(vars(endpoints)))
        return
    for server, address in vars(endpoints).items():
        out.print(f"{server:<11} {address}", markup=False, soft_wrap=True)
    out.print(f"\nstop it with: driftless down{'' if name == 'default' else f' --name {name}'}", markup=False)


@app.command()
def down(
    name: Annotated[str, typer.Option("--name", help="The stack to stop.")] = "default",
    purge: Annotated[bool, typer.Option("--purge", help="Delete the stack's data too.")] = False,
) -> None:
    """Stop what `up` started, and only that. Data stays unless you say --purge."""
    from stack import Stack

    stack = Stack(name)
    stopped = stack.down(lambda line: err.print(line, markup=False, soft_wrap=True))
    if purge:
        stack.destroy()
    out.print(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")


@contextmanager
def _places(config: Config, *, admin: bool = False) -> Iterator[Any]:
    from connectors.connect import Connect
    from connectors.plan import Places
    from connectors.postgres import Postgres

    kafka = Kafka(config.kafka)
    with Postgres(config.source.dsn) as source:
        rights = Postgres(config.source.admin_dsn) if admin and config.source.admin_dsn else source
        try:
            yield Places(source, rights, kafka, Connect(config.connect.url), Control(kafka, config.name))
        finally:
            rights.close()


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


def _findings(config: Config, places: Any) -> tuple[list[Any], bool]:
    from connectors.check import Finding, check

    findings = check(config, places)
    for name, follower in config.followers.items():
        table = places.source.table(config.table_of(name))
        if table is None:
            continue
        import sinks
        from driftless.sink import SinkContext

        try:
            sink = sinks.open_sink(follower.kind, follower.sink, SinkContext(config.name, name, table.key))
        except ValueError as exc:
            findings.append(Finding(f"followers.{name}: {exc}"))
            continue
        try:
            sink.check()
        except SinkUnavailable as exc:
            raise SinkUnavailable(f"followers.{name}: {exc}", hint=exc.hint) from exc
        except SyncError as exc:
            findings.append(Finding(f"followers.{name}: {exc}{'; ' + exc.hint if exc.hint else ''}"))
        finally:
            sink.close()
    return findings, any(finding.fatal for finding in findings)


@app.command()
def check(file: File = SYNC, as_json: Json = False) -> None:
    """Look at everything before it starts: configuration, source, topics, connector, stores. Changes nothing."""
    config = load(file)
    with _places(config) as places:
        findings, fatal = _findings(config, places)
    if as_json:
        print(json.dumps({"ok": not fatal, "findings": [{"fatal": f.fatal, "what": f.what} for f in findings]}))
    else:
        for finding in findings:
            out.print(str(finding), markup=False, soft_wrap=True)
        if not fatal:
            out.print("everything is ready")
    raise typer.Exit(NO if fatal else YES)


def _plan(config: Config, places: Any, *, store_secret: bool) -> list[Any]:
    from connectors.plan import make_plan

    findings, fatal = _findings(config, places)
    if fatal:
        raise ConfigError(*(str(finding) for finding in findings if finding.fatal))
    secret = _secret(config, places.source.parameters.get("password"), store=store_secret)
    return make_plan(config, places, secret)


@app.command()
def plan(
    file: File = SYNC,
    as_json: Json = False,
    sql: Annotated[bool, typer.Option("--sql", help="Only what the database needs, for a DBA to run.")] = False,
) -> None:
    """Show what `apply` would do. Exits 1 when it would do anything."""
    config = load(file)
    with _places(config) as places:
        actions = _plan(config, places, store_secret=False)
    if sql:
        for action in actions:
            if action.sql is not None:
                print(f"{action.sql};")
    elif as_json:
        fields = ("verb", "what", "detail", "sql")
        print(json.dumps({"changes": [{key: getattr(action, key) for key in fields} for action in actions]}))
    else:
        for action in actions:
            out.print(f"  {action}", markup=False, soft_wrap=True)
        out.print("nothing to change" if not actions else f"{len(actions)} changes; `driftless apply` makes them")
    raise typer.Exit(NO if actions else YES)


@app.command()
def apply(file: File = SYNC) -> None:
    """Make publication, topics, connector and followers as the configuration says. Again: changes nothing."""
    config = load(file)
    with _places(config, admin=True) as places:
        actions = _plan(config, places, store_secret=True)
        for action in actions:
            out.print(f"  {action}", markup=False, soft_wrap=True)
            action.do()
    out.print("nothing to change" if not actions else f"{len(actions)} changes made; `driftless run` follows")


def _names(config: Config, given: list[str]) -> list[str]:
    from driftless.yamlfile import did_you_mean

    for name in given:
        if name not in config.followers:
            raise ConfigError(f"there is no follower `{name}`{did_you_mean(name, config.followers)}")
    return given or list(config.followers)


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
    from stack import fetch

    config = load(file)
    followers = _names(config, names or [])
    say: Callable[[str], None] = lambda line: err.print(line, markup=False, soft_wrap=True)  # noqa: E731
    until_lsn = _position_to_reach(config, say) if until_caught_up else None
    runner = Runner(config, followers, fetch(["spark"], say)["spark"], memory=memory)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: runner.stop.set())
    with show(runner.progress, err):
        runner.run(until_lsn=until_lsn, until_caught_up=until_caught_up, report=say)


def _position_to_reach(config: Config, say: Callable[[str], None]) -> int | None:
    """A marker written now, when source and connector work: all that is committed comes before it."""
    from driftless import names

    try:
        with _places(config) as places:
            state, _ = places.connect.state(names.connector(config.name))
            if state == "RUNNING":
                lsn: int = places.source.emit_marker()
                return lsn
            say(f"the connector is {state}: following to the log's end as it is")
    except SourceError as exc:
        say(f"{exc}: following to the log's end as it is")
    return None


def _facts(config: Config) -> dict[str, Any]:
    """The facts of `status`. A source that cannot be reached leaves its own part empty and is told on stderr."""
    from connectors.postgres import Postgres
    from driftless import names

    control = Control(Kafka(config.kafka), config.name)
    state = control.read()
    source = SourceStatus()
    try:
        with Postgres(config.source.dsn) as postgres:
            slot = postgres.slot(names.slot(config.name))
            source = SourceStatus(
                postgres.lsn(), slot.name if slot else None, slot.lag_bytes if slot else None, postgres.clock()
            )
    except SourceUnavailable as exc:
        err.print(f"{exc}", markup=False, soft_wrap=True)
    return status(config, state, source, control.now())


@app.command(name="status")
def status_command(
    file: File = SYNC,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again every second, until Ctrl-C.")] = False,
) -> None:
    """Where the source and every follower stand. Exits 3 when the source cannot be reached."""
    from rich.live import Live

    config = load(file)
    facts = _facts(config)
    if as_json:
        print(json.dumps(facts))
    elif watch:
        with Live(_grid(facts), console=out, auto_refresh=False) as live:
            while True:
                time.sleep(1)
                live.update(_grid(_facts(config)), refresh=True)
    else:
        out.print(_grid(facts))
        for follower in facts["followers"]:
            if follower["trouble"]:
                out.print(f"{follower['name']}: {follower['trouble']}", markup=False, soft_wrap=True)
    if facts["source"]["lsn"] is None:
        raise typer.Exit(UNREACHABLE)
    raise typer.Exit(NO if any(f["state"] == "failed" for f in facts["followers"]) else YES)


def _grid(facts: dict[str, Any]) -> Grid:
    source = facts["source"]
    title = f"{facts['pipeline']}: source at {source['lsn'] or '(unreachable)'}, slot {source['slot'] or '(none)'}"
    if source["slot_lag_bytes"] is not None:
        title += f", {source['slot_lag_bytes'] / 1e6:.1f} MB behind"
    grid = Grid(title=title, title_justify="left", box=None, pad_edge=False)
    for heading in ("follower", "view", "state", "gen", "applied", "lag s", "lag records", "documents"):
        grid.add_column(heading, justify="right" if heading in ("gen", "lag s", "lag records", "documents") else "left")
    for f in facts["followers"]:
        shown = (f["generation"], f["applied_lsn"], f["lag_seconds"], f["lag_records"], f["documents"])
        grid.add_row(f["name"], f["view"], f["state"], *("-" if value is None else str(value) for value in shown))
    return grid


@app.command()
def wait(
    lsn: Annotated[str, typer.Option("--lsn", help="The position, as pg_current_wal_lsn() gives it.")],
    follower: Annotated[str | None, typer.Argument(help="The follower; all if none is named.")] = None,
    file: File = SYNC,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait at the most.")] = 30.0,
) -> None:
    """Return when everything up to a source position can be read: read your own writes. Exits 1 when time runs out."""
    from connectors.postgres import Postgres
    from driftless.wait import wait_for

    config = load(file)
    try:
        target = parse_lsn(lsn)
    except ValueError as exc:
        raise ConfigError(f"--lsn: {exc}") from None
    followers = _names(config, [follower] if follower else [])
    with Postgres(config.source.dsn) as source:
        late = wait_for(Control(Kafka(config.kafka), config.name), followers, target, timeout, source.emit_marker)
    if late:
        err.print(f"not yet there after {timeout:g} s: {', '.join(late)}", markup=False)
        raise typer.Exit(NO)


if __name__ == "__main__":
    main()
