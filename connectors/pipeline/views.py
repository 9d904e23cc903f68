"""Builds of views of several tables: which are wanted, and beginning them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from connectors.pipeline.plan_context import Action, PlanContext, bind
from connectors.postgres.client import Postgres
from driftless import names
from driftless.config.duration import milliseconds
from driftless.config.models import Config
from driftless.errors import CORRECT_THE_FILE, ConfigError
from driftless.facts.builds import Build, builds, newest_build, progress_key
from driftless.facts.epochs import another_topic
from driftless.facts.state import State, history
from driftless.facts.streams import KEEP_DELETES_MS, StreamBuild
from driftless.table import Table
from driftless.views.resolve import CapturedTables, resolve


def view_source(
    config: Config,
    source: Postgres,
    tables: Mapping[str, Table],
    gone: Callable[[], Mapping[tuple[str, str], str]] = dict,
    streams: Mapping[str, Table] | None = None,
) -> CapturedTables:
    """What a declaration of a view is resolved against. `gone`: what is said of columns that there were before.
    `streams`: what each computes, as a table.
    """
    excluded = {name: table.exclude for name, table in config.source.tables.items()}
    computed = {table.full_name: table for table in (streams or {}).values()}
    known: dict[str, list[tuple[str, ...]]] = {}

    def unique_keys(table: str) -> list[tuple[str, ...]]:
        if not known:
            known.update(source.all_unique_keys())
            known.update({name: [table.key] for name, table in computed.items()})
        return known.get(table, [])

    return CapturedTables({**tables, **computed}, unique_keys, excluded, gone)


def plan_builds(
    config: Config,
    context: PlanContext,
    tables: dict[str, Table],
    state: State,
    epochs: dict[str, int],
    computed: Mapping[str, StreamBuild],
    *,
    renewed: bool,
) -> tuple[list[Action], dict[str, Build]]:
    """What is to be begun, and for each view of several tables, or of a stream, the build that its followers are to
    read. `computed`: of each stream, the build that is to be read.
    """
    actions, found = [], dict[str, Build]()
    streams = {name: build.table for name, build in computed.items()}
    source = view_source(config, context.source, tables, streams=streams)
    epochs = epochs | {build.table.full_name: build.number for build in computed.values()}
    for name, view in config.views.items():
        if not view.joined:
            continue
        tree, problems = resolve(name, view, source)
        if problems:
            raise ConfigError(*(config.at(at, what) for at, what in problems), hint=CORRECT_THE_FILE)
        if tree is None:
            continue  # a table of it is not there, which `check` says
        before = newest_build(state, name)
        kept = [milliseconds(config.source.tables[table].retention) for table in tree.tables if table in tables]
        own = computed[tree.stream].partitions if tree.stream else config.source.tables[tree.root.table].partitions
        wanted = Build(
            1 if before is None else before.number + 1,
            tree,
            {table: epochs[table] for table in tree.tables},
            own or config.kafka.partitions,
            max([*kept, KEEP_DELETES_MS] if tree.stream else kept),
            history=history(state) + renewed,
        )
        another = another_topic(context.kafka, before.log) if before is not None and before.log is not None else ""
        if before is not None and before.same_definition(wanted) and not another:
            found[name] = before
            continue
        found[name] = wanted
        detail = f"build {wanted.number}, of {', '.join(name.removeprefix('.') for name in tree.tables)}"
        if before is not None:
            detail += f", since its topic {another}" if another else ", next to the one that is there"
        actions.append(
            Action(
                "create" if before is None else "rebuild", f"view {name}", detail, do=_begin(config, context, wanted)
            )
        )
    return actions, found


def _begin(config: Config, context: PlanContext, wanted: Build) -> Callable[[], None]:
    def begin() -> None:
        build = wanted.with_topic(context.kafka, config.name)
        context.control.write({build.key: build.to_json()})

    return begin


def plan_views_removal(config: Config, context: PlanContext, state: State, existing: set[str]) -> list[Action]:
    """Forget views that were taken out of the configuration, with their topics."""
    actions = []
    views = {key.rpartition("/")[0] for key in state.by_prefix("view")}
    for name in sorted(name for name in views if name not in config.views or not config.views[name].joined):
        found = builds(state, name)
        for number in found:
            topic = names.view_topic(config.name, name, number)
            if topic in existing:
                actions.append(Action("drop", f"topic {topic}", do=bind(context.kafka.delete, topic)))
        gone = [build.key for build in found.values()]
        gone += [progress_key(name, n, shard) for n, build in found.items() for shard in range(build.view.shards)]
        actions.append(Action("forget", f"view {name}", do=bind(context.control.write, dict.fromkeys(gone))))
    return actions
