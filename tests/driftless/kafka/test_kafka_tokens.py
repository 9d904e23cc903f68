"""A login by a token that each client fetches, at a broker that knows whose signature it must have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cli.run import spark_jars
from driftless.config.kafka_security import KafkaSecurity, java, librdkafka, problems
from driftless.config.models import KafkaConfig
from driftless.errors import SourceMisconfigured
from driftless.kafka.client import Kafka
from jobs.spark.login import log_in, small_jvm
from tests.support.machine import until
from tests.support.security.secured import Secured
from tests.support.security.token_server import SCOPE, TOKEN_SECRET, TOKEN_USER, token_server

TOKEN_SECONDS = 5.0
MORE = {"extensions": {"logicalCluster": "lkc-1", "identityPoolId": "pool-1"}}


def configured(secured: Secured, fields: dict[str, Any]) -> KafkaConfig:
    trusted = {"protocol": "SASL_SSL", "ca": str(secured.files.ca)}
    security = KafkaSecurity.model_validate({**trusted, **fields})
    return KafkaConfig(bootstrap=secured.address("SECURED"), security=security)


@pytest.fixture
def by_token(secured: Secured) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Fields of a login by token, and the scopes that were asked for."""
    with token_server(secured.token_key, seconds=TOKEN_SECONDS) as (url, given):
        fields = {"mechanism": "OAUTHBEARER", "token_url": url}
        yield fields | {"client_id": TOKEN_USER, "client_secret": TOKEN_SECRET, "scope": SCOPE, **MORE}, given


@pytest.mark.server
def test_both_clients_log_in_by_token_and_go_on_when_it_has_run_out(
    secured: Secured, by_token: tuple[dict[str, Any], list[str]]
) -> None:
    fields, given = by_token
    config = configured(secured, fields)
    kafka = Kafka(config)
    kafka.log_in()
    assert kafka.topics() is not None
    assert given == [SCOPE]
    with small_jvm(spark_jars(), config.security) as jvm:
        log_in(jvm, kafka)
    assert given == [SCOPE] * 2
    until("the token to be fetched again", lambda: len(given) > 2, 2 * TOKEN_SECONDS)
    Kafka(config).log_in()
    assert kafka.topics() is not None


@pytest.mark.server
def test_a_token_that_is_refused_is_told_by_both_clients(
    secured: Secured, by_token: tuple[dict[str, Any], list[str]]
) -> None:
    fields, given = by_token
    config = configured(secured, {**fields, "client_secret": "wrong-canary"})
    with pytest.raises(SourceMisconfigured, match=f"refuses the login of `{TOKEN_USER}`: .*invalid_client") as refused:
        Kafka(config).log_in()
    assert "token_url" in refused.value.hint
    with small_jvm(spark_jars(), config.security) as jvm, pytest.raises(SourceMisconfigured) as java_refused:
        log_in(jvm, Kafka(config))
    assert given == []
    for said in (refused.value, java_refused.value):
        assert "canary" not in f"{said}{said.hint}"


def test_fields_of_a_password_and_of_a_token_do_not_go_together() -> None:
    token = {"token_url": "https://login.example.com", "client_id": "shop", "client_secret": "x"}
    for fields, wrong in (
        ({"mechanism": "OAUTHBEARER"}, {"protocol": "needs `token_url`"}),
        ({"mechanism": "OAUTHBEARER", **token, "username": "a"}, {"username": "did you mean `PLAIN` or one of SCRAM?"}),
        ({"mechanism": "PLAIN", "username": "a", "password": "b", "scope": "c"}, {"scope": "`OAUTHBEARER`?"}),
        ({"mechanism": "OAUTHBEARER", **token}, {}),
    ):
        found = dict(reversed(list(problems(KafkaSecurity(protocol="SASL_PLAINTEXT", **fields)))))  # type: ignore[arg-type]
        assert found.keys() == wrong.keys(), found
        assert all(said in found[field] for field, said in wrong.items()), found


def test_what_goes_with_the_token_is_given_to_both_clients() -> None:
    fields = {"mechanism": "OAUTHBEARER", "token_url": "https://a", "client_id": "b", "client_secret": "c"}
    security = KafkaSecurity.model_validate({"protocol": "SASL_PLAINTEXT", **fields, **MORE})
    assert librdkafka(security)["sasl.oauthbearer.extensions"] == "logicalCluster=lkc-1,identityPoolId=pool-1"
    line = java(security)["sasl.jaas.config"]
    assert line.endswith('clientSecret="c" extension_logicalCluster="lkc-1" extension_identityPoolId="pool-1";')
    assert "scope" not in line
