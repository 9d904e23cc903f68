"""What following a generation needs, put together from the control topic and the configuration."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from driftless import names
from driftless.config.models import Config
from driftless.errors import ConfigError, SinkError, SourceError
from driftless.facts.column_history import known_since
from driftless.facts.epochs import TopicLog
from driftless.facts.generation import Generation
from driftless.facts.state import State, history
from driftless.kafka.client import Kafka, Offsets
from driftless.sink import SinkContext
from driftless.table import Table
from driftless.where.clause import parse as parse_where
from jobs.decode.arrow_documents import plain_documents
from jobs.decode.document_rows import DocumentRows
from jobs.decode.documents import documents_sql, writes_sql
from jobs.decode.where_sql import log_filter
from jobs.follow.apply import SinkSpec
from jobs.follow.progress import lasting
from jobs.spark.arrow import ArrowRows
from jobs.spark.source import LogSource, kafka_options
from sinks import config_model


@dataclass(frozen=True)
class Job:
    """What to follow, into what. `retention`: seconds for which the log keeps deletes. `checked`: count when built;
    `countable`: that means anything, since no document expires.

    `history`: of the source, in which positions are claimed.
    """

    follower: str
    view: str
    generation: int
    log: TopicLog
    source: LogSource
    spec: SinkSpec
    retention: float
    checked: bool = False
    countable: bool = True
    history: int = 0

    def require_records(self, beginnings: Offsets, positions: Offsets) -> None:
        """Raise SourceError where the log has forgotten records from these positions on."""
        lost = [p for p, first in beginnings.items() if first > positions[p]]
        if lost:
            raise SourceError(
                f"{self.log.topic}: records that this follower has not read are gone from partition {lost[0]}",
                hint="is cleanup.policy=compact? `driftless check` compares the topic with what is needed",
            )

    def require_deletes(self, at_head: float) -> None:
        """Raise SourceError where the log may have forgotten deletes that a generation has not seen which was last at
        the log's end at `at_head`, in seconds since 1970.

        The clocks of two machines may differ by minutes; retention is counted in days.
        """
        away = time.time() - at_head
        if away > self.retention:
            raise SourceError(
                f"the follower has not reached the log's end for {lasting(away)}; the log keeps deletes for "
                f"{lasting(self.retention)}, so it may still hold rows that are gone",
                hint=f"`driftless rebuild {self.follower}` rebuilds it while readers keep what they have",
            )

    def require_count(self, found: int, wanted: int, *, quarantined: int) -> None:
        """Raise SinkError where the store has another number of documents than the log. One that is quarantined may be
        there in an older version, or not.
        """
        if not wanted - quarantined <= found <= wanted:
            raise SinkError(
                f"generation {self.generation} was built with {found:,} documents, the log has {wanted:,}",
                hint=f"was the store restored, or does something else write into it? `driftless rebuild "
                f"{self.follower}` rebuilds it",
            )


def make_job(config: Config, follower: str, generation: Generation, state: State, kafka: Kafka) -> Job:
    """Everything that following a generation needs, from the control topic and the configuration: no database."""
    entry = config.followers[follower]
    context = SinkContext(config.name, follower, generation.table.key)
    settings = generation.settings(entry)
    try:
        store = config_model(generation.kind).model_validate(settings)
        store.validate_for(context)
    except ValueError as exc:
        raise ConfigError(
            f"followers.{follower}.{generation.kind}: {exc}",
            hint="correct the follower in sync.yaml, then `driftless apply`",
        ) from None
    followed = generation.followed
    log = followed.topic(state)
    if followed.ours:
        source = _source(kafka, follower, log, documents_sql(log), DocumentRows(log))
    else:
        source = _table_source(config, kafka, follower, generation, state, log)
    spec = SinkSpec(generation.kind, settings, context)
    countable = not store.expires
    checked = generation.number > 1 and countable
    return Job(
        follower,
        generation.view,
        generation.number,
        log,
        source,
        spec,
        followed.retention_seconds(config, state),
        checked=checked,
        countable=countable,
        history=history(state),
    )


def _table_source(
    config: Config, kafka: Kafka, follower: str, generation: Generation, state: State, log: TopicLog
) -> LogSource:
    """Documents of the rows in a table's log."""
    table, fields = generation.table, generation.fields
    keep = None if generation.where is None else log_filter(parse_where(generation.where), table)
    since = _since(state, table, log)
    steps = writes_sql(table, fields, log, keep, unavailable=names.unavailable(config.name), since=since)
    # No Arrow evaluates a `where`.
    arrow = None if keep else arrow_documents(config, state, table, fields, log)
    return _source(kafka, follower, log, steps, arrow)


def arrow_documents(
    config: Config, state: State, table: Table, fields: Mapping[str, str], log: TopicLog
) -> ArrowRows | None:
    """Documents of a table's log without Spark and without a `where`; None where only Spark decodes a column."""
    since = _since(state, table, log)
    return plain_documents(table, fields, log, unavailable=names.unavailable(config.name), since=since)


def _since(state: State, table: Table, log: TopicLog) -> dict[str, int]:
    known = known_since(state, table.full_name, log.newest.number)
    return {column.name: known[column.name] for column in table.columns if column.name in known}


def _source(
    kafka: Kafka, follower: str, log: TopicLog, steps: tuple[list[str], list[str]], arrow: ArrowRows | None
) -> LogSource:
    parse, shape = steps
    options = kafka_options(kafka, follower)
    if "headers" in parse:
        options["includeHeaders"] = "true"
    return LogSource(log.topic, options, tuple(parse), tuple(shape), arrow, kafka)
