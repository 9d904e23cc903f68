"""Listeners of the session's broker that ask for a login, with certificates of a CA that is made for it."""

from __future__ import annotations

import json
import logging
import subprocess
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
from stack.machine.ports import LOOPBACK, is_free
from stack.servers.kafka import MORE
from stack.servers.kafka_rights import allow, rights_of_pipeline
from tests.support.machine import until

PLAIN_USER, PLAIN_PASSWORD = "shop", "canary-plain-5511"
SCRAM_USER = "scram"
LEAST_USER = "least"
"""Who may do what docs/security.md says, and nothing else; with the password of SCRAM_USER."""
SCRAM_PASSWORD = 'canary-"scram\\ 77=;,ä$'  # noqa: S105
"""Everything that a JAAS line, a YAML file or a list of options could take for something else."""
KEY_PASSWORD = "canary-key-3313"  # noqa: S105
_FIRST_PORT = 31100
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
        silent = logging.getLogger("tests.support.secured")
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


class Certificates:
    """A CA, a broker's and a client's certificate by it, and another CA. Made when they are first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ca, self.other_ca = folder / "ca.pem", folder / "other.pem"
        self.broker, self.broker_key = folder / "broker.pem", folder / "broker.key"
        self.client, self.client_key = folder / "client.pem", folder / "client.key"
        self.encrypted_key, self.old_key = folder / "client-encrypted.key", folder / "client-sec1.key"
        self.chain, self.chain_key = folder / "chain.pem", folder / "far.key"
        self.stranger, self.stranger_key = folder / "stranger.pem", folder / "stranger.key"
        if not self.chain.exists():
            self._make()

    def _make(self) -> None:
        for name in ("ca", "other"):
            new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30")
            self._openssl("req", "-x509", *new, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")
        self._sign("broker", "/CN=broker", f"subjectAltName=IP:{LOOPBACK}")
        self._sign("client", "/CN=driftless", "subjectAltName=DNS:driftless")
        encrypted = ("-v2", "aes-256-cbc", "-passout", f"pass:{KEY_PASSWORD}")
        self._openssl("ec", "-in", "client.key", "-out", self.old_key.name)
        self._openssl("pkcs8", "-topk8", "-in", "client.key", *encrypted, "-out", self.encrypted_key.name)

        self._sign("middle", "/CN=middle", "basicConstraints=critical,CA:true")
        self._sign("far", "/CN=far", "subjectAltName=DNS:far", by="middle")
        self._sign("stranger", "/CN=stranger", "subjectAltName=DNS:stranger", by="other")
        self.chain.write_text("".join((self._folder / f"{name}.pem").read_text() for name in ("far", "middle")))

    def _sign(self, name: str, subject: str, extension: str, *, by: str = "ca") -> None:
        new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        self._openssl("req", *new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
        (self._folder / f"{name}.ext").write_text(extension)
        ca = ("-CA", f"{by}.pem", "-CAkey", f"{by}.key", "-CAcreateserial", "-days", "30", "-extfile", f"{name}.ext")
        self._openssl("x509", "-req", "-in", f"{name}.csr", *ca, "-out", f"{name}.pem")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self._folder, check=True, capture_output=True)


def prepare(stack: Stack) -> Secured:
    """Give a stack's broker the listeners. One that runs without them is started again."""
    found = Secured(make_folder(stack.folder / "secured"), {})
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
        sasl[f"listener.name.{name}.sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
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
        "super.users": f"User:ANONYMOUS;User:{PLAIN_USER};User:{SCRAM_USER};User:CN=driftless;User:CN=far",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": files.broker.read_text(),
        "ssl.keystore.key": files.broker_key.read_text(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": files.ca.read_text(),
    }
