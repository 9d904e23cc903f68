"""Large rows and documents pass with the default memory; one that is larger than the log takes is held alone."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from driftless.kafka.topic_settings import DOCUMENT_BYTES
from tests.chain.conftest import MakePipeline, running
from tests.support.compare import View
from tests.support.machine import Job, until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(900)]

ROWS, LARGE = 60, 15
"""So many rows of 1 MB, and the megabytes of one more."""
MB = "(select string_agg(md5(n::text), '') t from generate_series(1, 31250) n)"
TABLES = f"""
create table wide (id int primary key, body text);
alter table wide alter body set storage external;
create table parents (id int primary key, note text);
create table children (id int primary key, parent int, body text);
alter table children alter body set storage external;
insert into wide select g, g || b.t from generate_series(1, {ROWS}) g, {MB} b;
insert into wide select 1000, repeat(b.t, {LARGE}) from {MB} b;
insert into parents select g, 'first' from generate_series(1, 20) g;
insert into children select g, 1 + g % 20, 'small' from generate_series(1, 100) g;
insert into children select 1000 + g, 2, b.t from generate_series(1, 2) g, {MB} b;
"""
SUB = "(select coalesce(jsonb_agg(jsonb_build_object('id', c.id, 'body', c.body) order by c.id), '[]') from children c"
PARENT = View(
    "parent",
    "public.parents",
    fields={name: name for name in ("id", "note", "children")},
    instead={"children": f"{SUB} where c.parent = t.id)"},
)
DECLARED = {
    "root": "public.parents",
    "columns": ["id", "note"],
    "many": {"children": {"table": "public.children", "by": "parent", "order_by": ["id"], "columns": ["id", "body"]}},
}
HELD = "view parent"


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    source.execute(TABLES)
    names = ("wide", "parents", "children")
    pipeline = make_pipeline(View("wide", "public.wide"), tables={f"public.{name}": {} for name in names})
    pipeline.sync["views"]["parent"] = DECLARED
    pipeline.follow("parent-search", PARENT, {"opensearch": {"mapping": {"dynamic": False}}})
    pipeline.follow("parent-cache", PARENT, {"redis": {}})
    pipeline.apply()
    running(pipeline)
    return pipeline


@pytest.fixture(autouse=True)
def followed(pipeline: Pipeline) -> Job:
    return running(pipeline)


def held(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    """What is in quarantine, key -> what is said of it."""
    done = pipeline.here("quarantine", "list", "--json")
    listed = done.json()
    assert done.code == (1 if listed["count"] else 0)
    return {entry["key"]: entry for entry in listed["quarantined"]}


def verified(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    """What `verify` says of each follower."""
    done = pipeline.here("verify", "--json", seconds=300)
    assert done.out, done.err
    return {report["name"]: report for report in done.json()["followers"]}


def view(pipeline: Pipeline) -> dict[str, Any]:
    return next(view for view in pipeline.status()["views"] if view["name"] == "parent")


def test_rows_and_documents_of_megabytes_pass_with_the_default_memory(pipeline: Pipeline) -> None:
    pipeline.assert_in_step()
    pipeline.connection.execute("update wide set body = body || '!'")
    pipeline.connection.execute("update children set body = body || '!' where id = 1001")
    pipeline.assert_in_step()
    assert held(pipeline) == {}
    for name, report in verified(pipeline).items():
        assert (report["in_sync"], report["quarantined"]) == (True, 0), (name, report)


@pytest.fixture(scope="module")
def before(pipeline: Pipeline) -> dict[str, dict[str, str]]:
    """What the followers of the view held before parent 7 got larger than the log takes."""
    running(pipeline)
    pipeline.wait()
    before = {name: store.documents() for name, store in pipeline.of("parent").items()}
    pipeline.connection.execute(f"insert into children select 2000 + g, 7, b.t from generate_series(1, 17) g, {MB} b")
    pipeline.connection.execute("update parents set note = 'after' where id in (7, 8)")
    pipeline.wait()
    until("the document to be held", lambda: view(pipeline)["quarantined"] == 1, 30)
    return before


def test_a_document_that_is_larger_than_the_log_takes_is_held_alone(
    pipeline: Pipeline, before: dict[str, dict[str, str]]
) -> None:
    entry = held(pipeline)["7"]
    assert (entry["follower"], entry["generation"]) == (HELD, 1)
    assert f"the log of the view takes {DOCUMENT_BYTES:,}" in entry["reason"]
    size = int(entry["reason"].split()[0].replace(",", ""))
    assert 17_000_000 < size < 17_001_000
    found = pipeline.differences(pipeline.of("parent"))
    for name, store in pipeline.of("parent").items():
        seven = store.name((7,))
        assert (found[name].missing or found[name].extra, found[name].different) == (frozenset(), frozenset({seven})), (
            name
        )
        assert store.documents()[seven] == before[name][seven]
    for report in verified(pipeline).values():
        wanted = 1 if report["name"].startswith("parent") else 0
        said = {name: report[name] for name in ("missing", "extra", "different", "quarantined", "stage")}
        assert said == {"missing": 0, "extra": 0, "different": 0, "quarantined": wanted, "stage": None}


@pytest.mark.usefixtures("before")
def test_a_held_document_survives_a_kill_and_shows_its_values_only_when_asked(pipeline: Pipeline) -> None:
    running(pipeline).kill()
    running(pipeline)
    pipeline.wait()
    assert held(pipeline).keys() == {"7"}
    shown = pipeline.here("quarantine", "show", "parent", "7")
    assert (shown.code, "after" in shown.out) == (0, False)
    told = pipeline.here("quarantine", "show", "parent", "7", "--values", "--json")
    assert len(told.json()[0]["document"]["children"]) == 22
    again = pipeline.here("quarantine", "retry", "parent", "--json")
    assert (again.code, again.json()["written"], again.json()["left"]) == (1, 0, 1)


@pytest.mark.usefixtures("before")
def test_it_leaves_by_itself_when_it_fits_again(pipeline: Pipeline) -> None:
    pipeline.connection.execute("delete from children where id >= 2002")
    pipeline.assert_in_step()
    assert held(pipeline) == {}
    assert view(pipeline)["quarantined"] == 0
    assert all(report["in_sync"] for report in verified(pipeline).values())


@pytest.mark.timeout(3600)
def test_thousands_of_rows_of_a_megabyte_and_a_hundred_of_15_are_proven(pipeline: Pipeline) -> None:
    """More than fits into any memory here; verify looks, since the comparer would hold all of it."""
    rows = f"insert into wide select %s + g, g || repeat(b.t, %s) from generate_series(1, %s) g, {MB} b"
    pipeline.connection.execute(rows, (2_000, 1, 2_000))
    pipeline.connection.execute(rows, (10_000, LARGE, 100))
    pipeline.wait(seconds=2_400)
    done = pipeline.here("verify", "--json", "--timeout", "1200", seconds=1_200)
    assert {report["name"]: report["in_sync"] for report in done.json()["followers"]} == dict.fromkeys(
        pipeline.stores, True
    )
