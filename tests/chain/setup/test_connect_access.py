"""Kafka Connect that asks for a certificate and a login: every command enters, and tells why where it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from stack import Stack
from tests.chain.conftest import MakePipeline, in_step
from tests.support.compare import View
from tests.support.pipeline import Pipeline
from tests.support.security.certificates import Certificates
from tests.support.security.https_proxy import basic, https_proxy

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

USER, PASSWORD = "sh\u00f6p", 'canary-\u00e9 "77:'


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def pipeline(
    make_pipeline: MakePipeline, source: psycopg.Connection, files: Certificates, stack: Stack
) -> Iterator[Pipeline]:
    source.execute("create table things (id int primary key, name text)")
    source.execute("insert into things select i, 'thing ' || i from generate_series(1, 50) i")
    made = make_pipeline(
        View("thing", "public.things"), tables={"public.things": {}}, secrets={"CONNECT_PASSWORD": PASSWORD}
    )
    # The stack is not known by this URL, so `apply` cannot leave the password with its worker.
    stack.write_secret(made.name, str(conninfo_to_dict(made.dsn)["password"]))
    with https_proxy(made.endpoints.connect, files, basic(USER, PASSWORD)) as url:
        made.sync["connect"] = {
            "url": url,
            "username": USER,
            "password_http": "${CONNECT_PASSWORD}",
            "ca_certs": str(files.ca),
            "client_cert": str(files.client),
            "client_key": str(files.client_key),
            "password": f"dir:{stack.secrets_dir}:{made.name}",
        }
        made.apply()
        yield made


def test_every_command_enters(pipeline: Pipeline, source: psycopg.Connection) -> None:
    job = in_step(pipeline)
    source.execute("update things set name = 'changed' where id < 10")
    pipeline.assert_in_step()
    assert pipeline.here("check").code == 0
    assert pipeline.here("plan").code == 0
    assert pipeline.here("status").code == 0
    assert pipeline.here("verify", seconds=240).code == 0
    assert job.stop() == 0
    done = pipeline.here("destroy", "--yes", seconds=240)
    assert done.code == 0, done.err
    assert "drop connector" in done.out
    pipeline.apply()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"password_http": "wrong-canary"}, "refuses the login: 401"),
        ({"username": None, "password_http": None}, "refuses the login: 401"),
        ({"ca_certs": "other"}, "its certificate is not trusted"),
        ({"client_cert": None, "client_key": None}, "it refuses this client"),
        ({"client_key": "other"}, "connect.client_cert: the file cannot be read: it is not PEM, or the key is another"),
        ({"ca_certs": "/nowhere.pem"}, "connect.ca_certs: the file cannot be read: No such file or directory"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_who_may_not_enter_is_told_why(
    pipeline: Pipeline, files: Certificates, change: dict[str, str | None], told: str
) -> None:
    paths = {("ca_certs", "other"): files.other_ca, ("client_key", "other"): files.broker_key}
    wrong: dict[str, str | Path | None] = {name: paths.get((name, str(v)), v) for name, v in change.items()}
    right = dict(pipeline.sync["connect"])
    pipeline.sync["connect"] = {k: str(v) for k, v in {**right, **wrong}.items() if v is not None}
    pipeline.here.write()
    try:
        for command in ("check", "apply"):
            done = pipeline.here(command)
            assert done.code == 2, done
            assert told in done.err, done.err
            assert "canary" not in done.out + done.err
            assert "Traceback" not in done.err
    finally:
        pipeline.sync["connect"] = right
        pipeline.here.write()
