"""All that a pipeline has, by what its servers say: the steps that take it away, and what stays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain

from cli.removal.documents import plan_documents, plan_machine
from connectors.debezium.connect import Connect
from connectors.pipeline.plan_context import Action, PlanContext
from connectors.postgres.client import Postgres
from connectors.removal.log import plan_connector, plan_control, plan_topics
from connectors.removal.source_objects import Left, is_other_source, left_in_source, plan_source
from driftless import names
from driftless.config.models import Config
from driftless.control.topic import Control
from driftless.errors import ConfigError, SourceError, SourceUnavailable, SyncError
from driftless.facts.state import State


@dataclass
class PipelineParts:
    """`documents`: steps that need no others. `log`: the connector, then what is in the source, then the topics; the
    steps of each need all those before it. `last`: what is done when all of these are.

    `left`: what stays on purpose. `unseen`: why a server could not be looked at: then what it has stays, and `last` is
    not done.
    """

    documents: list[Action] = field(default_factory=list)
    log: list[list[Action]] = field(default_factory=list)
    last: list[Action] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    unseen: list[SyncError] = field(default_factory=list)

    @property
    def actions(self) -> list[Action]:
        return [*self.documents, *chain.from_iterable(self.log), *self.last]


@contextmanager
def found(config: Config, control: Control, state: State, existing: set[str]) -> Iterator[PipelineParts]:
    """What there is, with the connections that its steps need until the block ends."""
    parts, opened = PipelineParts(), list[Postgres]()
    connect = Connect(config.connect)
    parts.documents, parts.left = plan_documents(config, state)
    parts.documents += plan_machine(config)
    parts.last = plan_control(control, existing)
    try:
        source, admin = _reached(config, opened, parts)
        connected = _connected(config, connect, parts)
        if connected is not None:  # else the connector may go on to write
            parts.log.append(plan_connector(config, connect) if connected else [])
            if source is not None and admin is not None:
                context = PlanContext(source, admin, control.kafka, connect, control)
                parts.log.append(_of_source(config, context, state, existing, parts, known=connected))
            parts.log.append(plan_topics(config, control.kafka, state, existing))
        yield parts
    finally:
        for each in opened:
            each.close()


def _reached(config: Config, opened: list[Postgres], parts: PipelineParts) -> tuple[Postgres | None, Postgres | None]:
    """The source as `run` sees it and with the rights of `admin_dsn`."""
    for dsn in dict.fromkeys([config.source.dsn, config.source.admin_dsn or config.source.dsn]):
        try:
            opened.append(Postgres(dsn))
        except (SourceUnavailable, ConfigError) as exc:
            parts.unseen.append(exc)
            return None, None
    return opened[0], opened[-1]


def _connected(config: Config, connect: Connect, parts: PipelineParts) -> bool | None:
    """Whether there is a connector; None where nobody can say."""
    try:
        return connect.config(names.connector(config.name)) is not None
    except (SourceError, ConfigError) as exc:
        parts.unseen.append(exc)
        return None


def _of_source(
    config: Config, context: PlanContext, state: State, existing: set[str], parts: PipelineParts, *, known: bool
) -> list[Action]:
    actions = plan_source(config, context, state, existing)
    if actions and not known and not state.facts:
        why = "this Kafka knows no such pipeline, so they may be those of another one of this name, with another Kafka"
    elif actions and is_other_source(context.source, state):
        why = "source.dsn leads to another server or database than the pipeline was applied to"
    else:
        parts.left += left_in_source(config, context.source)
        return actions
    parts.left.append((", ".join(action.what for action in actions), why))
    return []
