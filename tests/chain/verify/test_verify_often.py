"""`verify` a hundred times while everybody writes: not one false alarm."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from typing import Any

import pytest

from tests.chain.conftest import running
from tests.chain.verify.test_verify import pipeline
from tests.support.machine import Job, until
from tests.support.pipeline import Pipeline
from tests.support.writer import Writer

__all__ = ["pipeline"]
pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(7200)]

VIEWS = ("thing", "pair", "token", "some")
RUNS = int(os.environ.get("DRIFTLESS_VERIFY_RUNS") or 100)
PAUSE = 0.2
"""Between two transactions of a writer. The log keeps ten minutes of them, and is read from its floor every time."""
AS_FAST_AS_IT_CAN = ("--every", "0", "--source-rate", "1000000", "--follower-rate", "1000000")


def test_no_false_alarm(pipeline: Pipeline) -> None:
    """By one process, since to start it takes longer than to compare; it takes all views in turn."""
    names = [name for view in VIEWS for name in pipeline.of(view)]
    running(pipeline)
    pipeline.wait()  # what is not built yet is not compared
    with Writer(pipeline.dsn, seed := random.randrange(10**6), pause=PAUSE) as writer:
        job = pipeline.here.start("verify", *names, "--continuous", *AS_FAST_AS_IT_CAN, "--json")
        try:
            for turn in range(1, RUNS // len(VIEWS) + 1):
                said = until(f"turn {turn}", lambda turn=turn: _said(job, turn), 400)  # type: ignore[misc]
                assert all(follower["in_sync"] for follower in said), f"turn {turn}, seed {seed}: {said}"
                assert sorted(follower["name"] for follower in said) == sorted(names)
                print(f"turn {turn}: {sum(writer.done.values())} changes so far", flush=True)
            written = Counter(writer.done)
        finally:
            job.destroy()
    assert sum(written.values()) > 20 * RUNS, written


def _said(job: Job, turn: int) -> Any:
    """What was said of each follower at the end of the turn of that number."""
    lines = [line for line in job.output().split("\n")[:-1] if line.startswith('{"followers"')]
    assert job.running, job.output()
    return json.loads(lines[turn - 1])["followers"] if len(lines) >= turn else None
