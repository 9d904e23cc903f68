"""1,000 tables of every shape that is unusual: what `init` writes passes `check`, and `apply` snapshots all of it."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from stack import Endpoints
from tests.shapes import odd_tables
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.soak]
TABLES = 996
SEED = int(os.environ.get("DRIFTLESS_TEST_SEED") or random.randrange(10**6))


@pytest.fixture
def pipeline(endpoints: Endpoints, database: str, connection: psycopg.Connection, tmp_path: Path) -> Iterator[Pipeline]:
    print(f"seed {SEED}")
    pipeline = Pipeline(tmp_path / "pipeline", endpoints, database, [])
    pipeline.here.environment = pipeline.variables_of_init
    for statement in odd_tables.statements(TABLES, SEED):
        connection.execute(statement.encode())
    yield pipeline
    pipeline.remove()


def test_what_init_writes_of_a_thousand_odd_tables_is_checked_and_applied(pipeline: Pipeline) -> None:
    made = pipeline.here("init", "--dsn", pipeline.dsn, "--name", pipeline.name, "--force")
    followed = TABLES // len(odd_tables.SHAPES) * odd_tables.FOLLOWED
    assert (made.code, f"{followed} tables, {TABLES - followed} left out" in made.out) == (0, True), made.out + made.err
    for step in ("check", "apply"):
        done = pipeline.here(step, seconds=600)
        assert done.code == 0, f"{step}: {done.out[-3000:]}{done.err[-3000:]}"
    again = pipeline.here("plan", "--json", seconds=120)
    assert (again.code, again.json()["changes"]) == (0, [])
