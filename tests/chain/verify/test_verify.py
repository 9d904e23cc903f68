"""`verify` on the real chain: silent where all is right, whoever writes; and every planted corruption is named."""

from __future__ import annotations

import random
import re
import signal
from collections import Counter
from typing import Any

import psutil
import psycopg
import pytest
import redis

from sinks.redis.names import Names
from tests.chain.conftest import MakePipeline, running
from tests.chain.support.corrupt import InCache, InSearch, InTopic
from tests.support.compare import OpenSearch, Redis, View
from tests.support.machine import Result, until
from tests.support.pipeline import Pipeline
from tests.support.writer import Rows, Writer, large, row, targets

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

THINGS, PAIRS, TOKENS = targets()
QUIET = 200
"""Rows of the table of things whose keys, from 1,000 on, no writer touches."""
FIELDS = {
    "name", "generation", "lsn", "source_documents", "follower_documents", "missing", "extra", "different",
    "quarantined", "unproven", "uncomparable", "repaired", "in_sync", "stage", "samples", "pause_seconds", "seconds",
    "trouble",
}  # fmt: skip
LIMIT = 20


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    """Keys of every kind, values of every type, some columns, some rows, renamed columns, and a hash in Redis."""
    rng = random.Random("verify")
    for target in (THINGS, PAIRS, TOKENS):
        target.create(source)
        rows = Rows(source, target)
        for key in target.keys[:40]:
            rows.insert(key, {**row(rng), "large": large(rng)})
    source.execute(
        "insert into things (id, note, whole, price) "
        "select n, 'note ' || n, n, n * 1.10 from generate_series(1000, %s) n",
        (999 + QUIET,),
    )
    # Of more than the 512 bytes that OpenSearch takes for a key.
    source.execute(f"insert into {PAIRS.table} (region, n) values (repeat('w', 600), 0)".encode())
    source.execute("create table docs (id int primary key, title text, extra jsonb)")
    wide = "(select jsonb_object_agg('f' || n, n) from generate_series(1, 40) n)"
    source.execute(
        f"insert into docs select n, 'doc', case when n = 7 then {wide} end from generate_series(1, 30) n".encode()
    )
    things = View("thing", THINGS.table)
    pipeline = make_pipeline(
        things,
        View("pair", PAIRS.table, tuple(PAIRS.key)),
        View("token", TOKENS.table),
        View("some", THINGS.table, fields={"id": "id", "größe": "price", "words": "note"}, where="small > 0"),
        tables={**{target.table: {} for target in (THINGS, PAIRS, TOKENS)}, "public.docs": {}},
    )
    pipeline.follow("thing-hash", things, {"redis": {"format": "hash"}})
    strict = {"settings": {"mapping.total_fields.limit": LIMIT}, "mapping": {"dynamic": True}}
    pipeline.follow("doc-search", View("doc", "public.docs"), {"opensearch": strict})
    pipeline.sync["views"]["doc"] = {"root": "public.docs"}
    pipeline.apply()
    return pipeline


def verify(pipeline: Pipeline, *arguments: str, code: int | None = None) -> dict[str, dict[str, Any]]:
    """What `verify --json` says of each follower."""
    done = pipeline.here("verify", *arguments, "--json", seconds=400)
    assert done.out, f"verify said nothing and ended with {done.code}: {done.err}"
    said = by_name(done)
    wanted = 0 if all(follower["in_sync"] for follower in said.values()) else 1
    assert done.code == wanted if code is None else done.code == code, done.err
    return said


def by_name(done: Result) -> dict[str, dict[str, Any]]:
    """What `verify --json` has said of each follower."""
    return {follower["name"]: follower for follower in done.json()["followers"]}


def found(said: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Key -> (problem, stage)."""
    assert said["trouble"] is None, said
    counted = {kind: said[kind] for kind in ("missing", "extra", "different")}
    samples = said["samples"]
    assert counted == {kind: sum(s["problem"] == kind for s in samples) for kind in counted}, said
    return {sample["key"]: (sample["problem"], sample["stage"]) for sample in samples}


@pytest.mark.usefixtures("job")
def test_what_is_right_is_in_sync(pipeline: Pipeline, source: psycopg.Connection) -> None:
    before = pipeline.lsn()
    source.execute("analyze")
    done = pipeline.here("verify", "--json", "--source-rate", "300", "--allow-quarantined", seconds=400)
    assert done.code == 0, (done.out, done.err)
    things = source.execute("select count(*) from things").fetchone()
    assert things is not None
    assert re.search(rf"^thing: source: reading at \d+ of {things[0]} records$", done.err, re.MULTILINE), done.err
    said = by_name(done)
    assert said.keys() == pipeline.sync["followers"].keys()
    for name, follower in said.items():
        assert follower.keys() == FIELDS
        assert (follower["in_sync"], follower["stage"], follower["samples"]) == (True, None, []), follower
        assert _number(follower["lsn"]) >= _number(before)
        assert follower["pause_seconds"] == 0
        table, where = _rows_of(pipeline, name)
        counted = source.execute(f"select count(*) from {table} where {where}".encode()).fetchone()
        assert counted == (follower["source_documents"],)
        assert follower["follower_documents"] == follower["source_documents"] - follower["quarantined"]
    assert said["doc-search"]["quarantined"] == 1
    done = pipeline.here("verify", "doc-search", seconds=200)
    assert done.code == 1
    assert re.search(
        r"^doc-search: not in sync at .*: 1 quarantined \(`driftless quarantine list doc-search`", done.out
    )
    assert not source.execute("select slot_name from pg_replication_slots where slot_name like '%verify%'").fetchall()


def _number(lsn: str) -> int:
    high, low = lsn.split("/")
    return int(high, 16) << 32 | int(low, 16)


def _rows_of(pipeline: Pipeline, follower: str) -> tuple[str, str]:
    view = pipeline.views[pipeline.sync["followers"][follower]["view"]]
    return view.table, view.where


def no_false_alarm(pipeline: Pipeline, run: int) -> None:
    """One run under load, of each view in turn."""
    view = ("thing", "pair", "token", "some")[run % 4]
    with Writer(pipeline.dsn, seed := random.randrange(10**6)) as writer:
        said = verify(pipeline, *pipeline.of(view))
        written = Counter(writer.done)
    assert all(follower["in_sync"] for follower in said.values()), f"seed {seed}: {said}"
    assert sum(written.values()) > 100, written


@pytest.mark.soak
@pytest.mark.usefixtures("job")
@pytest.mark.parametrize("run", range(2))
def test_no_false_alarm_while_everybody_writes(pipeline: Pipeline, run: int) -> None:
    """`make soak` makes 100 of these, in test_verify_often.py."""
    no_false_alarm(pipeline, run)


@pytest.mark.soak
@pytest.mark.usefixtures("job")
def test_every_corruption_of_a_follower_is_named_and_mended_while_everybody_writes(pipeline: Pipeline) -> None:
    search, cache, hashed = (pipeline.stores[f"thing-{kind}"] for kind in ("search", "cache", "hash"))
    assert isinstance(search, OpenSearch)
    assert isinstance(cache, Redis)
    assert isinstance(hashed, Redis)
    index, texts, hashes = InSearch(search), InCache(cache), InCache(hashed)
    kept = {key: index.get(key) for key in ("1004", "1006")}
    saved = {key: texts.get(key) for key in ("1015",)}
    with Writer(pipeline.dsn, seed := random.randrange(10**6)):
        index.change("1001", note="flipped")
        index.drop("1002")
        index.put("1999", b'{"id": 1999}', 1 << 48)
        index.change("1003", whole="1003")  # the same digits, as text
        index.put("1004", kept["1004"][0], 1 << 50)
        index.change("1005", price=1105.51)
        index.put("1006", b" " + kept["1006"][0])  # by somebody else, and as it should be
        texts.change("1011", note="flipped")
        texts.drop("1012")
        texts.put("1999", b'{"id": 1999}')
        texts.change("1013", whole=None)
        texts.put("1014", b"not JSON")
        texts.put("1015", b" " + saved["1015"])
        hashes.field("1021", "note", "flipped")
        hashes.drop("1022")
        hashes.field("1999", "id", "1999")
        hashes.field("1023", "price", None)
        said = verify(pipeline, "thing-search", "thing-cache", "thing-hash", "--repair", code=1)
    wrong, lost, ghost = ("different", "follower"), ("missing", "follower"), ("extra", "follower")
    assert found(said["thing-search"]) == {
        "1001": wrong, "1002": lost, "1999": ghost, "1003": wrong, "1004": wrong, "1005": wrong,
    }, f"seed {seed}"  # fmt: skip
    assert found(said["thing-cache"]) == {"1011": wrong, "1012": lost, "1999": ghost, "1013": wrong, "1014": wrong}
    assert found(said["thing-hash"]) == {"1021": wrong, "1022": lost, "1999": ghost, "1023": wrong}
    assert {follower["stage"] for follower in said.values()} == {"follower"}
    # What has a version beyond the log's end is told of: nothing could be written over it.
    assert {name: f["repaired"] for name, f in said.items()} == {"thing-search": 5, "thing-cache": 5, "thing-hash": 4}
    assert {name: f["in_sync"] for name, f in said.items()} == {
        "thing-search": False, "thing-cache": True, "thing-hash": True,
    }  # fmt: skip
    (ahead,) = (sample for sample in said["thing-search"]["samples"] if not sample.get("repaired"))
    assert ahead["key"] == "1004"
    assert "beyond the log's end" in ahead["detail"]
    search.call("DELETE", f"/{search.index}-1/_doc/1004?version={1 << 51}&version_type=external")
    # What was mended goes on following.
    pipeline.connection.execute("update things set whole = whole + 1 where id between 1000 and 1030 and id <> 1004")
    pipeline.connection.execute("delete from things where id = 1004")
    pipeline.assert_in_step("thing-search", "thing-cache")
    proven = {f["name"]: f["proven_lsn"] for f in pipeline.status()["followers"]}
    assert proven["thing-cache"] == said["thing-cache"]["lsn"]


@pytest.mark.soak
@pytest.mark.usefixtures("job")
def test_every_corruption_of_a_tables_log_is_named_and_mended(pipeline: Pipeline) -> None:
    topic = InTopic(pipeline.endpoints.kafka, f"{pipeline.name}.public.tokens")
    name = TOKENS.keys[5][0]
    rng = random.Random("log")
    rows = Rows(pipeline.connection, TOKENS)
    for key in TOKENS.keys[:10]:
        assert rows.insert(key, row(rng, nulls=0)) or rows.update(key, row(rng, nulls=0))
    pipeline.wait()
    keys = [f'{{"id":"{key[0]}"}}'.encode() for key in TOKENS.keys[:10]]
    topic.change(keys[5], note="flipped")
    topic.drop(keys[6])
    stranger = "00000000-0000-0000-0000-000000000001"
    _, value = topic.newest(keys[7])
    assert value is not None
    topic.put(f'{{"id":"{stranger}"}}'.encode(), value.replace(TOKENS.keys[7][0].encode(), stranger.encode()), 0)
    said = verify(pipeline, "token-search", "token-cache", "--repair")
    for follower in said.values():
        assert (follower["stage"], follower["repaired"], follower["in_sync"]) == ("table-log", 3, True)
        assert found(follower) == {
            name: ("different", "table-log"),
            TOKENS.keys[6][0]: ("missing", "table-log"),
            stranger: ("extra", "table-log"),
        }
    pipeline.assert_in_step("token-search", "token-cache")


@pytest.mark.soak
@pytest.mark.usefixtures("job")
def test_an_open_transaction_is_named_and_not_waited_for_without_end(pipeline: Pipeline) -> None:
    with psycopg.connect(pipeline.dsn, application_name="nightly import") as other:
        pid = other.info.backend_pid
        other.execute("insert into docs values (999, 'secret text', null)")
        done = pipeline.here("verify", "doc-search", "--patience", "2", seconds=200)
        other.rollback()
    assert done.code == 1
    assert f"process {pid} (application `nightly import`" in done.err
    assert "--patience" in done.err
    assert "secret" not in done.err + done.out
    assert "Traceback" not in done.err


@pytest.mark.soak
@pytest.mark.usefixtures("job")
def test_what_readers_see_is_what_is_compared(pipeline: Pipeline) -> None:
    """By the stores' own word: a whole generation that no reader sees proves nothing."""
    search, cache = pipeline.stores["pair-search"], pipeline.stores["pair-cache"]
    assert isinstance(search, OpenSearch)
    assert isinstance(cache, Redis)
    alias = {"index": f"{search.index}-1", "alias": search.index}
    search.call("POST", "/_aliases", {"actions": [{"remove": alias}]})
    with redis.Redis.from_url(cache.url) as client:
        name = Names(pipeline.name, "pair-cache").follower
        client.hset(name, "promoted", "7")
        said = verify(pipeline, "pair-search", "pair-cache", "token-cache", code=1)
        client.hset(name, "promoted", "1")
    search.call("POST", "/_aliases", {"actions": [{"add": {**alias, "is_write_index": False}}]})
    assert "its store shows them none of its generations" in said["pair-search"]["trouble"]
    assert "its store shows them generation 7" in said["pair-cache"]["trouble"]
    assert said["token-cache"]["in_sync"]
    assert [said[follower]["in_sync"] for follower in ("pair-search", "pair-cache")] == [False, False]


@pytest.mark.soak
def test_a_follower_that_stands_still_is_not_compared(pipeline: Pipeline) -> None:
    job = running(pipeline)
    pipeline.wait()
    assert pipeline.here("pause", "pair-cache").code == 0
    said = verify(pipeline, "pair-search", "pair-cache", code=1)
    assert said["pair-search"]["in_sync"], said["pair-search"]
    assert "driftless resume pair-cache" in said["pair-cache"]["trouble"]
    assert pipeline.here("resume", "pair-cache").code == 0
    assert job.stop() == 0
    done = pipeline.here("verify", "doc-search", seconds=200)
    assert done.code == 1
    assert done.out.startswith("doc-search: not compared: nobody runs it")
    assert "driftless run doc-search" in done.out
    assert done.err.startswith("doc-search: not compared: nobody runs it"), "before anything is read"
    assert "reading" not in done.err


@pytest.mark.soak
@pytest.mark.usefixtures("job")
def test_it_goes_on_for_ever_and_leaves_what_is_proven(pipeline: Pipeline) -> None:
    def proven() -> Any:
        return pipeline.follower("pair-cache")["proven_lsn"]

    before = proven()
    job = pipeline.here.start("verify", "pair-cache", "--continuous", "--every", "1")
    try:
        first = until("a position to be proven", lambda: proven() != before and proven(), 200)
        until("another one", lambda: proven() != first, 200)
        assert _number(first) < _number(proven())
        assert psutil.Process(job.process.pid).nice() > psutil.Process().nice(), "a run on the same machine goes first"
        assert job.stop(number=signal.SIGINT) == 130
    finally:
        job.destroy()
    assert "Traceback" not in job.output()
    assert "--resume" not in job.output()  # it would be refused


@pytest.mark.soak
@pytest.mark.usefixtures("job")
def test_it_goes_on_where_it_was_interrupted(pipeline: Pipeline) -> None:
    """Followers that were compared are not compared again."""

    def proven(name: str) -> Any:
        return pipeline.follower(name)["proven_lsn"]

    asked = ("verify", "pair-cache", "thing-cache", "--follower-rate", "5")
    before = proven("pair-cache")
    job = pipeline.here.start(*asked)
    try:
        until("one of them to be proven", lambda: proven("pair-cache") != before, 200)
        assert job.stop(number=signal.SIGINT) == 130
    finally:
        job.destroy()
    assert "--resume continues from there" in job.output()
    first = proven("pair-cache")
    pipeline.connection.execute("update things set whole = whole + 1 where id = 1001")
    done = pipeline.here(*asked, "--resume", "--json", seconds=300)
    assert done.code == 0, done.err
    assert "compared before it was interrupted: pair-cache" in done.err
    said = by_name(done)
    assert said["pair-cache"]["lsn"] == first == proven("pair-cache")
    assert _number(said["thing-cache"]["lsn"]) > _number(first)
    done = pipeline.here(*asked, "--resume")
    assert done.code == 2
    assert "no interrupted verify" in done.err


@pytest.mark.soak
@pytest.mark.usefixtures("job")
def test_it_runs_from_another_machine(pipeline: Pipeline) -> None:
    done = pipeline.machine("elsewhere")("verify", "pair-search", "--source-rate", "100", "--json", seconds=200)
    assert done.code == 0, done.err
    (said,) = done.json()["followers"]
    assert said["in_sync"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nobody",), "there is no follower `nobody`"),
        (
            ("pair-search", "--generation", "7"),
            "pair-search has no generation 7\n  give --generation one of these numbers: 1",
        ),
        (("--generation", "1"), "--generation is of one follower"),
    ],
)
def test_wrong_use_is_told(pipeline: Pipeline, arguments: tuple[str, ...], said: str) -> None:
    done = pipeline.here("verify", *arguments)
    assert done.code == 2
    assert said in done.err
