"""Streams on a Spark standalone cluster: executors compute them, and one that is killed loses nothing."""

from __future__ import annotations

import math
import os
import signal
import time
from functools import partial
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.chain.conftest import MakePipeline
from tests.chain.setup.test_cluster import Cluster, Submitted, cluster, wrote
from tests.chain.streams.test_streams import SEED, Clicks, computed, shown, stores, stream
from tests.support.machine import until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(1500)]

__all__ = ["cluster"]
COMPUTED = ("page_views", "visits", "pairs", "followed", "named")
STEPS = [{"name": "one", "where": "id % 3 = 0"}, {"name": "two", "where": "id % 3 = 1", "within": "2s"}]


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    """With streams of which Python computes a part, on the executors."""
    pipeline = computed(make_pipeline, source)
    source.execute("insert into items select i, 'item ' || i from generate_series(1, 5000, 2) i")
    pipeline.sync["events"]["clicks"]["with"] = {"item": {"table": "public.items", "by": "id"}}
    pipeline.sync["patterns"] = {"near": {"events": "clicks", "by": "page", "steps": STEPS}}
    pipeline.sync["streams"] |= {
        "followed": {"sql": "SELECT one.id AS first, two.id AS second, page FROM near", "key": "first"},
        "named": {"sql": "SELECT id, item.name FROM clicks WHERE page = 'home'", "key": "id"},
    }
    pipeline.apply()
    return pipeline


def executors(cluster: Cluster) -> list[psutil.Process]:
    family = [child for p in cluster.processes.values() for child in psutil.Process(p.pid).children(recursive=True)]
    return [process for process in family if _is_executor(process)]


def _is_executor(process: psutil.Process) -> bool:
    try:
        return "CoarseGrainedExecutorBackend" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False  # a zombie, too


def assert_counted(pipeline: Pipeline, clicks: Clicks) -> None:
    store = stores(pipeline)["trends-cache"]
    until("every window to be shown", lambda: shown(store) == clicks.wanted(math.inf), 240)
    done = pipeline.here("verify", *COMPUTED, "--json", seconds=400)
    assert done.code == 0, done.out + done.err
    # Of few events, few are near each other; there are some of each stream.
    assert min(report["source_documents"] for report in done.json()["followers"]) > 0


def test_executors_compute_streams_and_one_that_is_killed_loses_nothing(
    pipeline: Pipeline, cluster: Cluster, tmp_path: Path
) -> None:
    clicks = Clicks(pipeline, SEED)
    clicks.write(200)
    job = Submitted(pipeline, cluster, *COMPUTED, "trends-cache", "--checkpoints", str(tmp_path))
    until("the stream to be live", lambda: stream(pipeline)["state"] == "live", 240)
    assert_counted(pipeline, clicks)
    assert all(tasks for tasks, _ in map(wrote, cluster.logs().values())), "both workers have computed"
    for _ in range(3):
        clicks.write(100)
        until("an executor", partial(executors, cluster), 60)[0].kill()
        clicks.write(100)
        time.sleep(3)
    assert_counted(pipeline, clicks)
    assert stream(pipeline)["dropped"] == 0
    os.kill(job.driver(), signal.SIGTERM)
    assert job.wait(60) == 0
    job = Submitted(pipeline, cluster, *COMPUTED, "trends-cache", "--checkpoints", str(tmp_path))
    clicks.write(100)
    assert_counted(pipeline, clicks)
    os.kill(job.driver(), signal.SIGTERM)
    assert job.wait(60) == 0


def test_a_submission_says_where_streams_keep_their_state(pipeline: Pipeline, cluster: Cluster) -> None:
    job = Submitted(pipeline, cluster, "page_views")
    assert job.wait(120) == 2, job.output()
    assert "add `--checkpoints FOLDER`" in job.output()
