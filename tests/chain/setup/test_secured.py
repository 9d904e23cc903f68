"""The whole chain over TLS with a private CA and a login by SCRAM: for every client, and no password anywhere."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stack import Stack
from tests.chain.conftest import MakePipeline
from tests.support.compare import OpenSearch, View
from tests.support.machine import until
from tests.support.pipeline import Pipeline
from tests.support.security.rejected import LIMIT, ROWS, make_docs, verified
from tests.support.security.secured import LEAST_USER, PLAIN_USER, SCRAM_PASSWORD, Secured, allow_least

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

MORE = 8000
"""Rows: more than is read by small slices, so that Spark's executors do."""
SEARCH = "doc-search"
REASON = "invalid credentials with SASL mechanism SCRAM-SHA-512"
SECONDS = 60
"""A command starts Python and connects to three servers, on a machine that others use too."""


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection, secured: Secured) -> Pipeline:
    """A view of one table, in a store that refuses one of its documents, and one of two tables."""
    make_docs(source)
    pipeline = make_pipeline(
        View("doc", "public.docs"),
        tables={"public.docs": {}, "public.lines": {}},
        index={"settings": {"mapping.total_fields.limit": LIMIT}, "mapping": {"dynamic": True}},
        secrets={"KAFKA_PASSWORD": SCRAM_PASSWORD},
    )
    allow_least(pipeline.endpoints, pipeline.name)
    pipeline.sync["kafka"]["bootstrap"] = secured.address("SECURED")
    pipeline.sync["kafka"]["security"] = {
        "protocol": "SASL_SSL",
        "mechanism": "SCRAM-SHA-512",
        "username": LEAST_USER,
        "password": "${KAFKA_PASSWORD}",
        "ca": str(secured.files.ca),
    }
    pipeline.sync["kafka"]["options"] = {"client.id": "secured", "socket.timeout.ms": 20000}
    lines = {"table": "public.lines", "by": "doc", "order_by": ["id"]}
    pipeline.sync["views"]["whole"] = {"root": "public.docs", "columns": ["id", "title"], "many": {"lines": lines}}
    place = {"url": "${CACHE_URL}", "key": f"{pipeline.name}-whole:{{id}}"}
    pipeline.sync["followers"]["whole-cache"] = {"view": "whole", "redis": place}
    pipeline.apply()
    return pipeline


def proof(pipeline: Pipeline) -> dict[str, tuple[int, int, int]]:
    """Of each follower: documents, quarantined ones, and how many are missing, extra or different besides those."""
    done, found = verified(pipeline.here)
    assert "canary" not in f"{done.out}{done.err}"
    return found


def test_every_step_of_a_pipelines_life_over_tls_with_a_login(pipeline: Pipeline) -> None:
    checked = pipeline.here("check", seconds=SECONDS)
    assert (checked.code, checked.out.strip()) == (0, "everything is ready"), checked.err
    job = pipeline.run()
    pipeline.wait()
    pipeline.assert_in_step("doc-cache")
    assert pipeline.here("quarantine", "list", SEARCH, "--json").json()["count"] == 1

    pipeline.connection.execute("update docs set title = 'changed' where id between 2 and 9")
    pipeline.connection.execute("update lines set qty = 7 where id < 30")
    pipeline.assert_in_step("doc-cache")
    job.kill()
    pipeline.connection.execute("delete from docs where id = 10")
    pipeline.connection.execute("delete from lines where id = 40")
    added = "insert into docs select i, 'later ' || i, '{}' from generate_series(1001, %s) i"
    pipeline.connection.execute(added, (1000 + MORE,))
    job = pipeline.run()
    pipeline.assert_in_step("doc-cache")
    pipeline.wait()
    documents = ROWS - 1 + MORE
    assert proof(pipeline) == {
        "doc-search": (documents - 1, 1, 0),
        "doc-cache": (documents, 0, 0),
        "whole-cache": (documents, 0, 0),
    }
    pipeline.connection.execute("update docs set extra = '{}' where id = 1")
    pipeline.assert_in_step("doc-search", "doc-cache")
    assert pipeline.here("rebuild", "doc-cache", seconds=240).code == 0
    assert job.stop() == 0


def test_no_password_is_in_any_output_log_or_topic(pipeline: Pipeline) -> None:
    for command in ("status", "plan"):
        done = pipeline.here(command, seconds=SECONDS)
        assert "canary" not in f"{done.out}{done.err}"
    logs = [path for path in Path(pipeline.here.folder).rglob("*") if path.is_file()]
    assert any(path.name.startswith("run-") for path in logs)
    assert [path for path in logs if b"canary" in path.read_bytes()] == []
    connector = OpenSearch(pipeline.endpoints.connect, "").call("GET", f"/connectors/driftless-{pipeline.name}")
    assert "canary" not in str(connector)
    control = pipeline.records("control")
    assert control
    assert b"canary" not in b"".join(value or b"" for _, value in control)


@pytest.fixture(scope="module")
def wrong(pipeline: Pipeline) -> Any:
    """Another place to run from, where the password is wrong."""
    machine = pipeline.machine("wrong")
    machine.environment = {**machine.environment, "KAFKA_PASSWORD": "wrong-canary"}
    return machine


@pytest.mark.parametrize("command", [("check",), ("plan",), ("apply",), ("status",), ("run",), ("verify",)])
def test_every_command_says_within_seconds_that_the_login_is_refused(wrong: Any, command: tuple[str, ...]) -> None:
    begun = time.monotonic()
    done = wrong(*command, seconds=SECONDS)
    assert (done.code, time.monotonic() - begun < SECONDS) == (2, True), done.err
    assert f"refuses the login of `{LEAST_USER}`" in done.err
    assert REASON in done.err
    assert "kafka.security" in done.err
    assert "canary" not in f"{done.out}{done.err}"


def test_security_in_options_is_refused_with_its_line(pipeline: Pipeline) -> None:
    machine = pipeline.machine("options")
    options = {"sasl.username": PLAIN_USER, "sasl.password": "canary"}
    machine.sync = {**machine.sync, "kafka": {**machine.sync["kafka"], "options": options}}
    machine.write()
    done = machine("check")
    assert done.code == 2
    for option, field in (("sasl.username", "username"), ("sasl.password", "password")):
        assert f"kafka.options.{option}: security is set once for all clients: write `{field}`" in done.err
    assert "canary" not in done.err


@pytest.mark.soak
def test_a_run_whose_login_the_brokers_take_back_fails_with_the_reason(
    pipeline: Pipeline, secured: Secured, stack: Stack
) -> None:
    """Its clients are connected; when they must connect again, they are refused."""
    pipeline.connection.execute("update docs set title = 'before' where id = 2")
    job = pipeline.run()
    pipeline.wait()
    try:
        secured.add_users(pipeline.endpoints, "changed-canary")
        stack.kill("kafka")
        stack.start("kafka")
        until("the run to end", lambda: not job.running, 120)
    finally:
        secured.add_users(pipeline.endpoints)
    job.wait()
    assert job.process.returncode in (1, 2)
    assert REASON in job.output()
    assert "canary" not in job.output()
    pipeline.run()
    pipeline.assert_in_step("doc-cache")


def test_all_of_it_is_taken_away_by_the_same_rights(pipeline: Pipeline) -> None:
    pipeline.end_jobs()
    done = pipeline.here("destroy", "--yes", seconds=240)
    assert done.code == 0, done.out + done.err
    pipeline.apply()
