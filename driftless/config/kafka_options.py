"""`kafka.options`: settings that tune clients. librdkafka's names, and what of them the Java client is given."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from driftless.config.kafka_security import belongs_to_security
from driftless.suggest import nearest

_log = logging.getLogger("driftless.kafka.options")
_log.setLevel(logging.CRITICAL)
_USUAL = (
    "client.id",
    "client.rack",
    "compression.type",
    "fetch.max.bytes",
    "message.max.bytes",
    "metadata.max.age.ms",
    "reconnect.backoff.max.ms",
    "request.timeout.ms",
    "socket.timeout.ms",
)
"""Settings that an operator may mean: the library cannot list its own."""
_SAME = (
    "client.id",
    "client.rack",
    "client.dns.lookup",
    "check.crcs",
    "enable.metrics.push",
    "fetch.max.bytes",
    "fetch.min.bytes",
    "max.partition.fetch.bytes",
    "metadata.max.age.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "socket.connection.setup.timeout.ms",
)
"""What Java's consumer calls so too, with the same values."""
_OTHERWISE = {
    "socket.timeout.ms": "request.timeout.ms",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "max.partition.fetch.bytes": "max.partition.fetch.bytes",
    "connections.max.idle.ms": "connections.max.idle.ms",
}
"""What it calls otherwise. What is in neither is of librdkafka's own workings, or of producers, which are all its."""
_DEFAULT_AT_ZERO = {"send.buffer.bytes": "-1", "receive.buffer.bytes": "-1", "connections.max.idle.ms": "-1"}
"""Where 0 is the system's own value, or never, to librdkafka, it is -1 to Java."""


def refused_options(options: Mapping[str, object]) -> dict[str, str]:
    """Which of the operator's settings are not taken, and why, without their values. Asks no broker."""
    refused = {}
    for name, value in options.items():
        if reason := belongs_to_security(name):
            refused[name] = reason
            continue
        try:
            AdminClient({name: _as_text(value)}, logger=_log)
        except KafkaException as exc:
            said = str(exc.args[0].str())
            if said.startswith("No such configuration"):
                near = nearest(name, _USUAL)
                meant = f"; did you mean `{near}`?" if near else ": it takes librdkafka's names, not those of Java"
                refused[name] = f"the Kafka client has no such setting{meant}"
            elif said.startswith("Invalid value"):
                refused[name] = "the Kafka client does not take this value"
    return refused


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def java_options(options: Mapping[str, str]) -> dict[str, str]:
    """What of the operator's settings Java's consumer knows, by its own names."""
    same = {name: options[name] for name in _SAME if name in options}
    others = {_OTHERWISE[name]: value for name, value in options.items() if name in _OTHERWISE}
    return same | {n: _DEFAULT_AT_ZERO[n] if v == "0" and n in _DEFAULT_AT_ZERO else v for n, v in others.items()}
