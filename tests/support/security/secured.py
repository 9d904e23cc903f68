"""Listeners of the session's broker that ask for a login, with certificates of a CA that is made for it."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from stack import Endpoints, Stack
from stack.machine.home import make_folder
from stack.machine.java import OPTIONS
from stack.machine.ports import LOOPBACK, is_free
from stack.servers.kafka import MORE
from stack.servers.kafka_rights import allow, rights_of_pipeline
from tests.support.machine import until
from tests.support.security.certificates import Certificates
from tests.support.security.token_server import AUDIENCE, TOKEN_USER, TokenKey

PLAIN_USER, PLAIN_PASSWORD = "shop", "canary-plain-5511"
SCRAM_USER = "scram"
LEAST_USER = "least"
"""Who may do what docs/security.md says, and nothing else; with the password of SCRAM_USER."""
SCRAM_PASSWORD = 'canary-"scram\\ 77=;,ä$'  # noqa: S105
"""Everything that a JAAS line, a YAML file or a list of options could take for something else."""
_FIRST_PORT = 31100
_SUPER = ("ANONYMOUS", PLAIN_USER, SCRAM_USER, TOKEN_USER, "CN=driftless", "CN=far")
_KEYS_OF_TOKENS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_MODULE = "org.apache.kafka.common.security"
_NAMES = {"SECURED": "SASL_SSL", "CERTIFIED": "SSL", "UNCIPHERED": "SASL_PLAINTEXT"}


@dataclass(frozen=True)
class Secured:
    """Where the listeners are, and the files of their CA. `folder` outlives the stack's restarts."""

    folder: Path
    ports: dict[str, int]

    def address(self, listener: str, host: str = LOOPBACK) -> str:
        return f"{host}:{self.ports[listener]}"

    @cached_property
    def files(self) -> Certificates:
        return Certificates(self.folder)

    @cached_property
    def token_key(self) -> TokenKey:
        return TokenKey(self.folder)

    def add_users(self, endpoints: Endpoints, password: str = SCRAM_PASSWORD) -> None:
        """Make the user of SCRAM known to the broker, by this password; PLAIN's stands in its settings."""
        admin = AdminClient({"bootstrap.servers": endpoints.kafka})
        changes = [
            UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
            for user in (SCRAM_USER, LEAST_USER)
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for change in changes:
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result()
        # The controller has it; the broker learns of it a moment later.
        login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": SCRAM_USER, "sasl.password": password}
        settings = {"bootstrap.servers": self.address("UNCIPHERED"), "security.protocol": "SASL_PLAINTEXT", **login}
        silent = logging.getLogger("tests.support.security.secured")
        silent.setLevel(logging.CRITICAL)

        def known() -> bool:
            try:
                return bool(AdminClient({**settings}, logger=silent).list_topics(timeout=5).brokers)
            except KafkaException:
                return False

        until("the broker to know the user", known)


def allow_least(endpoints: Endpoints, pipeline: str) -> None:
    """Give LEAST_USER the rights that docs/security.md names, for a pipeline of this name."""
    allow(AdminClient({"bootstrap.servers": endpoints.kafka}), LEAST_USER, rights_of_pipeline(pipeline))


def prepare(stack: Stack) -> Secured:
    """Give a stack's broker the listeners. One that runs without them is started again."""
    found = Secured(make_folder(stack.folder / "secured"), {})
    # A broker reads the keys of tokens only from addresses that its JVM was started with.
    place = f"-D{_KEYS_OF_TOKENS}={found.token_key.known.as_uri()}"
    if place not in os.environ.get(OPTIONS, ""):
        os.environ[OPTIONS] = f"{os.environ.get(OPTIONS, '')} {place}"
    if not (stack.folder / MORE).exists():
        found.ports.update(zip(_NAMES, _free_ports(stack.name), strict=True))
        (found.folder / "ports.json").write_text(json.dumps(found.ports))
        (stack.folder / MORE).write_text(json.dumps(_settings(found)))
        if "kafka" in stack.running():
            stack.stop("kafka")
            stack.start("kafka")
    return replace(found, ports=json.loads((found.folder / "ports.json").read_text()))


def _free_ports(name: str) -> Sequence[int]:
    """Above the blocks of stacks and below what Linux gives to outgoing connections; a place of its own by name."""
    first = _FIRST_PORT + sum(name.encode()) * 7 % 1500
    return [port for port in range(first, 32768) if is_free(port)][: len(_NAMES)]


def _settings(secured: Secured) -> dict[str, str]:
    listeners = ",".join(f"{name}://{secured.address(name)}" for name in _NAMES)
    files = secured.files
    plain = f'{_MODULE}.plain.PlainLoginModule required user_{PLAIN_USER}="{PLAIN_PASSWORD}";'
    sasl: dict[str, str] = {}
    for name in ("secured", "unciphered"):
        sasl[f"listener.name.{name}.sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
        token = f"listener.name.{name}.oauthbearer.sasl"
        sasl[f"{token}.jaas.config"] = f"{_MODULE}.oauthbearer.OAuthBearerLoginModule required;"
        sasl[f"{token}.server.callback.handler.class"] = f"{_MODULE}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        sasl[f"{token}.oauthbearer.jwks.endpoint.url"] = secured.token_key.known.as_uri()
        sasl[f"{token}.oauthbearer.expected.audience"] = AUDIENCE
        sasl[f"listener.name.{name}.plain.sasl.jaas.config"] = plain
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            line = f"{_MODULE}.scram.ScramLoginModule required;"
            sasl[f"listener.name.{name}.{mechanism}.sasl.jaas.config"] = line
    return {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in _NAMES.items()),
        **sasl,
        "listener.name.certified.ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": ";".join(f"User:{user}" for user in _SUPER),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": files.broker.read_text(),
        "ssl.keystore.key": files.broker_key.read_text(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": files.ca.read_text(),
    }
