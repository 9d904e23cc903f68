"""A database of 528 tables, with 900 foreign keys: `init`, `check`, `plan`, `apply` and `status` take seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner, Result

from cli import base
from connectors.debezium.connect import Connect
from stack import Endpoints
from tests.shapes import musicbrainz
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.speed]
SECONDS = 60.0
"""Of a processor, that `apply` may take. What the servers take of it depends on the machine, and is printed alone."""
SCREEN = 50


class Timer:
    """How long calls took, all together."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **more: Any) -> Any:
            begun = time.monotonic()
            try:
                return call(*arguments, **more)
            finally:
                self.seconds += time.monotonic() - begun

        return timed


@pytest.fixture
def pipeline(
    endpoints: Endpoints,
    database: str,
    connection: psycopg.Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Pipeline]:
    """One that only its name is taken of, and that is taken away at the end."""
    pipeline = Pipeline(tmp_path / "pipeline", endpoints, database, [])
    for statement in musicbrainz.statements():
        connection.execute(statement.encode())
    for name, value in pipeline.variables_of_init.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    yield pipeline
    pipeline.remove()


def drift(*arguments: str) -> tuple[Result, float]:
    """The command in this process, and how long it took."""
    begun = time.monotonic()
    done = CliRunner().invoke(base.app, arguments)
    return done, time.monotonic() - begun


def test_500_tables_are_applied_in_a_minute(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    connector = Timer()
    for call in ("put", "wait_running"):
        monkeypatch.setattr(Connect, call, connector.timed(getattr(Connect, call)))
    took: dict[str, float] = {}
    busy: dict[str, float] = {}

    def step(*arguments: str, code: int = 0) -> str:
        name, begun = f"{arguments[0]} {len(took)}", time.process_time()
        done, took[name] = drift(*arguments)
        busy[name] = time.process_time() - begun
        assert done.exit_code == code, f"{arguments}: {done.output[-2000:]} {done.exception}"
        return done.output

    step("init", "--dsn", pipeline.dsn, "--name", pipeline.name)
    assert step("check").splitlines()[-1] == "everything is ready"
    planned = step("plan", code=1).splitlines()
    assert len(planned) <= SCREEN, planned
    assert f"create {len(musicbrainz.tables())} topics" in "\n".join(planned)
    made = step("apply").splitlines()
    assert made[-1].endswith(" changes made; `driftless run` follows")
    assert len(made) <= SCREEN, made
    assert step("plan").splitlines()[0] == "nothing to change"
    assert "nobody runs it" in step("status", code=1)
    step("check")
    print({**{what: round(seconds, 1) for what, seconds in took.items()}, "connector": round(connector.seconds, 1)})
    print({what: round(seconds, 1) for what, seconds in busy.items()})
    assert busy["apply 3"] < SECONDS
