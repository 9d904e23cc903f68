"""One model of security for all clients: what is refused before anything starts, and what a broker's refusal says."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import py4j.java_gateway  # type: ignore[import-untyped]
import py4j.protocol  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from cli.run import spark_jars
from driftless.config.kafka_options import java_options, refused_options
from driftless.config.kafka_security import (
    FIELD_OF,
    KafkaSecurity,
    java,
    librdkafka,
    problems,
    unreadable,
    worker_settings,
)
from driftless.config.models import KafkaConfig
from driftless.errors import SourceMisconfigured, SourceUnavailable
from driftless.kafka.client import Kafka, Setting
from jobs.spark.login import log_in, small_jvm
from jobs.spark.private import java_frame_of, java_session_of, jvm_of
from jobs.spark.refused import refusal
from jobs.spark.source import LogSource, read_slice
from stack import Endpoints
from tests.support.security.certificates import KEY_PASSWORD, Certificates
from tests.support.security.secured import PLAIN_PASSWORD, PLAIN_USER, SCRAM_PASSWORD, SCRAM_USER, Secured

SECONDS = 10.0
"""For so long at the most, a refusal may take: it is known after one, and this machine is slow."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def said(**fields: Any) -> list[tuple[str, str]]:
    return list(problems(KafkaSecurity(**fields)))


def test_fields_that_do_not_go_together(files: Certificates) -> None:
    login = {"mechanism": "PLAIN", "username": "u", "password": "p"}
    assert said(protocol="SASL_SSL", **login) == []
    assert said(protocol="SASL_SSL", mechanism="PLAIN", username="u") == [("protocol", "SASL_SSL needs `password`")]
    assert said(protocol="SSL", username="u") == [
        ("username", "has no meaning with `protocol: SSL`; did you mean `protocol: SASL_SSL`?")
    ]
    assert said(protocol="SASL_PLAINTEXT", ca=str(files.ca), **login) == [
        ("ca", "has no meaning with `protocol: SASL_PLAINTEXT`; did you mean `protocol: SASL_SSL`?")
    ]
    assert said(protocol="PLAINTEXT", ca=str(files.ca)) == [
        ("ca", "has no meaning with `protocol: PLAINTEXT`; did you mean `protocol: SSL`?")
    ]
    assert said(protocol="SSL", certificate=str(files.client)) == [("certificate", "needs `key` too")]


def test_a_key_that_cannot_be_read_is_named_without_a_part_of_it(files: Certificates) -> None:
    mine = {"protocol": "SSL", "ca": str(files.ca), "certificate": str(files.client)}
    assert said(**mine, key=str(files.client_key)) == []
    assert said(**mine, key=str(files.encrypted_key), key_password=KEY_PASSWORD) == []
    assert said(**mine, key=str(files.encrypted_key)) == [("key", "is encrypted: `key_password` is missing")]
    wrong = {"key": str(files.encrypted_key), "key_password": "x"}
    assert said(**mine, **wrong) == [("key_password", "does not open the key")]
    # What librdkafka says of one wrong password in 256, by which the key has a right padding.
    lucky = "ssl.key.pem failed: error:1E08010C:DECODER routines::unsupported"
    assert unreadable(lucky, tried=True) == ("key_password", "does not open the key")
    assert unreadable(lucky, tried=False)[0] == "key"
    assert said(**mine, key=str(files.broker_key)) == [("key", "is not the key of `certificate`")]
    ((field, what),) = said(**mine, key=str(files.old_key))
    assert (field, what.split(",")[0]) == ("key", "begins with `BEGIN EC PRIVATE KEY`")
    ((field, what),) = said(protocol="SSL", ca="-----BEGIN CERTIFICATE-----\ncanary\n-----END CERTIFICATE-----\n")
    assert field == "ca"
    assert "canary" not in what


def test_pem_is_a_path_or_text_also_with_its_lines_in_one(files: Certificates) -> None:
    text = files.ca.read_text()
    for given in (str(files.ca), text, text.replace("\n", "\\n")):
        assert KafkaSecurity(protocol="SSL", ca=given).ca == text


def test_what_is_secret_does_not_show(files: Certificates) -> None:
    secrets = {"password": "canary", "key": str(files.client_key), "key_password": "canary"}
    login = {"mechanism": "PLAIN", "username": "u", "certificate": str(files.client), **secrets}
    security = KafkaSecurity.model_validate({"protocol": "SASL_SSL", **login})
    assert not re.search("canary|BEGIN", f"{security!r} {security} {KafkaConfig(bootstrap='b:1', security=security)!r}")


def test_a_password_of_any_characters_is_one_text_to_java() -> None:
    odd = 'a"b\\c\nd;='
    given = KafkaSecurity(protocol="SASL_SSL", mechanism="SCRAM-SHA-512", username="u", password=odd)
    assert java(given)["sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="a\\"b\\\\c\\nd;=";'
    )
    assert librdkafka(given)["sasl.password"] == odd


@pytest.mark.parametrize("option", sorted(FIELD_OF))
def test_security_in_options_is_refused_with_its_field(option: str) -> None:
    why = refused_options({option: "canary"})[option]
    fields = re.search(r"write `(.*)` in `kafka.security` instead", why)
    assert fields, why
    assert set(re.findall(r"\w+", fields[1].replace(" and ", " "))) <= set(KafkaSecurity.model_fields)
    assert "canary" not in why


@pytest.mark.parametrize(
    "option", ["ssl.cipher.suites", "sasl.kerberos.service.name", "ssl.crl.location", "enable.sasl.oauthbearer.x"]
)
def test_security_without_a_field_is_refused_too(option: str) -> None:
    assert "has no field for this" in refused_options({option: "x"})[option]


def test_what_tunes_clients_reaches_java_by_its_own_names() -> None:
    given = {
        "client.id": "shop",
        "reconnect.backoff.max.ms": "5000",
        "socket.timeout.ms": "20000",
        "socket.receive.buffer.bytes": "0",
        "connections.max.idle.ms": "0",
        "message.max.bytes": "2000000",
        "linger.ms": "7",
    }
    assert refused_options(given) == {}
    assert java_options(given) == {
        "client.id": "shop",
        "reconnect.backoff.max.ms": "5000",
        "request.timeout.ms": "20000",
        "receive.buffer.bytes": "-1",
        "connections.max.idle.ms": "-1",
    }


def test_a_long_socket_timeout_fits_a_producer_of_transactions() -> None:
    """librdkafka makes no client whose transactions end sooner."""
    kafka = Kafka(KafkaConfig(bootstrap="127.0.0.1:1", options={"socket.timeout.ms": "60000"}))
    lasting: dict[str, Setting] = {"transactional.id": "x", "transaction.timeout.ms": 10_000}
    kafka.producer(**lasting)
    assert kafka.settings()["socket.timeout.ms"] == "60000"


def test_what_java_is_refused_is_no_outage() -> None:
    trace = (
        "org.apache.spark.SparkException: Job aborted.\n\tat x.y\nCaused by: "
        "org.apache.kafka.common.errors.SslAuthenticationException: SSL handshake failed\n\tat a.b\n"
        "Caused by: javax.net.ssl.SSLHandshakeException: PKIX path building failed\n\tat c.d\n"
    )
    error = refusal(trace)
    assert isinstance(error, SourceMisconfigured)
    assert str(error) == "Spark's client of Kafka is refused: SSL handshake failed: PKIX path building failed"
    assert refusal("org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired") is None


def test_who_takes_connections_and_ends_them_is_an_outage(files: Certificates) -> None:
    """As a balancer without a broker behind it, or a broker that starts: nothing shows what it would have said."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        place = f"127.0.0.1:{listening.getsockname()[1]}"

        def end_all() -> None:
            with suppress(OSError):
                while True:
                    listening.accept()[0].close()

        threading.Thread(target=end_all, daemon=True).start()
        for security in (None, KafkaSecurity(protocol="SSL", ca=str(files.ca))):
            with pytest.raises(SourceUnavailable, match=f"Kafka at {place} cannot be reached"):
                Kafka(KafkaConfig(bootstrap=place, security=security)).log_in(0.1)


# -- against a broker -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    """No Spark has run in a process that has such a JVM: one that other tests left would explain its errors."""
    with pytest.MonkeyPatch.context() as patch, small_jvm(spark_jars()) as jvm:
        patch.setattr(py4j.java_gateway, "get_return_value", py4j.protocol.get_return_value)
        yield jvm


class Case:
    """A client's configuration, by what is changed of one that is right."""

    def __init__(self, secured: Secured) -> None:
        self.secured = secured
        self.ca = secured.files.ca.read_text()

    def sasl(self, *, listener: str = "SECURED", host: str = "127.0.0.1", **changed: Any) -> KafkaConfig:
        right = {
            "protocol": "SASL_SSL",
            "mechanism": "SCRAM-SHA-512",
            "username": SCRAM_USER,
            "password": SCRAM_PASSWORD,
            "ca": self.ca,
        }
        return self.of(self.secured.address(listener, host), right, changed)

    def tls(self, *, listener: str = "CERTIFIED", **changed: Any) -> KafkaConfig:
        files = self.secured.files
        right = {"protocol": "SSL", "ca": self.ca, "certificate": str(files.client), "key": str(files.client_key)}
        return self.of(self.secured.address(listener), right, changed)

    @staticmethod
    def of(bootstrap: str, right: Mapping[str, Any], changed: Mapping[str, Any]) -> KafkaConfig:
        fields = {name: value for name, value in {**right, **changed}.items() if value is not None}
        return KafkaConfig(bootstrap=bootstrap, security=KafkaSecurity(**fields))


@pytest.fixture
def case(secured: Secured) -> Case:
    return Case(secured)


PLAIN = {"mechanism": "PLAIN", "username": PLAIN_USER, "password": PLAIN_PASSWORD}


@pytest.mark.server
def test_both_clients_log_in_in_every_way(case: Case, jvm: Any) -> None:
    files = case.secured.files
    both = files.other_ca.read_text() + files.ca.read_text()
    ways = {
        "SCRAM-SHA-512": case.sasl(),
        "SCRAM-SHA-256": case.sasl(mechanism="SCRAM-SHA-256"),
        "PLAIN": case.sasl(**PLAIN),
        "PLAIN without TLS": case.sasl(listener="UNCIPHERED", protocol="SASL_PLAINTEXT", ca=None, **PLAIN),
        "a certificate": case.tls(),
        "a certificate by another in between": case.tls(certificate=str(files.chain), key=str(files.chain_key)),
        "an encrypted key": case.tls(key=str(files.encrypted_key), key_password=KEY_PASSWORD),
        "several CAs": case.sasl(ca=both),
        "another name": case.sasl(host="localhost", check_server_name=False),
    }
    for way, config in ways.items():
        kafka = Kafka(config)
        kafka.log_in()
        assert kafka.topics() is not None, way
        log_in(jvm, kafka)


REFUSALS: dict[str, tuple[str, str]] = {
    "password": (r"refuses the login of `scram`: .*invalid credentials with SASL mechanism SCRAM-SHA-512", "password"),
    "plain password": (r"refuses the login of `shop`: .*Invalid username or password", "password"),
    "ca": (r"has a certificate by nobody whom `ca` of kafka.security trusts: .*certificate", "`ca`"),
    "no ca": (r"has a certificate by nobody whom this system trusts: .*certificate", "`ca`"),
    "name": (r"at localhost:\d+ has a certificate of another name: Hostname mismatch", "check_server_name: false"),
    "plaintext to TLS": (r"speaks TLS on this port, and there is no kafka.security", "SASL_SSL"),
    "login without TLS to TLS": (r"speaks TLS on this port, and `protocol` of .* is SASL_PLAINTEXT", "SASL_SSL"),
    "TLS to plaintext": (r"does not speak TLS on this port, and `protocol` of .* is SASL_SSL", "the right port"),
    "login to plaintext": (r"refuses the login of `shop`: SASL PLAIN mechanism handshake failed", "takes no login"),
    "plaintext to a login": (r"ends connections without a login, and `protocol` is PLAINTEXT", "SASL_PLAINTEXT"),
    "TLS to a login": (r"ends connections without a login, and `protocol` is SSL", "SASL_SSL"),
    "no certificate": (r"asks for a client's certificate: .*bad certificate", "`certificate` and `key`"),
    "certificate of another CA": (r"refuses the client's certificate: ", "signed by a CA that the brokers trust"),
}


@pytest.mark.server
@pytest.mark.parametrize("wrong", REFUSALS)
def test_a_refusal_says_in_seconds_what_is_wrong(wrong: str, case: Case, endpoints: Endpoints) -> None:
    files = case.secured.files
    stranger = {"certificate": str(files.stranger), "key": str(files.stranger_key)}
    wrong_one = {"password": "wrong-canary"}
    config = {
        "password": lambda: case.sasl(**wrong_one),
        "plain password": lambda: case.sasl(**{**PLAIN, **wrong_one}),
        "ca": lambda: case.sasl(ca=str(files.other_ca)),
        "no ca": lambda: case.sasl(ca=None),
        "name": lambda: case.sasl(host="localhost"),
        "plaintext to TLS": lambda: KafkaConfig(bootstrap=case.secured.address("SECURED")),
        "login without TLS to TLS": lambda: case.sasl(protocol="SASL_PLAINTEXT", ca=None),
        "TLS to plaintext": lambda: Case.of(endpoints.kafka, {"protocol": "SASL_SSL", "ca": case.ca, **PLAIN}, {}),
        "login to plaintext": lambda: Case.of(endpoints.kafka, {"protocol": "SASL_PLAINTEXT", **PLAIN}, {}),
        "plaintext to a login": lambda: KafkaConfig(bootstrap=case.secured.address("UNCIPHERED")),
        "TLS to a login": lambda: case.tls(listener="SECURED", certificate=None, key=None),
        "no certificate": lambda: case.tls(certificate=None, key=None),
        "certificate of another CA": lambda: case.tls(**stranger),
    }[wrong]()
    message, hint = REFUSALS[wrong]
    begun = time.monotonic()
    with pytest.raises(SourceMisconfigured, match=message) as refused:
        Kafka(config).log_in()
    assert time.monotonic() - begun < SECONDS
    assert hint in refused.value.hint
    assert "canary" not in f"{refused.value}{refused.value.hint}"


@pytest.mark.server
def test_java_says_what_it_is_refused(case: Case, jvm: Any) -> None:
    files = case.secured.files
    for changed, message in (
        ({"password": "wrong-canary"}, "invalid credentials with SASL mechanism SCRAM-SHA-512"),
        ({"ca": str(files.other_ca)}, "unable to find valid certification path"),
        ({"host": "localhost"}, "No name matching localhost found"),
    ):
        with pytest.raises(SourceMisconfigured, match=message) as refused:
            log_in(jvm, Kafka(case.sasl(**changed)))
        assert "canary" not in str(refused.value)


def test_spark_shows_no_secret_of_its_source(spark: SparkSession) -> None:
    """What its UI and its event log are made of."""
    secrets = {"password": "canary-1", "key": "-----BEGIN PRIVATE KEY-----\ncanary-2", "key_password": "canary-3"}
    of_certificate = {"ca": "-----BEGIN ca", "certificate": "-----BEGIN chain", "check_server_name": True}
    login = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "u"}
    options = java(KafkaSecurity.model_construct(None, **login, **of_certificate, **secrets))
    source = LogSource("t", {f"kafka.{name}": value for name, value in options.items()}, ("value",), ("value",))
    assert set(re.findall(r"canary-\d", "".join(source.options.values()))) == {"canary-1", "canary-2", "canary-3"}
    assert "canary" not in repr(source)
    java_side = jvm_of(spark)
    given = java_side.java.util.HashMap()
    for name, value in source.options.items():
        given.put(name, value)
    whole = java_side.org.apache.spark.api.python.PythonUtils.toScalaMap(given)
    shown = java_session_of(spark).sessionState().conf().redactOptions(whole).toString()
    assert "kafka.sasl.jaas.config" in shown
    assert "canary" not in shown
    kafka = {"kafka.bootstrap.servers": "127.0.0.1:1", **source.options}
    plan = java_frame_of(read_slice(spark, replace(source, options=kafka), {0: 0}, {0: 1})).queryExecution()
    assert "canary" not in f"{plan.logical().toString()}{plan.analyzed().toString()}{plan.optimizedPlan().toString()}"


@pytest.mark.server
def test_a_broker_that_is_away_is_an_outage_whatever_the_security(case: Case) -> None:
    with pytest.raises(SourceUnavailable, match="cannot be reached"):
        Kafka(Case.of("127.0.0.1:1", {"protocol": "SASL_SSL", "ca": case.ca, **PLAIN}, {})).log_in(2.0)


def test_a_path_that_leads_nowhere_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is neither PEM text nor the path of a file") as refused:
        KafkaSecurity(protocol="SSL", ca=str(tmp_path / "canary"))
    assert "canary" not in str(refused.value)


def test_what_a_worker_is_told_holds_no_secret_and_names_files(tmp_path: Path) -> None:
    folder = Certificates(tmp_path)
    security = KafkaSecurity.model_validate(
        {
            "protocol": "SASL_SSL",
            "mechanism": "SCRAM-SHA-512",
            "username": "shop",
            "password": "canary",
            "ca": str(folder.ca),
            "certificate": str(folder.client),
            "key": str(folder.encrypted_key),
            "key_password": KEY_PASSWORD,
        }
    )
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    own = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} required username="USERNAME" password="PASSWORD";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/PATH/ca.pem",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "/PATH/worker.pem",
        "ssl.key.password": "KEY_PASSWORD",
        "ssl.endpoint.identification.algorithm": "https",
    }
    told = worker_settings(security)
    assert {name: value for name, value in told.items() if name in own} == own
    assert {name.partition(".")[0] for name in told.keys() - own.keys()} == {"producer", "consumer", "admin"}
    assert len(told) == 4 * len(own)
    assert "canary" not in str(told)
