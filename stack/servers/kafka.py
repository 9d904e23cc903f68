"""Kafka: one broker that is its own controller."""

from __future__ import annotations

import base64
import json
import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from driftless.config.kafka_security import KafkaSecurity, librdkafka
from driftless.errors import StackError
from driftless.kafka.topic_settings import MAX_MESSAGE_BYTES
from stack.machine.home import Report
from stack.machine.keys import SERVER, USER, Keys
from stack.servers.kafka_rights import allow, rights_of_connector, rights_of_pipeline, rights_of_worker
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


WORKER = "connect"
"""Who logs in to a secured broker by SCRAM beside driftless, with the rights of kafka_rights.py: the Connect worker."""
_ADMIN, _BROKER = "admin", "broker"
"""Who may do everything: the stack itself, and the broker with itself. In its settings, since it starts with them."""
_MECHANISM = "SCRAM-SHA-512"
_ITERATIONS = 4096
"""Of SCRAM, the least that Kafka takes: the passwords are long and of chance."""
_MODULES = "org.apache.kafka.common.security"
_SCRAM = f"{_MODULES}.scram.ScramLoginModule"


class Kafka(JavaServer):
    """The log. Topics are made by those who own them, never by a mistyped name.

    Secured, clients reach it by TLS with a login, and may do nothing but what they were given a right to.
    """

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
        if self.site.keys is not None:
            settings |= self._secured(self.site.keys)
        with suppress(FileNotFoundError):
            for name, value in json.loads((self.site.folder / MORE).read_bytes()).items():
                settings[name] = f"{settings[name]},{value}" if name in _LISTENERS else value
        return settings

    def _secured(self, keys: Keys) -> dict[str, object]:
        broker, controller = self.site.address("kafka"), self.site.address("kafka-controller")
        users = " ".join(f'user_{role}="{keys.password(self.name, role)}"' for role in (_ADMIN, _BROKER))
        own = f'username="{_BROKER}" password="{keys.password(self.name, _BROKER)}"'
        return {
            "listeners": f"CLIENT://{broker},CONTROLLER://{controller}",
            "advertised.listeners": f"CLIENT://{broker}",
            "listener.security.protocol.map": "CLIENT:SASL_SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "CLIENT",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.client.sasl.enabled.mechanisms": f"PLAIN,{_MECHANISM}",
            "listener.name.client.plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {own} {users};",
            f"listener.name.client.{_MECHANISM.lower()}.sasl.jaas.config": f"{_SCRAM} required;",
            "listener.name.controller.ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{_ADMIN};User:{_BROKER};User:CN={SERVER}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": keys.certificate(SERVER).read_text(encoding="utf-8"),
            "ssl.keystore.key": keys.key(SERVER).read_text(encoding="utf-8"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": keys.ca,
        }

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
        return _answers(self._admin)

    @cached_property
    def _admin(self) -> AdminClient:
        return self._client(_ADMIN)

    def _client(self, user: str) -> AdminClient:
        silent = logging.getLogger("driftless.stack.kafka")
        silent.addHandler(logging.NullHandler())
        silent.propagate = False
        login = {} if self.site.keys is None else librdkafka(login_of(self.site.keys, user))
        return AdminClient({"bootstrap.servers": self.site.address("kafka"), **login}, logger=silent)

    def open(self) -> None:
        """Make the users known, and give the worker its rights."""
        if self.site.keys is None:
            return
        with _refusals():
            for user in (USER, WORKER):
                credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
                change = UserScramCredentialUpsertion(
                    user, credential, self.site.keys.password(self.name, user).encode()
                )
                for done in self._admin.alter_user_scram_credentials([change]).values():
                    done.result()
            allow(self._admin, WORKER, rights_of_worker(self.group))
        for user in (USER, WORKER):
            self.require(f"the login of {user}", partial(_answers, self._client(user)))

    def allow(self, pipeline: str) -> None:
        """Give the users what a pipeline of this name needs."""
        with _refusals():
            allow(self._admin, USER, rights_of_pipeline(pipeline))
            allow(self._admin, WORKER, rights_of_connector(pipeline, self.group))

    @property
    def group(self) -> str:
        """Of the Connect worker."""
        return f"connect-{self.site.stack}"


def _answers(client: AdminClient) -> bool:
    try:
        return bool(client.list_topics(timeout=2).brokers)
    except KafkaException:
        return False


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except KafkaException as exc:
        what = f"kafka: its users and their rights could not be made: {exc.args[0].str()}"
        raise StackError(what, hint="the log tells more: try again", unreachable=True) from exc


def login_of(keys: Keys, user: str) -> KafkaSecurity:
    """How a user of the secured broker logs in."""
    mechanism = "PLAIN" if user == _ADMIN else _MECHANISM
    fields = {"protocol": "SASL_SSL", "mechanism": mechanism, "username": user, "ca": str(keys.ca)}
    return KafkaSecurity.model_validate({**fields, "password": keys.password(Kafka.name, user)})
