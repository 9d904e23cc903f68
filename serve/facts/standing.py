"""Where a pipeline stands: the control topic, and what the source and Kafka Connect say now."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from connectors.debezium.connect import Connect
from connectors.pipeline.guard import connector_trouble, topic_troubles, troubles
from connectors.pipeline.token import untrusted
from connectors.postgres.catalogue import CatalogueLook
from connectors.postgres.client import Postgres
from connectors.postgres.slot_reader import slot_reader_facts
from driftless import names
from driftless.config.models import Config
from driftless.control.health import CHECK, Kind, Problem
from driftless.control.status import SourceStatus, status
from driftless.control.topic import Control
from driftless.errors import SourceUnavailable, SyncError
from driftless.facts.state import State
from driftless.kafka.client import Kafka

T = TypeVar("T")
ANSWER_SECONDS = 5.0
"""For so long, an answer of one server is waited for: who looks where followers stand must not wait for one that
sleeps."""
_SOURCE_SECONDS = 12.0
"""The same of all that the source, Connect and the topics are asked."""
_CHECK_DSN = "see whether the server runs, and `source.dsn` leads to it"


def facts_of(config: Config, control: Control) -> dict[str, Any]:
    """The facts of `status`. A server that cannot be reached leaves its own part empty, and is one of the problems."""
    state, now = control.read(), control.now()  # together: while the source is waited for, leases would seem to run out
    return status(config, state, source_status(config, control.kafka, state), now)


def source_status(config: Config, kafka: Kafka, state: State) -> SourceStatus:
    """What the source and Connect say, or that they do not answer. `state` takes in what is found of the slot."""
    found = within(_SOURCE_SECONDS, lambda: _source(config, kafka, state))
    if found is not None:
        return found
    what = f"it does not answer within {_SOURCE_SECONDS:.0f} s"
    return SourceStatus(troubles=[Problem(Kind.SOURCE_UNREACHABLE, "source", what, _CHECK_DSN, unreachable=True)])


def _source(config: Config, kafka: Kafka, state: State) -> SourceStatus:
    found = SourceStatus()
    try:
        with Postgres(config.source.dsn, patience=ANSWER_SECONDS) as postgres:
            slot = postgres.slot(names.slot(config.name))
            state.merge(slot_reader_facts(postgres, names.slot(config.name), state, watched=False))
            found = SourceStatus(postgres.lsn(), time=postgres.clock())
            if slot is not None:
                found = replace(
                    found,
                    slot=slot.name,
                    slot_lag_bytes=slot.lag_bytes,
                    slot_left_bytes=slot.left_bytes,
                    slot_status=slot.wal_status,
                )
            warnings = list(filter(None, [untrusted(postgres, config.name, state)]))
            found = replace(found, changed=dict(CatalogueLook.of(config, postgres).changes(state)), warnings=warnings)
            connector, problems = _problems(config, kafka, postgres, state)
            return replace(found, connector=connector, troubles=problems)
    except SyncError as exc:
        away = isinstance(exc, SourceUnavailable)
        kind = Kind.SOURCE_UNREACHABLE if away else Kind.SOURCE_TROUBLE
        return replace(found, troubles=[Problem(kind, "source", str(exc), exc.hint or _CHECK_DSN, unreachable=away)])


def _problems(config: Config, kafka: Kafka, postgres: Postgres, state: State) -> tuple[str | None, list[Problem]]:
    """The connector's state, and what is wrong with the log and with what brings it: slot, topics, connector."""
    connect = Connect(config.connect, patience=ANSWER_SECONDS)
    found = list(_log_problems(config, kafka, postgres, connect, state))
    if state.get("pipeline/identity") is None:
        what = "this pipeline was never applied to the end"
        return None, [*found, Problem(Kind.NOT_APPLIED, "source", what, "run `driftless apply`")]
    try:
        told = connect.state(names.connector(config.name))
        held = connector_trouble(config.name, told, postgres, kafka)
    except SyncError as exc:
        away = isinstance(exc, SourceUnavailable)
        kind = Kind.CONNECT_UNREACHABLE if away else Kind.CONNECTOR_TROUBLE
        return None, [*found, Problem(kind, "Kafka Connect", str(exc), exc.hint or CHECK, unreachable=away)]
    if held is not None:
        found.append(Problem(Kind.CONNECTOR_TROUBLE, "connector", held.what, held.hint))
    return told[0], found


def _log_problems(
    config: Config, kafka: Kafka, postgres: Postgres, connect: Connect, state: State
) -> Iterator[Problem]:
    for trouble in (*troubles(config, postgres, connect, state), *topic_troubles(config, kafka, state)):
        yield Problem(Kind.SOURCE_TROUBLE, "source", trouble.what, trouble.hint)


def within(seconds: float, ask: Callable[[], T]) -> T | None:
    """What `ask` gives, where that does not take longer; a library that waits for a server may never return."""
    answers: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(ask())
        except BaseException as exc:  # noqa: BLE001
            failures.append(exc)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if failures:
        raise failures[0]
    return answers[0] if answers else None
