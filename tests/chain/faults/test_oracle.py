"""Never a yes where the answer is no: each fault is brought about, and `status`, `check` and `wait` must say no.

Within 30 s `status` exits 1 or 3 and names who, what and the command to run, and `check` is not content. Each fault is
undone, and all is well again. The faults that take longer are in the second half (soak).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
import redis

from stack import Stack
from tests.chain.conftest import MakePipeline, in_step, running
from tests.chain.support.broken import connector, drop_slot
from tests.chain.views.test_views import orders_and_customers
from tests.support.compare import OpenSearch
from tests.support.machine import Job, Result, until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(900)]

SECONDS = 30.0
RETRY = {"retry_seconds": 5}
"""A follower says that it waits for its store after so long: 20 s unless it is told otherwise."""


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    pipeline = orders_and_customers(make_pipeline, source)
    strict = {"mapping": {"properties": {"tier": {"type": "integer"}}}}
    pipeline.sync["followers"]["customer-search"]["opensearch"] |= strict
    for follower in pipeline.sync["followers"].values():
        for kind in ("opensearch", "redis"):
            if kind in follower:
                follower[kind] |= RETRY
    pipeline.apply()
    return pipeline


@pytest.fixture(autouse=True)
def job(pipeline: Pipeline) -> Job:
    return in_step(pipeline)


def test_when_all_is_well_all_say_yes(pipeline: Pipeline) -> None:
    well(pipeline)
    assert pipeline.here("wait").code == 0
    pipeline.here("pause", "customer-cache")
    assert pipeline.here("status").code == 0, "an operator wants it so"
    vain = pipeline.here("wait", "customer-cache", "--timeout", "100", seconds=60)
    assert (vain.code, "driftless resume customer-cache" in vain.err) == (1, True), vain
    pipeline.here("resume", "customer-cache")


def test_a_full_redis(pipeline: Pipeline) -> None:
    with redis.Redis.from_url(pipeline.endpoints.redis) as client:
        client.config_set("maxmemory", "1mb")
        try:
            pipeline.connection.execute("update customers set notes = 'x' where id < 5")
            said = told(pipeline, "follower customer-cache", r"Redis is full .*Give it more memory", "driftless check")
            assert len(re.findall("Redis is full", pipeline.here("status").out)) == 1
            assert "Redis is full" in not_content(pipeline)
            assert said["since"] is None or abs(said["since"] - time.time()) < 3600
        finally:
            client.config_set("maxmemory", "0")
    well(pipeline)


def test_a_connector_that_is_paused(pipeline: Pipeline) -> None:
    ask_connect(pipeline, "PUT", "/pause")
    told(pipeline, "connector", r"the connector is PAUSED", "driftless apply")
    assert "the connector is PAUSED; `driftless apply` resumes it" in not_content(pipeline)
    pipeline.apply()
    well(pipeline)


def test_a_document_that_the_store_refuses(pipeline: Pipeline) -> None:
    pipeline.connection.execute("update customers set tier = 'gold' where id = 3")
    told(pipeline, "follower customer-search", r"^1 document is in quarantine$", "driftless quarantine list")
    assert "1 document is in quarantine" in not_content(pipeline)
    pipeline.connection.execute("update customers set tier = null where id = 3")
    well(pipeline)


def test_a_column_that_is_renamed(pipeline: Pipeline) -> None:
    pipeline.connection.execute("alter table customers rename name to called")
    told(
        pipeline,
        "table public.customers",
        r"it has a new column: called; it has no column name any more",
        "driftless plan",
    )
    said = not_content(pipeline)
    assert "public.customers has no column name any more; the column called is new" in said
    pipeline.connection.execute("alter table customers rename called to name")
    well(pipeline)


def test_a_child_that_comes_later(pipeline: Pipeline, job: Job) -> None:
    pipeline.connection.execute("create table late () inherits (customers)")
    pipeline.connection.execute("insert into late values (77, 'late')")
    what = r"public.customers has tables that inherit from it, late"
    told(pipeline, "source", what, "alter table late no inherit public.customers")
    for command in ("check", "plan", "apply", "wait"):
        said = pipeline.here(command)
        assert said.code in (1, 2), said
        assert "tables that inherit from it" in said.out + said.err, said
    until("the run to end", lambda: not job.running, 60)
    assert (job.wait() == 1, "Traceback" in job.output()) == (True, False), job.output()
    pipeline.connection.execute("drop table late")
    assert in_step(pipeline) is not job
    well(pipeline)


def test_nobody_runs_them_and_what_readers_saw_is_deleted(pipeline: Pipeline, job: Job) -> None:
    assert job.stop() == 0
    assert "Traceback" not in job.output()
    told(pipeline, "follower order-cache", r"^nobody runs it$", "driftless run order-cache")
    told(pipeline, "view order", r"^nobody builds it$", "driftless run order")
    begun = time.monotonic()
    vain = pipeline.here("wait", "--timeout", "110", "--start", "3")
    assert (vain.code, "order-cache: nobody runs it; run `driftless run order-cache`" in vain.err) == (1, True), vain
    assert time.monotonic() - begun < 60
    store = pipeline.stores["customer-search"]
    assert isinstance(store, OpenSearch)
    (index,) = store.call("GET", f"/{store.index}/_alias")
    assert pipeline.here("check").code == 0, "nobody runs it yet, which is in nobody's way"
    store.call("DELETE", f"/{index}")
    number = index.rpartition("-")[2]
    assert f"generation {number} is live, and readers see none" in not_content(pipeline)
    in_step(pipeline)
    well(pipeline)


STRANGERS = [
    ("opensearch", "connect"),
    ("redis", "opensearch"),
    ("connect.url", "opensearch"),
    ("source.dsn", "redis"),
]
MORE_STRANGERS = [
    (what, stranger)
    for what in ("source.dsn", "kafka", "connect.url", "opensearch", "redis")
    for stranger in ("postgres", "kafka", "connect", "opensearch", "redis")
    if (what, stranger) not in STRANGERS and stranger not in (what, {"source.dsn": "postgres"}.get(what))
    if (what, stranger) != ("connect.url", "connect")
]


def test_an_address_that_leads_to_another_server(pipeline: Pipeline) -> None:
    """Told by `check` without a traceback; by name of what is wrong, and without its password."""
    led_astray(pipeline, STRANGERS)


def test_every_address_that_leads_to_every_other_server(pipeline: Pipeline) -> None:
    led_astray(pipeline, MORE_STRANGERS)


def led_astray(pipeline: Pipeline, strangers: Sequence[tuple[str, str]]) -> None:
    hosts = {name: re.sub(r".*//(.*@)?|/.*", "", url) for name, url in vars(pipeline.endpoints).items()}
    here = pipeline.machine(f"strangers{len(strangers)}")
    plain = json.dumps(here.sync)
    for what, stranger in strangers:
        sync, host = json.loads(plain), hosts[stranger]
        at = _aim(sync, what, host)
        (here.folder / "sync.yaml").write_text(json.dumps(sync))
        said = here("check", seconds=100)
        assert said.code in (1, 2, 3), (what, stranger, said)
        assert "Traceback" not in said.out + said.err, (what, stranger, said)
        assert at in said.out + said.err, (what, stranger, said)
        assert "hunter2" not in said.out + said.err, (what, stranger, said)


def _aim(sync: dict[str, Any], what: str, host: str) -> str:
    """Have one address lead elsewhere; a word that the message must have."""
    match what:
        case "source.dsn":
            sync["source"]["dsn"] = f"postgresql://u:hunter2@{host}/shop"
        case "kafka":
            sync["kafka"] = {**sync["kafka"], "bootstrap": host, "options": {"socket.timeout.ms": "3000"}}
        case "connect.url":
            sync["connect"]["url"] = f"http://u:hunter2@{host}"
        case kind:
            sync["followers"] = {n: f for n, f in sync["followers"].items() if kind in f}
            for follower in sync["followers"].values():
                scheme = "http" if kind == "opensearch" else "redis"
                follower[kind] |= {"url": f"{scheme}://u:hunter2@{host}", "request_seconds": 3, "retry_seconds": 0}
    return host if what != "source.dsn" else host.rpartition(":")[2]


def test_what_the_store_would_refuse(pipeline: Pipeline) -> None:
    """Before `apply` is given: a mapping, a password, a role that may not."""
    here = pipeline.machine("refused")
    here.sync = json.loads(json.dumps(here.sync))
    search = here.sync["followers"]["customer-search"]["opensearch"]
    search["mapping"] = {"properties": {"tier": {"type": "integr"}}}
    here.write()
    said = here("check")
    assert (said.code, "integr" in said.out) == (1, True), said
    assert re.search(r"sync.yaml:\d+: followers.customer-search.opensearch: ", said.out), said
    leftovers = OpenSearch(pipeline.endpoints.opensearch, "").call(
        "GET", "/_cat/indices?format=json&expand_wildcards=all"
    )
    assert not [found["index"] for found in leftovers if "-check-" in found["index"]]
    search["mapping"] = {}
    with psycopg.connect(pipeline.dsn, autocommit=True) as connection:
        connection.execute("create role stranger login password 'right'")
        here.sync["source"]["dsn"] = re.sub(r"//[^@]*@", "//stranger:hunter2@", pipeline.dsn)
        if "//" not in pipeline.dsn:
            here.sync["source"]["dsn"] = (
                re.sub(r"user=\S+|password=\S+", "", pipeline.dsn) + " user=stranger password=hunter2"
            )
        here.write()
        try:
            refused = here("check")
            if refused.code != 1:  # a server that trusts everybody here lets it in, and it may nothing
                assert (refused.code, "refuses the role" in refused.err) == (2, True), refused
            assert "hunter2" not in refused.out + refused.err
        finally:
            connection.execute("drop role stranger")


# -- what takes longer ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "who", "what"),
    [
        ("redis", "follower customer-cache", r"Redis at \S+ does not answer"),
        ("opensearch", "follower customer-search", r"OpenSearch at \S+ does not answer"),
        ("postgres", "source", r"Postgres at \S+ cannot be reached"),
        ("connect", "Kafka Connect", r"Kafka Connect at \S+ cannot be reached"),
    ],
)
def test_a_server_that_is_down(pipeline: Pipeline, stack: Stack, server: str, who: str, what: str) -> None:
    with down(stack, server):
        if server != "postgres":
            pipeline.connection.execute("update customers set notes = 'y' where id < 5")
        told(pipeline, who, what, "", codes=(1, 3))
        not_content(pipeline, codes=(1, 3))
    pipeline.connect()
    running(pipeline)
    well(pipeline)


def test_brokers_that_are_down(pipeline: Pipeline, stack: Stack) -> None:
    with down(stack, "kafka"):
        begun = time.monotonic()
        said = pipeline.here("status")
        assert (said.code, f"Kafka at {pipeline.endpoints.kafka}" in said.err) == (3, True), said
        assert time.monotonic() - begun < SECONDS
        not_content(pipeline, codes=(3,))
    running(pipeline)
    well(pipeline)


def test_a_connector_that_is_gone(pipeline: Pipeline) -> None:
    ask_connect(pipeline, "DELETE")
    told(pipeline, "connector", r"the connector \S+ is gone", "driftless apply")
    assert "is gone" in not_content(pipeline)
    pipeline.apply()
    running(pipeline)
    well(pipeline)


def test_a_slot_that_is_dropped(pipeline: Pipeline, job: Job) -> None:
    drop_slot(pipeline)
    told(pipeline, "source", r"the slot \S+ is gone", "driftless apply")
    assert "is gone" in not_content(pipeline)
    assert job.wait(60) == 1
    pipeline.apply()
    in_step(pipeline)
    well(pipeline)


# -- what must be said ------------------------------------------------------------------------------------------


def told(pipeline: Pipeline, who: str, what: str, do: str, codes: tuple[int, ...] = (1,)) -> dict[str, Any]:
    """Within 30 s, `status` exits so and has a problem of that name, text and command; people are told the same."""
    last: list[Result] = []

    def found() -> dict[str, Any] | None:
        last[:] = [pipeline.here("status", "--json")]
        problems = json.loads(last[0].out or '{"problems": []}')["problems"]
        fits = [
            p for p in problems if p["who"] == who and re.search(what, f"{p['what']}; {p['do']}".removesuffix("; "))
        ]
        fits = fits or [p for p in problems if p["who"] == who and re.search(what, p["what"])]
        return next((p for p in fits if do in p["do"]), None) if last[0].code in codes else None

    try:
        problem = until(f"`status` to tell of {who}: {what}", found, SECONDS)
    except AssertionError as exc:
        raise AssertionError(f"{exc}\n{last}\n{pipeline.explain()}") from None
    assert problem is not None
    people = pipeline.here("status")
    assert people.code in codes
    assert problem["what"] in people.out, people
    assert problem["do"] in people.out, people
    return problem


def not_content(pipeline: Pipeline, codes: tuple[int, ...] = (1,)) -> str:
    """What `check` says instead of that everything is ready."""
    said = pipeline.here("check")
    assert said.code in codes, said
    assert "everything is ready" not in said.out
    assert "Traceback" not in said.err
    return said.out + said.err


def well(pipeline: Pipeline) -> None:
    """All say yes again, when what was committed has been followed."""
    running(pipeline)
    pipeline.wait()
    last: list[Result] = []

    def content() -> bool:
        last[:] = [pipeline.here("status")]
        return last[0].code == 0

    try:
        until("`status` to be content", content, 90)
    except AssertionError as exc:
        raise AssertionError(f"{exc}\n{last}\n{pipeline.explain()}") from None
    said = pipeline.here("check")
    assert (said.code, said.out.strip().splitlines()[-1:]) == (0, ["everything is ready"]), said


def ask_connect(pipeline: Pipeline, method: str, what: str = "") -> None:
    OpenSearch(pipeline.endpoints.connect, "").call(method, connector(pipeline) + what)


@contextmanager
def down(stack: Stack, server: str) -> Iterator[None]:
    stack.stop(server)
    try:
        yield
    finally:
        stack.start(server)
