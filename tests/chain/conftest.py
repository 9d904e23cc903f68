"""Pipelines for the tests of the whole chain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import psycopg
import pytest

from stack import Endpoints, Stack
from tests.support.compare import View
from tests.support.machine import Job, until
from tests.support.pipeline import Pipeline

MakePipeline = Callable[..., Pipeline]


@pytest.fixture(scope="module")
def make_pipeline(
    stack: Stack, endpoints: Endpoints, module_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MakePipeline]:
    """Make a pipeline over the module's database. At the module's end everything that was made for it is removed."""
    made: list[Pipeline] = []

    def make(*views: View, **more: Any) -> Pipeline:
        made.append(Pipeline(tmp_path_factory.mktemp("pipeline"), endpoints, module_database, views, **more))
        return made[-1]

    yield make
    for pipeline in made:
        pipeline.end_jobs()
    if made:
        stack.up()  # what a test that failed has left down
    for pipeline in made:
        pipeline.remove()


def running(pipeline: Pipeline) -> Job:
    """The run of all followers: the one that goes on, or a new one."""
    going = [job for job in pipeline.jobs() if job.running]
    return going[-1] if going else pipeline.run()


def newest_live(pipeline: Pipeline, *followers: str) -> None:
    """Wait until readers of these followers see the newest generation."""
    for follower in followers:
        newest = partial(pipeline.follower, follower)
        until("readers to see the new one", lambda newest=newest: newest()["generations"][-1]["live"], 120)  # type: ignore[misc]


def in_step(pipeline: Pipeline) -> Job:
    """The run of all followers, when every one of them equals the source."""
    job = running(pipeline)
    pipeline.assert_in_step()
    return job


@pytest.fixture
def job(pipeline: Pipeline) -> Job:
    """The run of all followers of the module's pipeline, which has followed all that is committed."""
    job = running(pipeline)
    pipeline.wait()
    return job


@pytest.fixture(scope="module")
def source(module_database: str) -> Iterator[psycopg.Connection]:
    """A connection to the module's database; every statement commits by itself."""
    with psycopg.connect(module_database, autocommit=True) as connection:
        yield connection
