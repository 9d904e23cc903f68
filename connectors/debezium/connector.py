"""The settings of the Debezium connector and of the topics it writes to."""

from __future__ import annotations

import re
from collections.abc import Mapping

from connectors.debezium.source_address import source_address
from driftless import names
from driftless.config.duration import milliseconds
from driftless.config.models import Config
from driftless.control import quarantine
from driftless.kafka.topic_settings import COMMON, MAX_MESSAGE_BYTES, history_settings, log_settings
from driftless.marker import marker_sql
from driftless.table import Column, Table, quoted, quoted_column, split_name
from driftless.types import refusal

"""The largest row that passes. A larger one stops the connector with its own message; nothing is skipped."""
PRINTED = {"IntervalStyle": "postgres", "bytea_output": "hex", "lc_monetary": "C"}
"""How Debezium's sessions print values, whatever the server, the database or the role are set to."""
INFINITE_DAYS = {"infinity": 2146033979, "-infinity": -2147472691}
CHUNK_ROWS = 10_000
"""Rows that are read at a time of a table that is added: between two chunks a heartbeat is waited for, at worst."""
LONGEST_PREFIX = 1_000
"""Of a logical message, in characters: a table's name and schema take 63 bytes each."""
HEARTBEAT_MS = 500
"""How often a marker is written when nobody waits for one: bounds how old an idle follower seems."""


def connector_settings(
    config: Config, source: Mapping[str, object], secret: str | None, tables: Mapping[str, Table]
) -> dict[str, str]:
    """What Connect gets. `source`: as `Postgres.parameters`. `secret`: a reference for a config provider."""
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    settings = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        **source_address(source, config.connect),
        "topic.prefix": config.name,
        "plugin.name": "pgoutput",
        "slot.name": names.slot(config.name),
        "publication.name": names.publication(config.name),
        # By hand: a publication of all tables makes the application's updates of tables without a key fail.
        "publication.autocreate.mode": "disabled",
        "table.include.list": ",".join(java_pattern(*split_name(name)) for name in sorted(config.source.tables)),
        "snapshot.mode": "initial",
        "snapshot.max.threads": "1",
        "snapshot.fetch.size": "10000",
        "max.batch.size": "8192",
        "max.queue.size": "32768",
        "max.queue.size.in.bytes": str(64 << 20),
        # What to_jsonb can be made of without loss.
        "decimal.handling.mode": "string",
        "time.precision.mode": "microseconds",
        "binary.handling.mode": "hex",
        "hstore.handling.mode": "json",
        "interval.handling.mode": "string",
        # Types that Debezium does not know come as the text that Postgres prints, and that is as these options say.
        "include.unknown.datatypes": "true",
        "database.options": " ".join(f"-c {name}={value}" for name, value in PRINTED.items()),
        # What stands for a large value that the source's log left out; followers stop at it.
        "unavailable.value.placeholder": names.unavailable(config.name),
        # A value that it cannot convert would be null without a word.
        "event.converting.failure.handling.mode": "fail",
        # A table that is added, or changed, is read while the others stream, without writing to the database.
        "read.only": "true",
        "incremental.snapshot.chunk.size": str(CHUNK_ROWS),
        # By a table: signals of a topic are read in another thread than the stream, and both then read chunks. The
        # thread that polls would take up the table's signals as well, so it is hardly ever to come round.
        "signal.enabled.channels": "source",
        "signal.data.collection": names.signal_table(config.name),
        "signal.poll.interval.ms": str((1 << 31) - 1),
        # The driver has the server prepare a statement that it runs for the fifth time. After ALTER TABLE that one
        # fails, and with it the snapshot of a table that was read as often before.
        "driver.prepareThreshold": "0",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": names.notification_topic(config.name),
        # Other applications' messages are none of ours. Whoever may connect can write one of a gigabyte: the prefix is
        # bounded here, and the content left behind below, or such a message would stop the connector.
        "message.prefix.include.list": rf"(?s)^(?!.{{{LONGEST_PREFIX + 1}}}){names.MARKER_PREFIX}.*",
        "heartbeat.interval.ms": str(HEARTBEAT_MS),
        "heartbeat.action.query": marker_sql(config.name),
        "tombstones.on.delete": "true",
        # The end of each transaction, by which a document of several tables never shows half of one.
        "provide.transaction.metadata": str(any(view.joined for view in config.views.values())).lower(),
        # Exactly once, one Kafka transaction a poll: a zombie task is fenced, a restarted one repeats nothing.
        "exactly.once.support": "required",
        "transaction.boundary": "poll",
        # Each poll is a transaction of Kafka; while nothing changes, two threads look once an interval, which at 10 ms
        # took 0.16 to 0.2 of a core.
        "poll.interval.ms": "25",
        "producer.override.linger.ms": "0",
        "producer.override.compression.type": "lz4",
        "producer.override.max.request.size": str(MAX_MESSAGE_BYTES),
        "producer.override.buffer.memory": str(64 << 20),
        "key.converter": json_converter,
        "value.converter": json_converter,
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "extended.headers.enabled": "false",
        # A record of a table's topic is the row as it is now, or a tombstone; the rest travels in headers.
        "transforms": "row,message",
        "transforms.row.type": "io.debezium.transforms.ExtractNewRecordState",
        # With `tombstone` the value keeps a schema, and the JSON converter writes the text `null` instead of none.
        "transforms.row.delete.tombstone.handling.mode": "delete-to-tombstone",
        "transforms.row.add.headers": "op:op,source.ts_us:ts,source.lsn:lsn,source.txId:tx,source.sequence:seq",
        "transforms.row.add.headers.prefix": "",
        "transforms.message.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.message.exclude": "message",
        "transforms.message.predicate": "message",
        "predicates": "message",
        "predicates.message.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        "predicates.message.pattern": re.escape(names.message_topic(config.name)),
        "errors.tolerance": "none",
    }
    if secret is not None:
        settings["database.password"] = secret
    if config.kafka.heartbeat_prefix != names.HEARTBEAT_PREFIX:
        settings["topic.heartbeat.prefix"] = config.kafka.heartbeat_prefix
    # A refused column is left out here too: one value that Debezium cannot read would stop the whole connector.
    excluded = [
        java_pattern(*split_name(name), column)
        for name, table in sorted(config.source.tables.items())
        for column in (*table.exclude, *_refused(tables.get(name)))
    ]
    if excluded:
        settings["column.exclude.list"] = ",".join(excluded)
    # Debezium would take some unique index of a table without a primary key: it is to take the one that we take.
    indexed = [
        f"{java_pattern(*split_name(name))}:{','.join(map(_escaped, table.key))}"
        for name, table in sorted(tables.items())
        if table.key_index
    ]
    if indexed:
        settings["message.key.columns"] = ";".join(indexed)
    # Debezium takes a comma for the end of a name, and has no way to quote a dot.
    plain = {name: table for name, table in sorted(tables.items()) if not set(name) & set(',"')}
    dated = {name: table for name, table in plain.items() if any(map(is_date, table.columns))}
    if dated:
        settings["snapshot.select.statement.overrides"] = ",".join(dated)
    for name, table in dated.items():
        settings[f"snapshot.select.statement.overrides.{name}"] = _snapshot_select(table)
    return settings


def java_pattern(*parts: str) -> str:
    """A regular expression of Java's for this one name. Without `(?-i)` Debezium takes capitals for small letters."""
    return "(?-i)" + r"\.".join(map(_escaped, parts))


def _escaped(part: str) -> str:
    return "".join(map(_literal, part))


def _literal(char: str) -> str:
    return char if char.isascii() and (char.isalnum() or char == "_") else f"\\x{{{ord(char):x}}}"


def _refused(table: Table | None) -> list[str]:
    return [] if table is None else [column.name for column in table.columns if refusal(column) is not None]


def is_date(column: Column) -> bool:
    return column.type == "date" and column.kind == "b" and not column.array and refusal(column) is None


def _snapshot_select(table: Table) -> str:
    """Dates as days since 1970: by way of the driver's own type a snapshot loses the era, and ten days of 1582."""
    shown = []
    for column in table.columns:
        name = quoted_column(column.name)
        if is_date(column):
            # The ends of the calendar that changes have for infinity.
            ends = " ".join(f"when '{end}' then {days}" for end, days in INFINITE_DAYS.items())
            shown.append(f"case {name} {ends} else {name} - date '1970-01-01' end as {name}")
        elif refusal(column) is None:
            shown.append(name)
    return f"select {', '.join(shown)} from {quoted(table.full_name)}"


_FLEETING = {"cleanup.policy": "delete", "retention.ms": str(milliseconds("7d"))}
_ENDS = {
    "cleanup.policy": "delete",
    # Only the newest are ever read, but those also when the source has been away for a month.
    "retention.ms": "-1",
    "retention.bytes": str(64 << 20),
    "segment.bytes": str(16 << 20),
}


def topic_plan(config: Config) -> dict[str, tuple[int, dict[str, str]]]:
    """Every topic but the control topic: name -> (partitions, settings that must hold)."""
    plan: dict[str, tuple[int, dict[str, str]]] = {
        # Compacted: the newest marker, and the newest TRUNCATE of each table, are kept for whoever was away.
        names.message_topic(config.name): (1, {**COMMON, "cleanup.policy": "compact", "segment.ms": "600000"}),
        names.table_topic(config.name, names.signal_table(config.name)): (1, _FLEETING),
        names.transaction_topic(config.name): (1, _ENDS),
        names.notification_topic(config.name): (1, _FLEETING),
        names.quarantine_topic(config.name): (1, {**COMMON, **quarantine.SETTINGS}),
        names.heartbeat_topic(config.name, config.kafka.heartbeat_prefix): (
            1,
            {**COMMON, "cleanup.policy": "compact", "segment.ms": "3600000"},
        ),
    }
    for name, table in config.source.tables.items():
        settings = log_settings(milliseconds(table.retention))
        if name in config.captured_events:
            settings |= history_settings(None if table.history is None else milliseconds(table.history))
        plan[names.table_topic(config.name, name)] = (table.partitions or config.kafka.partitions, settings)
    return plan
