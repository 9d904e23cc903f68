"""What `init` writes for a database that was not made for driftless runs as it is, and follows."""

from __future__ import annotations

import re

import psycopg
import pytest
from psycopg import sql

from tests.chain.conftest import MakePipeline
from tests.shapes import nasty
from tests.support.compare import OpenSearch, Redis, View
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.soak]

NO_CACHE = "braces"
"""Its key's column is called `{id}`, which cannot stand in a `key`."""


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    """The nasty database with rows, and the pipeline that `init` makes of it; the followers in comments run too."""
    nasty.create(source)
    for table in nasty.EXPECTED:
        for number in range(20):
            nasty.insert(source, table, number)
    pipeline = make_pipeline()
    for wanted in nasty.EXPECTED:
        view = View(wanted.view, wanted.name, wanted.key, wanted.fields, (wanted.schema, wanted.table))
        pipeline.views[view.name] = view
        pipeline.sync["followers"][f"{view.name}-search"] = {"view": view.name}
        pipeline.stores[f"{view.name}-search"] = OpenSearch(
            pipeline.endpoints.opensearch, f"{pipeline.name}-{view.name}"
        )
        if view.name != NO_CACHE:
            key = ":".join((pipeline.name, view.name, *(f"{{{column}}}" for column in view.key)))
            pipeline.sync["followers"][f"{view.name}-cache"] = {"view": view.name}
            pipeline.stores[f"{view.name}-cache"] = Redis(pipeline.endpoints.redis, key, view.key)
    pipeline.here.environment = pipeline.variables_of_init
    made = pipeline.here("init", "--dsn", pipeline.dsn, "--name", pipeline.name, "--force")
    assert made.code == 0, made.err
    for step in ("check", "apply"):
        done = pipeline.here(step, seconds=180)
        assert done.code == 0, done.out + done.err
    return pipeline


def test_it_runs_as_it_is(pipeline: Pipeline) -> None:
    done = pipeline.here("run", "--until-caught-up", seconds=280)
    assert done.code == 0, done.out + done.err
    assert pipeline.differences([f"{wanted.view}-search" for wanted in nasty.EXPECTED]) == {}


def test_the_comparison_had_something_to_compare(pipeline: Pipeline) -> None:
    counts = {wanted.view: 2 if wanted.view == "moods" else 20 for wanted in nasty.EXPECTED}
    stores = {name: store for name, store in pipeline.stores.items() if name.endswith("-search")}
    assert {name: len(store.documents()) for name, store in stores.items()} == {
        f"{view}-search": count for view, count in counts.items()
    }


def test_what_stands_in_comments_runs_too(pipeline: Pipeline) -> None:
    file = pipeline.here.folder / "sync.yaml"
    head, views = file.read_text().split("\nviews:")
    assert "  # employees_nested:\n" in views
    file.write_text(f"{head}\nviews:" + re.sub("^  # ", "  ", views, flags=re.MULTILINE))
    done = pipeline.here("apply", seconds=180)
    assert done.code == 0, done.out + done.err
    pipeline.run()
    pipeline.assert_in_step()


def test_changes_follow(pipeline: Pipeline, source: psycopg.Connection) -> None:
    for wanted in nasty.EXPECTED:
        table, key = nasty.identifier(wanted), sql.Identifier(wanted.key[0])
        least = sql.SQL("(select {} from {} order by 1 limit 1)").format(key, table)
        source.execute(sql.SQL("delete from {} where {} = {}").format(table, key, least))
        for number in range(20, 25):
            nasty.insert(source, wanted, number)
        last = sql.Identifier(wanted.columns[-1])
        source.execute(sql.SQL("update {} set {} = {} where {} = {}").format(table, last, last, key, least))
    source.execute('update swapped set v = 7 where n < 5; update "Customers" set note = null where id = 4')
    pipeline.assert_in_step()


def test_no_secret_is_in_the_log(pipeline: Pipeline) -> None:
    for wanted in nasty.EXPECTED:
        if wanted.exclude:
            records = pipeline.records(_topic(wanted))
            assert len(records) > 20
            for _, value in records:
                for column in wanted.exclude:
                    assert f'"{column}"'.encode() not in (value or b"")


def _topic(wanted: nasty.Nasty) -> str:
    """Java counts in UTF-16."""
    name = f"{wanted.schema}.{wanted.table}"
    return re.sub(r"[^A-Za-z0-9._-]", lambda char: "_" * (len(char[0].encode("utf-16-le")) // 2), name)
