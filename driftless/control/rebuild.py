"""What `rebuild` asks for, of a follower or of a stream."""

from __future__ import annotations

from dataclasses import replace

from driftless.config.models import Config
from driftless.control.topic import Control
from driftless.errors import ConfigError, SinkError
from driftless.facts.builds import newest_build
from driftless.facts.epochs import FollowedTable
from driftless.facts.followed_log import FollowedLog
from driftless.facts.generation import Generation, begin_facts, define, followed_table, generations, next_number
from driftless.facts.state import State, history
from driftless.facts.streams import newest_stream_build


def wanted_generation(config: Config, state: State, follower: str, *, auto_promote: bool) -> Generation:
    """The generation to ask for. The run of the follower begins it, or reports the one that it builds already."""
    table = followed_table(config, follower, state)
    if table is None:
        raise ConfigError(f"what `{follower}` follows has not been applied yet", hint="run `driftless apply` first")
    if state.get(f"paused/{follower}") is not None:
        raise SinkError(f"{follower} is paused", hint=f"`driftless resume {follower}` first")
    view = config.followers[follower].view
    if view in config.streams:
        computed = newest_stream_build(state, view)
        assert computed is not None
        return define(config, follower, table, log=computed.followed, auto_promote=auto_promote)
    if config.table_of(follower):
        fact_of_table(config, state, follower, "epochs")
    if not config.views[view].joined:
        log: FollowedLog = FollowedTable(table.full_name).newest(state)
    elif build := newest_build(state, view):
        log = build.followed
    else:
        raise ConfigError(f"the view `{view}` has not been applied yet", hint="run `driftless apply` first")
    return define(config, follower, table, log=log, auto_promote=auto_promote)


def fact_of_table(config: Config, state: State, follower: str, kind: str) -> dict[str, object]:
    """A fact of the table that the follower's view is made of."""
    fact = state.get(f"{kind}/{config.table_of(follower)}")
    if fact is None:
        raise ConfigError(f"the table of `{follower}` has not been applied yet", hint="run `driftless apply` first")
    return fact


def rebuild_stream(config: Config, control: Control, stream: str) -> int:
    """Begin another build of a stream as it is, and with it of each view that has it as its root, and a generation of
    each follower; the number of the build.

    Raises ConfigError where it was never applied.
    """
    state = control.read()
    before = newest_stream_build(state, stream)
    if before is None:
        raise ConfigError(f"the stream `{stream}` has not been applied yet", hint="run `driftless apply` first")
    again = replace(before, number=before.number + 1, why="it was asked for", log=None)
    again = again.from_first_events(control.kafka).with_topics(control.kafka, config.name)
    facts: dict[str, dict[str, object] | None] = {again.key: again.to_json()}
    logs: dict[str, FollowedLog] = {stream: again.followed}
    for name, view in config.views.items():
        if view.stream == stream and (old := newest_build(state, name)) is not None:
            epochs = old.epochs | {again.table.full_name: again.number}
            fresh = old.followed_by(control.kafka, config.name, epochs, f"{stream}: {again.why}", history(state))
            facts[fresh.key] = fresh.to_json()
            logs[name] = fresh.followed
    for name, follower in config.followers.items():
        if follower.view in logs and generations(state, name):
            number = next_number(state, name)
            facts |= begin_facts(name, define(config, name, again.table, log=logs[follower.view], number=number))
    control.write(facts)
    return again.number
