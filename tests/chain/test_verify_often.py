"""`verify` a hundred times while everybody writes: not one false alarm."""

from __future__ import annotations

import os

import pytest

from tests.chain.conftest import running
from tests.chain.test_verify import no_false_alarm, pipeline
from tests.pipeline import Pipeline

__all__ = ["pipeline"]
pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(300)]

RUNS = int(os.environ.get("DRIFTLESS_VERIFY_RUNS") or 100)


@pytest.mark.parametrize("run", range(RUNS))
def test_no_false_alarm(pipeline: Pipeline, run: int) -> None:
    running(pipeline)
    pipeline.wait()  # what is not built yet is not compared
    no_false_alarm(pipeline, run)
