"""Documents are what Postgres says, from the snapshot and from the stream, in both kinds of store."""

from __future__ import annotations

import psycopg
import pytest

from tests.chain.conftest import MakePipeline
from tests.compare import View
from tests.pipeline import Pipeline

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    source.execute("create table things (id int primary key, name text)")
    source.execute("insert into things select n, 'thing ' || n from generate_series(1, 1000) n")
    pipeline = make_pipeline(View("thing", "public.things"))
    pipeline.apply()
    pipeline.run()
    return pipeline


def test_a_snapshot_arrives_whole(pipeline: Pipeline) -> None:
    pipeline.assert_in_step()


def test_changes_follow(pipeline: Pipeline, source: psycopg.Connection) -> None:
    source.execute("update things set name = 'changed' where id % 2 = 0")
    source.execute("delete from things where id % 5 = 0")
    pipeline.assert_in_step()


def test_a_delete_is_a_tombstone_in_the_log(pipeline: Pipeline, source: psycopg.Connection) -> None:
    """Not the text `null`, as Debezium's own default gives with this converter: compaction would never forget it."""
    source.execute("delete from things where id = 1")
    pipeline.wait()
    assert [value for key, value in pipeline.records("public.things") if key == b'{"id":1}'][-1] is None
