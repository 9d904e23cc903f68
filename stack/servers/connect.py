"""Kafka Connect with Debezium's PostgreSQL connector."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from driftless.config.kafka_security import in_worker, java
from driftless.kafka.topic_settings import MAX_MESSAGE_BYTES
from stack.machine import artifacts
from stack.machine.home import Report
from stack.machine.keys import USER, Keys
from stack.servers.http import answers
from stack.servers.kafka import WORKER, Kafka, login_of
from stack.servers.server import JavaServer, log4j2, properties

LEVELS = {
    "org.apache.kafka": "warn",
    "org.apache.kafka.connect.runtime": "info",
    "org.apache.kafka.connect.runtime.rest": "warn",
    "org.apache.kafka.connect.runtime.isolation": "warn",
    "org.apache.kafka.common.config": "error",
    "org.apache.kafka.clients.consumer": "error",
    "org.eclipse.jetty": "warn",
    "org.glassfish": "error",
    "io.debezium": "info",
}

SECRETS = "secrets"
HEAP = "768m"
MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
_LOGIN = "org.apache.kafka.connect.rest.basic.auth.extension"


def worker_settings(*, bootstrap: str, plugins: Path, secrets: Path) -> dict[str, object]:
    """What every worker of ours is told, the local stack's and the image's: all but where it listens and its group.

    `secrets`: the one folder that the config providers for files may read.
    """
    return {
        "bootstrap.servers": bootstrap,
        "plugin.path": plugins,
        "plugin.discovery": "service_load",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "config.storage.topic": "_connect-configs",
        "config.storage.replication.factor": 1,
        "offset.storage.topic": "_connect-offsets",
        "offset.storage.replication.factor": 1,
        "offset.storage.partitions": 5,
        "status.storage.topic": "_connect-status",
        "status.storage.replication.factor": 1,
        "status.storage.partitions": 3,
        "exactly.once.source.support": "enabled",
        "offset.flush.interval.ms": 1000,
        # One worker: nobody else could take the work over, so there is nothing to wait for.
        "scheduled.rebalance.max.delay.ms": 0,
        "session.timeout.ms": 10000,
        "heartbeat.interval.ms": 3000,
        "connector.client.config.override.policy": "All",
        "producer.max.request.size": MAX_MESSAGE_BYTES,
        # A connector's configuration names a secret; its text never enters the config topic. The file providers
        # read the secrets folder and nothing else of this machine.
        "config.providers": "env,file,dir",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "config.providers.file.param.allowed.paths": secrets,
        "config.providers.dir.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
        "config.providers.dir.param.allowed.paths": secrets,
    }


class Connect(JavaServer):
    """The worker. A connector's record and its offset land in one transaction, so a killed worker repeats none."""

    name = "connect"
    port_names = ("connect",)
    needs = ("kafka",)

    def confs(self) -> list[str]:
        return ["debezium", "kafka", *(["connect-login"] if self.site.keys is not None else [])]

    def url(self) -> str:
        return f"{'http' if self.site.keys is None else 'https'}://{self.site.address('connect')}"

    def settings(self) -> dict[str, object]:
        return {
            **worker_settings(
                bootstrap=self.site.address("kafka"),
                plugins=artifacts.conf_folder("debezium"),
                secrets=self.site.make(SECRETS),
            ),
            "group.id": Kafka(self.site).group,
            "listeners": self.url(),
            "rest.advertised.host.name": "127.0.0.1",
            "rest.advertised.port": self.site.ports["connect"],
            **({} if self.site.keys is None else self._secured(self.site.keys)),
        }

    def _secured(self, keys: Keys) -> dict[str, object]:
        """Its interface by TLS with a login, and the login of its own clients to the brokers."""
        return {
            "rest.extension.classes": f"{_LOGIN}.BasicAuthSecurityRestExtension",
            "rest.advertised.listener": "https",
            "listeners.https.ssl.keystore.type": "PKCS12",
            "listeners.https.ssl.keystore.location": keys.store,
            "listeners.https.ssl.keystore.password": keys.store_password,
            "listeners.https.ssl.key.password": keys.store_password,
            **in_worker(java(login_of(keys, WORKER))),
        }

    def prepare(self, report: Report) -> None:  # noqa: ARG002 - nothing takes long here
        folder = self.site.make("conf", "connect")
        self.write(folder, "log4j2.properties", log4j2(LEVELS))
        self.write(folder, "worker.properties", properties(self.settings()))
        if self.site.keys is not None:
            users = self.write(folder, "users.properties", properties({USER: self.site.keys.password(self.name)}))
            entry = f'KafkaConnect {{ {_LOGIN}.PropertyFileLoginModule required file="{users}"; }};\n'
            self.write(folder, "login.conf", entry)

    def command(self) -> Sequence[str | Path]:
        folder = self.site.folder / "conf" / "connect"
        main = self.jvm(HEAP, MAIN, logging=folder / "log4j2.properties")
        if self.site.keys is not None:
            at = main.index("-cp")
            main[at + 1] = f"{main[at + 1]}:{artifacts.conf_folder('connect-login') / 'connect-login'}/*"
            main.insert(at, f"-Djava.security.auth.login.config={folder / 'login.conf'}")
        return [*main, folder / "worker.properties"]

    def ready(self) -> bool:
        keys = self.site.keys
        login = "" if keys is None else f"{USER}:{keys.password(self.name)}"
        return all(answers(f"{self.url()}{path}", keys=keys, login=login) for path in ("/health", "/connectors"))
