"""A transaction that is larger than what is taken in at once, and one that does not end."""

from __future__ import annotations

import threading
from collections import Counter

import psycopg
import pytest

from jobs.views.reader import SLICE_OFFSETS
from stack import Stack
from tests.chain.commands.altered import Altered
from tests.chain.conftest import MakePipeline, running
from tests.chain.support.broken import asleep, length
from tests.chain.views.test_views import half_shown, summed_orders, view, written
from tests.support.machine import until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

ORDERS, LINES = 24_000, 4
"""So many more orders, with so many lines each, in one transaction."""
PATIENCE = 3
LINES_TABLE = "public.order_lines"


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    return summed_orders(make_pipeline, source)


def insert(dsn: str, first: int) -> None:
    """Orders before their lines: wherever it was cut, some would have lines too few."""
    with psycopg.connect(dsn) as connection:
        numbers = (LINES, first, first + ORDERS - 1)
        connection.execute("insert into orders select i, i %% 10, 'large', %s from generate_series(%s, %s) i", numbers)
        connection.execute(
            "insert into order_lines select o, l, (o + l) %% 20 + 1, 1 "
            "from generate_series(1, %s) l, generate_series(%s, %s) o",
            numbers,
        )


@pytest.mark.soak
def test_a_transaction_larger_than_a_slice_is_shown_whole_and_once(pipeline: Pipeline) -> None:
    assert ORDERS * (LINES + 1) > SLICE_OFFSETS
    before = written(pipeline)
    insert(pipeline.dsn, 10_000)
    pipeline.assert_in_step()
    assert written(pipeline) - before == Counter(str(number) for number in range(10_000, 10_000 + ORDERS))
    assert half_shown(pipeline.published("order"), before) == []


@pytest.mark.soak
def test_a_transaction_whose_end_does_not_come_is_told_of(pipeline: Pipeline, stack: Stack) -> None:
    """Debezium falls asleep in the midst of it."""
    running(pipeline).stop()
    job = Altered(pipeline, "impatient_view", str(PATIENCE), "run")
    pipeline.wait()
    before, rows = written(pipeline), length(pipeline, LINES_TABLE)
    writer = threading.Thread(target=insert, args=(pipeline.dsn, 100_000))
    writer.start()
    until("some of its rows to be in the log", lambda: length(pipeline, LINES_TABLE) > rows, 60)
    with asleep(stack.running()["connect"]):
        assert length(pipeline, LINES_TABLE) < rows + ORDERS * LINES, (
            "all of it was in the log before Debezium fell asleep"
        )
        until("it to be told of", lambda: "whose end has not come for 3 s" in (view(pipeline)["trouble"] or ""), 60)
        assert "Kafka Connect" in pipeline.status()["source"]["trouble"]
        assert written(pipeline) == before
    writer.join()
    pipeline.assert_in_step()
    assert not view(pipeline)["trouble"]
    assert job.running
    assert half_shown(pipeline.published("order"), before) == []
