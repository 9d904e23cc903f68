"""Real servers for the tests: one stack for the whole session, started when the first test asks for it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from cli.run import spark_jars
from driftless.errors import StackError
from jobs.spark.session import session
from stack import SERVERS, Endpoints, Stack
from stack.servers.server import Site
from stack.stack import KINDS
from tests.support import run, seeds  # noqa: F401 - before there are workers of a run, so that all have the same seeds
from tests.support.security.secured import Secured
from tests.support.security.secured import prepare as secured_listeners

# Most of the JVMs that tests start live for seconds: with the second compiler they would take twice the CPU.
for variable in ("DRIFTLESS_JAVA_OPTIONS", "DRIFTLESS_STACK_JAVA_OPTIONS"):
    os.environ.setdefault(variable, "-XX:TieredStopAtLevel=1")
SHARED = os.environ.get("DRIFTLESS_TEST_STACK")
"""A stack that is started when it is down and left up at the end: saves a minute a run while writing tests."""


def pytest_report_header() -> list[str]:
    """Which servers the tests will run against."""
    site = Site("", Path(), {}, None)
    try:
        versions = [f"{server} {KINDS[server](site).version()}" for server in SERVERS]
    except StackError as exc:
        return [f"servers: {exc}"]
    return [f"servers: {', '.join(versions)}"]


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        run.clean_up()
        run.end_on_signal()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Workers may have been killed before they could end what they had started."""
    if not hasattr(config, "workerinput"):
        run.clean_up()


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """All five servers, for this process alone. One that does not start fails the tests that need it."""
    stack = Stack(SHARED or run.STACK)
    try:
        if "kafka" not in stack.running():
            secured_listeners(stack)
        stack.up(print)
        yield stack
    finally:
        if SHARED is None:
            stack.destroy()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Its one number is what the monotonic clock says, to everybody in this process."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark without servers: what is tried in it shares one JVM."""
    spark = session(spark_jars())
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The DSN of a server for tests that need no other."""
    stack = Stack(f"{run.STACK}-postgres", servers=("postgres",))
    try:
        yield stack.up().postgres
    finally:
        stack.destroy()


@pytest.fixture(scope="session")
def endpoints(stack: Stack) -> Endpoints:
    """Where the session's servers listen."""
    found = stack.endpoints()
    assert found is not None
    return found


@pytest.fixture(scope="session")
def secured(stack: Stack, endpoints: Endpoints) -> Secured:
    """The session's broker by its listeners that ask for a login or a certificate."""
    found = secured_listeners(stack)
    found.add_users(endpoints)
    return found


@pytest.fixture(scope="session")
def opensearch_url(request: pytest.FixtureRequest) -> str:
    return os.environ.get("DRIFTLESS_TEST_OPENSEARCH") or _endpoints(request).opensearch


@pytest.fixture(scope="session")
def redis_url(request: pytest.FixtureRequest) -> str:
    return os.environ.get("DRIFTLESS_TEST_REDIS") or _endpoints(request).redis


def _endpoints(request: pytest.FixtureRequest) -> Endpoints:
    """Only now is the stack started: a store that is given by its URL needs none."""
    found: Endpoints = request.getfixturevalue("endpoints")
    return found


@contextmanager
def fresh_database(server: str) -> Iterator[str]:
    """Make an empty database; give its DSN; drop it at the end whoever is still connected."""
    name = f"test_{uuid.uuid4().hex[:10]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    yield make_conninfo(server, dbname=name)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
def database(endpoints: Endpoints) -> Iterator[str]:
    """The DSN of a database for one test alone."""
    with fresh_database(endpoints.postgres) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def module_database(endpoints: Endpoints) -> Iterator[str]:
    """The DSN of a database that the tests of one module share."""
    with fresh_database(endpoints.postgres) as dsn:
        yield dsn


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection]:
    """A connection to this test's database; every statement commits by itself."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection
