"""Every way in which libpq is led to a server leads Debezium to the same one, or is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from stack.machine.home import server_user
from tests.chain.conftest import MakePipeline, in_step
from tests.chain.support.broken import connector, rest
from tests.support.compare import View
from tests.support.machine import until
from tests.support.pipeline import Pipeline
from tests.support.security.certificates import Certificates

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    source.execute("create table things (id int primary key, name text)")
    source.execute("insert into things select i, 'thing ' || i from generate_series(1, 50) i")
    return make_pipeline(View("thing", "public.things"), tables={"public.things": {}})


@pytest.fixture
def environment(pipeline: Pipeline) -> Iterator[dict[str, str]]:
    """Of the commands; as it was, afterwards."""
    environment = pipeline.here.environment
    assert isinstance(environment, dict)
    before = dict(environment)
    yield environment
    environment.clear()
    environment.update(before)


def settings(pipeline: Pipeline) -> dict[str, str]:
    return dict(rest(pipeline).call("GET", f"{connector(pipeline)}/config"))


def test_the_server_that_is_reached_is_debeziums_too(
    pipeline: Pipeline, environment: dict[str, str], tmp_path: Path
) -> None:
    known = conninfo_to_dict(pipeline.dsn)
    host, port = str(known["host"]), str(known["port"])
    # Two servers; the first does not answer.
    both = make_conninfo(pipeline.dsn, host=f"{host},{host}", port=f"1,{port}", target_session_attrs="read-write")
    environment["SOURCE_DSN"] = both
    pipeline.apply()
    told = settings(pipeline)
    assert (told["database.hostname"], told["database.port"]) == (host, port)
    in_step(pipeline)
    pipeline.end_jobs()
    # The same server, by the environment, by a service file, and by its address under another name.
    rest_of_it = {name: value for name, value in known.items() if name not in ("host", "port")}
    environment["SOURCE_DSN"] = make_conninfo("", **rest_of_it)
    environment |= {"PGHOST": host, "PGPORT": port}
    assert pipeline.here("plan").code == 0
    del environment["PGHOST"], environment["PGPORT"]
    services = tmp_path / "services.conf"
    services.write_text("[shop]\n" + "".join(f"{name}={value}\n" for name, value in known.items()))
    environment |= {"SOURCE_DSN": "service=shop", "PGSERVICEFILE": str(services)}
    assert pipeline.here("plan").code == 0
    environment["SOURCE_DSN"] = make_conninfo(pipeline.dsn, host="database.example", hostaddr="127.0.0.1")
    assert settings(pipeline)["database.hostname"] == "127.0.0.1"
    assert pipeline.here("plan").code == 0
    in_step(pipeline)


def test_tls_with_a_private_ca_and_a_client_certificate(
    pipeline: Pipeline,
    environment: dict[str, str],
    source: psycopg.Connection,
    tmp_path: Path,
) -> None:
    """The server's own certificate is by the same CA. What the worker reads is at other places than what we read."""
    files = Certificates(tmp_path)
    theirs = Path(source.execute("show data_directory").fetchall()[0][0]) / "tls"
    user = server_user()
    theirs.mkdir()
    for path in (files.ca, files.broker, files.broker_key, files.client):
        shutil.copy(path, theirs)
    der = ("pkcs8", "-topk8", "-nocrypt", "-outform", "DER", "-in", files.client_key, "-out", theirs / "client.pk8")
    subprocess.run(["openssl", *der], check=True)
    for path in (theirs, *theirs.iterdir()):
        path.chmod(0o700 if path.is_dir() else 0o600)
        if user is not None:
            os.chown(path, user.uid, user.gid)
    where = {"ssl_ca_file": files.ca, "ssl_cert_file": files.broker, "ssl_key_file": files.broker_key}
    changed = {"ssl": "on", **{name: str(theirs / path.name) for name, path in where.items()}}
    try:
        for name, value in changed.items():
            source.execute(f"alter system set {name} = '{value}'".encode())
        source.execute("select pg_reload_conf()")
        until("the server to speak TLS", lambda: source.execute("show ssl").fetchall() == [("on",)])
        ours = {"sslrootcert": files.ca, "sslcert": files.client, "sslkey": files.client_key}
        files.client_key.chmod(0o600)
        environment["SOURCE_DSN"] = make_conninfo(
            pipeline.dsn, sslmode="verify-full", **{name: str(path) for name, path in ours.items()}
        )
        refused = pipeline.here("check")
        assert refused.code == 1, refused
        for parameter, field in (("sslrootcert", "ca"), ("sslcert", "certificate"), ("sslkey", "key")):
            told = (
                f"source.dsn has `{parameter}`, a file of this machine, and the Connect worker needs one too: give its "
            )
            assert f"{told}path there as `connect.source_ssl.{field}`" in refused.out
        pipeline.sync["connect"]["source_ssl"] = {
            "ca": str(theirs / files.ca.name),
            "certificate": str(theirs / files.client.name),
            "key": str(theirs / "client.pk8"),
        }
        pipeline.apply()
        in_step(pipeline)
        source.execute("update things set name = 'over TLS' where id = 7")
        pipeline.assert_in_step()
        reads = (
            "select s.ssl, s.client_dn from pg_stat_ssl s join pg_replication_slots r on r.active_pid = s.pid "
            "where r.slot_name = %s"
        )
        slot = "driftless_" + pipeline.name.replace("-", "_")
        assert source.execute(reads, (slot,)).fetchall() == [(True, "/CN=driftless")]
        pipeline.end_jobs()
        # A server that another CA vouches for is not believed by either.
        environment["SOURCE_DSN"] = make_conninfo(environment["SOURCE_DSN"], sslrootcert=str(files.other_ca))
        wrong = pipeline.here("check")
        assert wrong.code == 3, wrong
        assert "certificate verify failed" in wrong.err
    finally:
        pipeline.sync["connect"].pop("source_ssl", None)
        for name in changed:
            source.execute(f"alter system reset {name}".encode())
        source.execute("select pg_reload_conf()")
        shutil.rmtree(theirs, ignore_errors=True)
