"""What of a DSN becomes a setting of Debezium's, and what is refused."""

from __future__ import annotations

import pytest

from connectors.debezium.source_address import address_faults, source_address
from driftless.config.models import ConnectConfig, SourceSsl

URL = "http://connect:8083"
DB = {"host": "db", "port": 5433, "user": "d", "dbname": "shop"}


def test_an_address_is_in_brackets_and_a_name_is_not() -> None:
    settings = source_address({**DB, "host": "::1"}, ConnectConfig(url=URL))
    assert settings == {
        "database.hostname": "[::1]",
        "database.port": "5433",
        "database.user": "d",
        "database.dbname": "shop",
        "database.sslmode": "prefer",
    }
    assert source_address(DB, ConnectConfig(url=URL))["database.hostname"] == "db"


def test_files_are_the_workers() -> None:
    ssl = SourceSsl(ca="/w/ca.pem", key="/w/key.pk8")
    connect = ConnectConfig(url=URL, source_ssl=ssl)
    given = {**DB, "sslmode": "verify-full", "sslrootcert": "/h/ca.pem", "sslcert": "/h/c.pem", "sslkey": "/h/k.pem"}
    settings = source_address(given, connect)
    assert {name: value for name, value in settings.items() if "ssl" in name} == {
        "database.sslmode": "verify-full",
        "database.sslrootcert": "/w/ca.pem",
        "database.sslkey": "/w/key.pk8",
    }
    (told,) = address_faults(given, connect)
    assert told == (
        "source.dsn has `sslcert`, a file of this machine, and the Connect worker needs one too: "
        "give its path there as `connect.source_ssl.certificate`"
    )
    assert list(address_faults(DB, connect)) == []


def test_what_the_machine_trusts_is_what_java_trusts() -> None:
    given = {**DB, "sslmode": "verify-full", "sslrootcert": "system"}
    connect = ConnectConfig(url=URL)
    assert list(address_faults(given, connect)) == []
    assert source_address(given, connect)["database.sslfactory"] == "org.postgresql.ssl.DefaultJavaSSLFactory"


@pytest.mark.parametrize("host", ["", "/var/run/postgresql", "@abstract"])
def test_a_socket_is_refused(host: str) -> None:
    (told,) = address_faults({**DB, "host": host}, ConnectConfig(url=URL))
    assert told.startswith("source.dsn leads to a socket of this machine")
    assert host in told


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"username": "u"}, "are given together"),
        ({"username": "u", "password_http": "canary", "url": "https://u:canary@c"}, "the url holds a user already"),
        ({"client_key": "k", "url": "https://c"}, "`client_key` needs `client_cert`"),
        ({"ca_certs": "c"}, "have no meaning with `http://`"),
    ],
)
def test_fields_that_do_not_go_together(fields: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told) as refused:
        ConnectConfig.model_validate({"url": URL, **fields})
    assert "canary" not in str(refused.value)
