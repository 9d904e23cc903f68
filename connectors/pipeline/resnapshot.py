"""Start over where the source's log has a gap: Connect forgets its position, and Debezium re-snapshots all tables.

Whoever runs finds that snapshot told in the log, begins an epoch of each table there and builds its followers from it.
So nothing has to be kept of the gap, and an interrupted renewal is begun again or goes on by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from connectors.debezium.connector import topic_plan
from connectors.pipeline.guard import Trouble, troubles
from connectors.pipeline.plan_context import Action, PlanContext
from driftless import names
from driftless.config.models import Config
from driftless.control.initial_snapshot import newest_initial_snapshot
from driftless.errors import SourceError
from driftless.facts.epochs import another_topic, registered_log
from driftless.facts.state import RENEWAL, UNWATCHED, WATCHED, State, history
from driftless.facts.trust import TRUST, Trust
from driftless.kafka.client import Kafka

STOP_SECONDS = 60.0


def plan_renewal(config: Config, context: PlanContext, state: State, *, resnapshot: bool) -> list[Action]:
    """What re-snapshots all tables, where that is called for or wanted. It leaves the connector stopped."""
    found = [
        t for t in troubles(config, context.source, context.connect, state) if t.renewal or (resnapshot and t.history)
    ]
    if not found and resnapshot and context.connect.config(names.connector(config.name)) is not None:
        found = [Trouble("this was asked for")]
    if not found:
        return []
    return [Action("read anew", "all tables", found[0].what, do=_renew(config, context, found[0]))]


def _renew(config: Config, context: PlanContext, trouble: Trouble) -> Callable[[], None]:
    def renew() -> None:
        connector, slot = names.connector(config.name), names.slot(config.name)
        context.control.write(trouble.fact())  # until it is done, whatever becomes of this process
        context.connect.stop(connector)
        stop_by(context, slot, connector)
        context.connect.forget(connector)
        if context.source.slot(slot) is not None:
            context.source.drop_slot(slot)
        if trouble.history:
            # Positions of another history may be higher than all that come.
            for topic in (names.message_topic(config.name), names.transaction_topic(config.name)):
                partitions, settings = topic_plan(config)[topic]
                remake(context.kafka, topic, partitions, settings)
        state = context.control.read()
        identity = {**context.source.identity(), "history": history(state) + 1}
        facts = {**_withdrawn(state), **_awaited(context.kafka, config.name, state), **_cut(context.kafka, state)}
        if trouble.history and state.get(TRUST) is not None:
            facts[TRUST] = Trust.of(config.name, state).in_another_history().to_json()
        forgotten = dict.fromkeys((RENEWAL, WATCHED, UNWATCHED))
        context.control.write({**facts, "pipeline/identity": identity, **forgotten})

    return renew


def _withdrawn(state: State) -> dict[str, dict[str, object] | None]:
    """No follower has reached a position any more that it claimed: changes are missing before it."""
    claims = {
        key: {**fact.value, "applied_lsn": None, "marker_time": None}
        for key, fact in state.facts.items()
        if key.startswith("follower/")
    }
    return {**claims, **dict.fromkeys(key for key in state.facts if key.startswith("build/"))}


def _awaited(kafka: Kafka, pipeline: str, state: State) -> dict[str, dict[str, object] | None]:
    """The next reading begins an epoch of each table, of an empty one too: followers wait for it."""
    newest = newest_initial_snapshot(kafka, pipeline)
    after = 0.0 if newest is None else newest.begun
    return {f"read/{name}": {**(state.get(f"read/{name}") or {}), "after": after} for name in state.by_prefix("epochs")}


def _cut(kafka: Kafka, state: State) -> dict[str, dict[str, object] | None]:
    """Logs that end before their newest epoch begins, since a broker lost the rest: the next one begins before that."""
    facts: dict[str, dict[str, object] | None] = {}
    for name in state.by_prefix("epochs"):
        log = registered_log(state, name)
        if log is None or another_topic(kafka, log):
            continue
        cut = log.clamped_to(kafka.written_ends({log.topic: log.partitions})[log.topic])
        if cut != log:
            facts |= cut.fact(name)
    return facts


def stop_by(context: PlanContext, slot: str, connector: str) -> None:
    """Return once a connector that was told to stop has left its slot."""
    deadline = time.monotonic() + STOP_SECONDS
    while True:
        found = context.source.slot(slot)
        if context.connect.state(connector)[0] in ("STOPPED", "UNASSIGNED") and (found is None or not found.active):
            return
        if time.monotonic() > deadline:
            raise SourceError(
                f"the slot {slot} is still in use {STOP_SECONDS:.0f} s after the connector was stopped",
                hint="something else reads from it: end that, then run `driftless apply` again",
            )
        time.sleep(0.2)


def remake(kafka: Kafka, topic: str, partitions: int, settings: dict[str, str]) -> None:
    """Delete a topic and make it again, empty."""
    old = kafka.topic(topic)
    kafka.delete(topic)
    deadline = time.monotonic() + STOP_SECONDS
    while (found := kafka.topic(topic)) is None or (old is not None and found.id == old.id):
        if found is None:
            kafka.create(topic, partitions, settings)
        if time.monotonic() > deadline:
            raise SourceError(f"the topic {topic} could not be recreated", hint="`driftless apply` tries again")
        time.sleep(0.2)
