"""No message prints a password, however the address that it stands in was typed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli import base
from connectors.debezium.connect import Connect
from connectors.postgres.client import Postgres
from driftless.config.address import dsn_problem, shown_url, url_problem, without_secrets
from driftless.config.load import load
from driftless.config.models import ConnectConfig
from driftless.errors import ConfigError, SourceUnavailable, SyncError
from sinks import config_model, kinds
from tests.driftless.config.test_mistakes import RIGHT

CANARY = "hunter2"
CANARIES = [
    "mysql://u:hunter2@h/m",
    "postgres//u:hunter2@h/db",
    "postgresql:/u:hunter2@h/db",
    "postgresql//u:hunter2@h",
    "postgresql://u:hunter2/x@h/db",
    "postgresql://u:x/hunter2@h/db",
    "postgresql://u:x@hunter2@h/db",
    "postgresql://u:x?hunter2@h/db",
    "postgresql://u:x?a=1&hunter2@h/db",
    "postgresql://u:x#hunter2@h/db",
    "postgresql://u:%hunter2@h/db",
    "postgresql://u:x:hunter2/y@h/db",
    "postgresql://u:1/hunter2@h:5432/db",
    "postgresql:u:hunter2@h/db",
    "host=h user=u password=x hunter2",
    "host=h user=u password=x hunter2=1",
    "host=h user=u password='hunter2",
    "host=h user=u password=x'hunter2",
    "host h password=hunter2",
    "u:hunter2@h/db",
    "http://u:hunter2@h:1:2",
    "http://u:x/hunter2@h:1",
    "http://u:x#hunter2@h:1",
    "http://u:x@hunter2@h:1",
    "http://u:[hunter2@h:1",
    "http//u:hunter2@h:1",
    "https://u:hunter2@:1",
    "https://u:hunter2@h:abc",
    "redis//:hunter2@h:1",
    "redis://:hunter2/x@h:1/0",
    "redis://:x/hunter2@h:1/0",
    "redis://:x@hunter2@h:1/0",
    "redis://:x?hunter2@h:1/0",
    "redis://:hunter2@h:1/0?db=x",
    "redis://:hunter2@h:1/0?socket_timeout=x",
    "hunter2@h:9092",
    "u:hunter2@h:9092",
    "SASL_SSL://u:hunter2@h:9092",
]
"""What somebody types who has mistyped, or has not encoded, an address with the password `hunter2`."""
PLACES = {
    "source.dsn": "  dsn: postgresql://app:hunter2@db/shop\n",
    "kafka.bootstrap": "  bootstrap: 127.0.0.1:59092\n",
    "connect.url": "  url: http://127.0.0.1:58083\n",
    "opensearch.url": "      url: http://127.0.0.1:59200\n",
    "redis.url": "      url: redis://127.0.0.1:56379/0\n",
}
"""Where it may stand in sync.yaml."""
FORMS = ["{}", "'{}'", '"{}"', '"{}', "'{}", "{}: x", "- {}", "[{}", "{{{}"]
"""How it may stand there, also with a slip of YAML."""


TYPED = [(typed, "'{}'") for typed in CANARIES] + [(typed, form) for typed in CANARIES[::9] for form in FORMS]


@pytest.mark.parametrize("place", PLACES)
def test_sync_yaml_is_refused_without_the_password(place: str, tmp_path: Path) -> None:
    """Or it is taken, where it can be read as an address."""
    text, old = RIGHT.replace("app:hunter2@", "app@"), PLACES[place].replace("app:hunter2@", "app@")
    assert old in text
    models = {kind: config_model(kind) for kind in kinds()}
    for typed, form in TYPED:
        file = tmp_path / "sync.yaml"
        file.write_text(text.replace(old, f"{old.partition(': ')[0]}: {form.format(typed)}\n"))
        try:
            said = repr(load(file, models))
        except SyncError as exc:
            said = f"{exc} {exc.hint}"
        assert CANARY not in said, (typed, form)


def test_the_command_never_quotes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sync.yaml").write_text(RIGHT)
    quoted = [typed for typed in CANARIES if re.search(r":(?!\d).*@|password=x", typed)]
    lines = [[verb, typed] for typed in quoted for verb in ("init", "pause")]
    for typed in quoted[::5]:
        lines += [["init", f"--dns={typed}"], ["check", typed], [typed], ["down", "--name", typed, "x"], ["run", typed]]
        lines += [["wait", "--lsn", typed], ["wait", "--timeout", typed], ["verify", typed], ["quarantine", typed]]
    for line in lines:
        done = CliRunner().invoke(base.app, line, env={"COLUMNS": "400"})
        said = base.told(done.exception) if isinstance(done.exception, SyncError) else done.output
        assert CANARY not in said, line
        assert said, line
        assert done.exit_code != 0, line


@pytest.mark.parametrize(
    "typed", [typed for typed in CANARIES if dsn_problem(typed) or typed.startswith("host=h user=u password=x h")]
)
def test_a_dsn_is_refused_before_a_piece_of_the_password_is_read_for_something_else(typed: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Postgres(typed)
    assert CANARY not in f"{refused.value} {refused.value.hint}"


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://u:p%40ss%2Fw@h:5432/db?sslmode=require&application_name=x",
        "postgres://u@[::1]:5432/db",
        "postgresql:///db?host=/var/run/postgresql",
        "postgresql://u:p:q@h1:1,h2:2/db",
        "postgresql://%2Fvar%2Frun/db",
        "host=h password='a b@c' dbname=db",
    ],
)
def test_what_is_right_is_taken(dsn: str) -> None:
    assert dsn_problem(dsn) == ""


def test_an_option_that_is_nearly_right_is_told() -> None:
    with pytest.raises(ConfigError, match="it names an option that Postgres does not have; did you mean `sslmode`"):
        Postgres("postgresql://u:hunter2@h/db?sslmod=require")


@pytest.mark.parametrize("url", ["http://u:p%40@h:1", "https://h", "http://[::1]:9200/path", "http://u:p@h/p?x=@"])
def test_a_right_url_is_taken(url: str) -> None:
    assert url_problem(url, ("http", "https"), "") == ("" if "?" not in url else url_problem(url, ("http",), ""))


def test_a_url_is_shown_without_what_is_secret() -> None:
    assert shown_url("http://u:hunter2@h:1/a?token=hunter2#x") == "http://h:1/a"
    assert shown_url("redis://:hunter2@h:1/0") == "redis://h:1/0"


def test_an_example_of_an_address_is_no_secret() -> None:
    said = "must look like `postgresql://user:password@host:5432/database`"
    assert without_secrets(said) == said
    assert without_secrets("no such command 'postgres//u:hunter2@h/db'.") == "no such command '(not shown)'."


def test_connect_is_named_without_its_password() -> None:
    with pytest.raises(SourceUnavailable) as refused:
        Connect(ConnectConfig(url="http://u:hunter2@127.0.0.1:1")).config("x")
    assert "Kafka Connect at http://127.0.0.1:1 cannot be reached: Connection refused" in str(refused.value)
    assert CANARY not in str(refused.value)
