"""Building a view, killed at every step: what was published before is neither lost nor ever half a transaction."""

from __future__ import annotations

import time
from collections import Counter

import psycopg
import pytest

from tests.chain.commands.altered import Altered
from tests.chain.commands.doomed_view import STEPS
from tests.chain.conftest import MakePipeline, running
from tests.chain.views.test_views import Writers, half_shown, summed_orders, written
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    return summed_orders(make_pipeline, source)


@pytest.mark.parametrize("step", STEPS)
def test_a_build_that_is_killed(pipeline: Pipeline, step: str) -> None:
    running(pipeline).stop()
    before = written(pipeline)
    change(pipeline, seed=len(step))
    Altered(pipeline, "doomed_view", step, "run").die()
    # What the killed slice showed is never shown again, so nothing comes back to what was published before it.
    pipeline.connection.execute("update orders set status = %s", (step,))
    change(pipeline, seed=len(step) + 100)
    running(pipeline)
    pipeline.assert_in_step()
    records = pipeline.published("order")
    assert not half_shown(records, before)
    seen, repeated, newest = Counter[str](), 0, dict[str, object]()
    for key, document in records:
        seen[key] += 1
        repeated += seen[key] > before[key] and key in newest and newest[key] == document
        newest[key] = document
    assert seen.total() > before.total(), "nothing was published"
    if step != "after they are published":
        assert not repeated, "documents were published again that were published already"


def change(pipeline: Pipeline, *, seed: int) -> None:
    """Some dozens of transactions."""
    writers = Writers(pipeline.dsn, seed)
    time.sleep(1)
    writers.end()
