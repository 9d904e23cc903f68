"""The connector and the topics of a pipeline: found, and taken away."""

from __future__ import annotations

import re
import time

from connectors.debezium.connect import Connect
from connectors.pipeline.plan_context import Action, bind
from connectors.pipeline.resnapshot import STOP_SECONDS
from driftless import names
from driftless.config.models import Config
from driftless.control.topic import Control
from driftless.counted import counted
from driftless.errors import SourceError
from driftless.facts.epochs import registered_tables
from driftless.facts.state import State
from driftless.kafka.client import Kafka

_OF_BUILD = r"\.(view\.[^.]+\.\d+|stream\.[^.]+\.\d+(\.(ticks|batches|late))?)"


def plan_connector(config: Config, connect: Connect) -> list[Action]:
    """It is stopped first: Connect forgets the position of a connector only while it is."""
    name = names.connector(config.name)

    def drop() -> None:
        connect.stop(name)
        deadline = time.monotonic() + STOP_SECONDS
        while connect.state(name)[0] not in ("STOPPED", "UNASSIGNED"):
            if time.monotonic() > deadline:
                raise SourceError(
                    f"the connector {name} has not stopped within {STOP_SECONDS:.0f} s",
                    hint="see the Connect worker's log, or restart the worker",
                )
            time.sleep(0.2)
        connect.forget(name)
        connect.delete(name)

    return [Action("drop", f"connector {name}", "with its position in the source's log", do=drop)]


def plan_topics(config: Config, kafka: Kafka, state: State, existing: set[str]) -> list[Action]:
    """All but the control topic, in one step. Topics of applications that events are read from are not ours."""
    ours = _topics(config, state, existing)
    if not ours:
        return []
    detail = ", ".join(ours[:3]) + (f" and {len(ours) - 3:,} more" if len(ours) > 3 else "")
    return [Action("drop", counted(len(ours), "topic"), detail, do=bind(kafka.delete, *ours))]


def _topics(config: Config, state: State, existing: set[str]) -> list[str]:
    pipeline = config.name
    tables = config.source.tables.keys() | registered_tables(state)
    known = {
        *(names.table_topic(pipeline, table) for table in (*tables, names.signal_table(pipeline))),
        names.message_topic(pipeline),
        names.transaction_topic(pipeline),
        names.notification_topic(pipeline),
        names.quarantine_topic(pipeline),
        names.heartbeat_topic(pipeline),
        names.heartbeat_topic(pipeline, config.kafka.heartbeat_prefix),
    }
    built = re.compile(re.escape(pipeline) + _OF_BUILD)
    given = {events.topic for events in config.events.values() if events.topic}
    return sorted(topic for topic in existing - given if topic in known or built.fullmatch(topic))


def plan_control(control: Control, existing: set[str]) -> list[Action]:
    """The last step of all: what there is to take away is known by it."""
    topic = control.topic
    return [Action("drop", f"topic {topic}", do=bind(control.kafka.delete, topic))] if topic in existing else []
