"""Kafka: one broker that is its own controller."""

from __future__ import annotations

import base64
import json
import logging
import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from driftless.kafka.topic_settings import MAX_MESSAGE_BYTES
from stack.machine.home import Report
from stack.servers.server import JavaServer, log4j2, properties

# The broker at INFO, less what it says about every segment, session and topic of its own.
_LEVELS = {
    "org.apache.kafka": "warn",
    "org.apache.kafka.server.BrokerServer": "info",
    "kafka": "warn",
    "kafka.server": "info",
    "kafka.server.metadata": "warn",
    "kafka.server.ReplicaFetcherManager": "warn",
    "kafka.log": "warn",
    "state.change.logger": "warn",
    "org.apache.kafka.common.config": "error",
}

HEAP = "768m"
MORE = "kafka.more.json"
"""A file in the stack's folder with further settings of its broker. Those of `_LISTENERS` are added to ours."""
_LISTENERS = ("listeners", "advertised.listeners", "listener.security.protocol.map")


class Kafka(JavaServer):
    """The log. Topics are made by those who own them, never by a mistyped name."""

    name = "kafka"
    port_names = ("kafka", "kafka-controller")

    def confs(self) -> list[str]:
        return ["kafka"]

    def settings(self) -> dict[str, object]:
        broker, controller = self.site.address("kafka"), self.site.address("kafka-controller")
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{broker}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.site.make("data", "kafka"),
            "auto.create.topics.enable": "false",
            "default.replication.factor": 1,
            "min.insync.replicas": 1,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 5,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 5,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            # A killed broker may register again only when its old session has ended: 12 s to return with the default of
            # 9 s, 8 s with this.
            "broker.session.timeout.ms": 6000,
            "broker.heartbeat.interval.ms": 1500,
            "message.max.bytes": MAX_MESSAGE_BYTES,
            "replica.fetch.max.bytes": MAX_MESSAGE_BYTES,
            "log.cleaner.enable": "true",
            "log.retention.check.interval.ms": 60000,
        }

    def _all_settings(self) -> dict[str, object]:
        """Ours, and those of the file MORE where there is one."""
        settings = self.settings()
        with suppress(FileNotFoundError):
            for name, value in json.loads((self.site.folder / MORE).read_bytes()).items():
                settings[name] = f"{settings[name]},{value}" if name in _LISTENERS else value
        return settings

    def prepare(self, report: Report) -> None:
        data = self.site.make("data", "kafka")
        folder = self.site.make("conf", "kafka")
        logging_file = self.write(folder, "log4j2.properties", log4j2(_LEVELS))
        config = self.write(folder, "server.properties", properties(self._all_settings()))
        if not (data / "meta.properties").exists():
            report("kafka: formatting its folder")
            cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
            storage = self.jvm("256m", "kafka.tools.StorageTool", logging=logging_file)
            self.run_once([*storage, "format", "--ignore-formatted", "-t", cluster, "-c", config])

    def command(self) -> Sequence[str | Path]:
        folder = self.site.folder / "conf" / "kafka"
        main = self.jvm(HEAP, "kafka.Kafka", logging=folder / "log4j2.properties")
        return [*main, folder / "server.properties"]

    def ready(self) -> bool:
        try:
            return bool(self._admin.list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    @cached_property
    def _admin(self) -> AdminClient:
        silent = logging.getLogger("driftless.stack.kafka")
        silent.addHandler(logging.NullHandler())
        silent.propagate = False
        return AdminClient({"bootstrap.servers": self.site.address("kafka")}, logger=silent)
