"""Documents that a store refuses: held back with their reason, alone, until they can go through."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from tests.chain.conftest import MakePipeline
from tests.support.compare import OpenSearch, View
from tests.support.machine import Job, until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.timeout(600), pytest.mark.usefixtures("job")]

ROWS = 60
LIMIT = 20
SEARCH = "doc-search"
"""The index takes documents of at most so many fields; `extra` of a held row has more."""


def wide(n: int) -> str:
    return json.dumps({f"f{n}_{i}": i for i in range(2 * LIMIT)})


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    source.execute("create table docs (id int primary key, title text, extra jsonb)")
    source.execute("insert into docs select i, 'doc ' || i, '{}' from generate_series(1, %s) i", (ROWS,))
    source.execute("update docs set extra = %s where id in (1, 2, 3, 4)", (wide(0),))
    pipeline = make_pipeline(
        View("doc", "public.docs"),
        index={"settings": {"mapping.total_fields.limit": LIMIT}, "mapping": {"dynamic": True}},
    )
    pipeline.apply()
    return pipeline


def index(pipeline: Pipeline) -> OpenSearch:
    store = pipeline.stores[SEARCH]
    assert isinstance(store, OpenSearch)
    return store


def held(pipeline: Pipeline, generation: int = 1) -> dict[str, dict[str, Any]]:
    """Key -> what is said of it, in one generation."""
    done = pipeline.here("quarantine", "list", SEARCH, "--json")
    listed = done.json()
    assert done.code == (1 if listed["count"] else 0)
    assert listed["count"] == len(listed["quarantined"])
    return {entry["key"]: entry for entry in listed["quarantined"] if entry["generation"] == generation}


def missing(pipeline: Pipeline) -> set[str]:
    difference = pipeline.differences([SEARCH]).get(SEARCH)
    if difference is None:
        return set()
    assert not difference.extra
    assert not difference.different
    return set(difference.missing)


def test_refused_documents_are_held_and_all_others_are_there(pipeline: Pipeline) -> None:
    assert held(pipeline).keys() == {"1", "2", "3", "4"}
    assert missing(pipeline) == {"1", "2", "3", "4"}
    entry = held(pipeline)["1"]
    assert (entry["follower"], entry["generation"], entry["epoch"]) == (SEARCH, 1, 1)
    assert f"Limit of total fields [{LIMIT}] has been exceeded" in entry["reason"]
    until("them to be counted", lambda: pipeline.follower(SEARCH)["documents"], 20)
    follower = pipeline.follower(SEARCH)
    assert (follower["state"], follower["quarantined"], follower["documents"]) == ("live", 4, ROWS - 4)
    pipeline.assert_in_step("doc-cache")


def test_a_held_document_shows_its_values_only_when_asked(pipeline: Pipeline) -> None:
    without = pipeline.here("quarantine", "show", SEARCH, "1")
    assert without.code == 0
    assert "doc 1" not in without.out
    shown = pipeline.here("quarantine", "show", SEARCH, "1", "--values", "--json")
    assert shown.json()[0]["document"] == {"id": 1, "title": "doc 1", "extra": json.loads(wide(0))}
    unknown = pipeline.here("quarantine", "show", SEARCH, "77")
    assert unknown.code == 2
    assert "`77` is not quarantined" in unknown.err


def test_a_newer_version_or_a_delete_lets_a_document_go(pipeline: Pipeline) -> None:
    pipeline.connection.execute("update docs set extra = '{}' where id = 1")
    pipeline.connection.execute("delete from docs where id = 2")
    pipeline.wait(SEARCH)
    assert held(pipeline).keys() == {"3", "4"}
    assert missing(pipeline) == {"3", "4"}


def test_a_newer_version_that_is_refused_too_takes_the_older_one_s_place(pipeline: Pipeline) -> None:
    before = held(pipeline)["3"]["version"]
    pipeline.connection.execute("update docs set extra = %s, title = 'newest' where id = 3", (wide(3),))
    pipeline.wait(SEARCH)
    assert held(pipeline)["3"]["version"] > before
    assert held(pipeline).keys() == {"3", "4"}


def test_a_replay_lets_nothing_go_and_a_killed_run_forgets_nothing(pipeline: Pipeline, job: Job) -> None:
    before = held(pipeline)
    job.kill()
    pipeline.run()
    pipeline.wait()
    replayed = pipeline.here("replay", SEARCH, "--from", "start", "--json")
    assert (replayed.json()["written"], replayed.json()["left"]) == (0, 2)
    assert {key: entry["version"] for key, entry in held(pipeline).items()} == {
        key: entry["version"] for key, entry in before.items()
    }


def test_a_generation_with_held_documents_waits_for_a_word(pipeline: Pipeline) -> None:
    done = pipeline.here("rebuild", SEARCH, seconds=240)
    assert done.code == 1
    assert "2 documents are quarantined" in done.err
    assert "readers see what they saw before" in done.err
    assert pipeline.follower(SEARCH)["generation"] == 1
    refused = pipeline.here("promote", SEARCH, "--generation", "2")
    assert (refused.code, "has 2 quarantined documents" in refused.err) == (1, True)
    assert pipeline.here("promote", SEARCH, "--generation", "2", "--force").code == 0
    until("the second to be live", lambda: pipeline.follower(SEARCH)["generation"] == 2)


def test_retry_writes_the_newest_state_once_there_is_room(pipeline: Pipeline) -> None:
    """What is written is what the row is now, not what was refused."""
    still = pipeline.here("quarantine", "retry", SEARCH)
    assert (still.code, still.out.strip()) == (1, f"{SEARCH}: 0 written, 2 still quarantined")
    settings = {"index.mapping.total_fields.limit": 1000}
    index(pipeline).call("PUT", f"/{pipeline.name}-{SEARCH}-2/_settings", settings)
    one = pipeline.here("quarantine", "retry", SEARCH, "3")
    assert (one.code, one.out.strip()) == (1, f"{SEARCH}: 1 written, 1 still quarantined")
    rest = pipeline.here("quarantine", "retry", SEARCH)
    assert (rest.code, rest.out.strip()) == (0, f"{SEARCH}: 1 written, 0 still quarantined")
    assert held(pipeline, 2) == {}
    pipeline.assert_in_step(SEARCH)


def test_a_discarded_document_is_left_out_until_it_changes(pipeline: Pipeline) -> None:
    many = json.dumps({f"g{i}": i for i in range(2000)})
    pipeline.connection.execute("update docs set extra = %s where id = 5", (many,))
    pipeline.wait(SEARCH)
    assert held(pipeline, 2).keys() == {"5"}
    done = pipeline.here("quarantine", "discard", SEARCH, "5")
    assert (done.code, done.out.strip()) == (0, f"{SEARCH}: 1 discarded")
    until("nothing to be quarantined", lambda: pipeline.follower(SEARCH)["quarantined"] == 0)
    pipeline.connection.execute("update docs set extra = '{}' where id = 5")
    pipeline.assert_in_step(SEARCH)
