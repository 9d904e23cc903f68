"""Streams in the whole chain: events that applications write, windows that close, and what readers find of them."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from stack import stack_home
from tests.chain.conftest import MakePipeline
from tests.support.compare import OpenSearch, Redis, Store, View
from tests.support.machine import until
from tests.support.pipeline import Pipeline
from tests.support.topic import make_events_topic, records

pytestmark = [pytest.mark.server, pytest.mark.soak]

SEED = int(os.environ.get("DRIFTLESS_TEST_SEED") or random.randrange(10**6))
ITEM = View("item", "public.items")
PARTITIONS, LATENESS, WINDOW = 3, 4.0, 5
SQL = (
    "SELECT window.start AS began, page, count(*) AS views, sum(price) AS price, min(id) AS least "
    f"FROM clicks WHERE page <> 'none' GROUP BY window(at, '{WINDOW} seconds'), page"
)
VISITS = (
    "SELECT session_window.start AS began, page, count(*) AS views FROM clicks "
    "GROUP BY session_window(at, '500 milliseconds'), page"
)
PAIRS = (
    "SELECT a.id AS first, b.id AS second FROM clicks a JOIN clicks b ON a.page = b.page "
    "AND b.at BETWEEN a.at AND a.at + INTERVAL 1 SECOND AND a.id < b.id"
)
BUSIEST = "SELECT window.start AS began, max(views) AS most FROM page_views GROUP BY window(window_time, '10 seconds')"


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    pipeline = computed(make_pipeline, source)
    pipeline.apply()
    pipeline.run()
    return pipeline


def computed(make_pipeline: MakePipeline, source: psycopg.Connection, **settings: Any) -> Pipeline:
    """A pipeline with streams that three followers read, beside a view; not applied yet. `settings`: its own."""
    print(f"seed {SEED}")
    source.execute("create table items (id int primary key, name text)")
    pipeline = make_pipeline(ITEM, **settings)
    topic = f"{pipeline.name}.clicks"  # removed with the pipeline
    make_events_topic(pipeline.endpoints.kafka, topic, PARTITIONS)
    columns = {"id": "bigint", "page": "text", "price": "numeric(10,2)", "at": "timestamptz", "sent": "timestamptz"}
    pipeline.sync["events"] = {
        "clicks": {
            "topic": topic,
            "columns": columns,
            "time": {"event": "at", "sent": "sent"},
            "lateness": f"{LATENESS:.0f}s",
        }
    }
    pipeline.sync["streams"] = {
        "page_views": {"sql": SQL, "key": ["began", "page"]},
        "live": {"sql": SQL, "key": ["began", "page"], "emit": "changes"},
        "visits": {"sql": VISITS, "key": ["began", "page"]},
        "pairs": {"sql": PAIRS, "key": ["first", "second"]},
        "busiest": {"sql": BUSIEST, "key": ["began"]},
    }
    for follower, kind in (
        ("trends", {"opensearch": {"url": "${SEARCH_URL}", "index": f"{pipeline.name}-trends"}}),
        ("trends-cache", {"redis": {"url": "${CACHE_URL}", "key": f"{pipeline.name}-trends:{{page}}:{{began}}"}}),
    ):
        pipeline.sync["followers"][follower] = {"view": "page_views", **kind}
    live = {"redis": {"url": "${CACHE_URL}", "key": f"{pipeline.name}-live:{{page}}:{{began}}"}}
    pipeline.sync["followers"]["live-cache"] = {"view": "live", **live}
    return pipeline


def stores(pipeline: Pipeline) -> dict[str, Store]:
    return {
        "trends": OpenSearch(pipeline.endpoints.opensearch, f"{pipeline.name}-trends"),
        **{f"{name}-cache": _cache(pipeline, name) for name in ("trends", "live")},
    }


def _cache(pipeline: Pipeline, name: str) -> Redis:
    return Redis(pipeline.endpoints.redis, f"{pipeline.name}-{name}:{{page}}:{{began}}", ("began", "page"))


_tampered = set[bytes | None]()
"""Keys whose records a test wrote itself."""


_ids = itertools.count(1)
"""No two events of a module have the same id: pairs of them are keys."""


class Clicks:
    """Writes events of a seed: most in time, some late, some of clocks that are wrong, some that are none."""

    def __init__(self, pipeline: Pipeline, seed: int) -> None:
        self.topic = f"{pipeline.name}.clicks"
        self.bootstrap = pipeline.endpoints.kafka
        self._random = random.Random(seed)
        self._producer = Producer({"bootstrap.servers": self.bootstrap})

    def write(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(self.topic, self._event(), partition=self._random.randrange(PARTITIONS))
        self._producer.flush(30)

    def _event(self) -> bytes:
        chance, now = self._random.random(), time.time()
        if chance < 0.02:
            return self._random.choice([b"no json", b"[1]", b'{"id": 7}', b'{"id": "x", "at": 1}', b""])
        wrong = self._random.choice([-90_000.0, 86_400.0]) if chance < 0.1 else 0.0  # the clock of the device
        delay = self._random.choice([30.0, 9.0]) if 0.1 <= chance < 0.15 else self._random.random() * 2
        event: dict[str, Any] = {
            "id": next(_ids),
            "page": self._random.choice(["home", "cart", "none", "ü:{}%"]),
            "price": self._random.choice([None, 1, "2.50", 0.25]),
            "at": _written(now - delay + wrong, self._random),
            "unknown": {"a": [1]},
        }
        if wrong or chance > 0.9:
            event["sent"] = _written(now + wrong, self._random)
        return json.dumps(event).encode()

    def wanted(self, to: float, lateness: float = LATENESS) -> dict[str, dict[str, Any]]:
        """What the stream must show of windows that end by then, worked out of the records without Spark."""
        groups: dict[tuple[float, str], list[dict[str, Any]]] = {}
        for _, value, received in _records(self.bootstrap, self.topic):
            found = _event_of(value, received, lateness)
            if isinstance(found, dict) and found["page"] != "none" and found["page"] is not None:
                groups.setdefault((found["at"] // WINDOW * WINDOW, found["page"]), []).append(found)
        documents = {}
        for (began, page), events in groups.items():
            if began + WINDOW <= to:
                prices = [float(e["price"]) for e in events if e["price"] is not None]
                text = datetime.fromtimestamp(began, UTC).isoformat()
                documents[json.dumps([text, page], ensure_ascii=False)] = {
                    "began": text,
                    "page": page,
                    "views": len(events),
                    "price": sum(prices) if prices else None,
                    "least": min(e["id"] for e in events),
                }
        return documents

    def left_out(self, lateness: float = LATENESS) -> dict[str, str]:
        """Place -> reason of each event that no window counts."""
        found: dict[str, str] = {}
        for place, value, received in _records(self.bootstrap, self.topic):
            reason = _event_of(value, received, lateness)
            if isinstance(reason, str):
                found[place] = reason
        return found


def _written(at: float, chance: random.Random) -> object:
    """A moment in one of the ways that are understood."""
    moment = datetime.fromtimestamp(round(at, 3), UTC)
    return chance.choice([round(at * 1000), moment.isoformat(), moment.isoformat().replace("+00:00", "Z")])


def _event_of(value: bytes, received: float, lateness: float) -> dict[str, Any] | str:
    """The event that a record is, with its time corrected; or why it is left out."""
    try:
        event = json.loads(value)
        at, sent = (None if event.get(name) is None else _moment(event[name]) for name in ("at", "sent"))
        int(event["id"])
    except (ValueError, AttributeError, KeyError, TypeError):
        return "invalid"
    if at is None:
        return "invalid"
    at += received - sent if sent is not None and abs(received - sent) > 2 else 0.0
    if at < 0:
        return "invalid"
    if round(received - at, 3) > lateness:
        return "late"
    return {**event, "at": min(at, received)}


def _moment(written: object) -> float:
    return written / 1000 if isinstance(written, int) else datetime.fromisoformat(str(written)).timestamp()


def _records(bootstrap: str, topic: str) -> list[tuple[str, bytes, float]]:
    """Place, value and broker's time of every record."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "auto.offset.reset": "earliest"})
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=15)[1] for p in range(PARTITIONS)}
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    found: list[tuple[str, bytes, float]] = []
    while len(found) < sum(ends.values()):
        message = consumer.poll(15)
        assert message is not None
        assert message.error() is None
        place = f"{topic}/{message.partition()}/{message.offset()}"
        found.append((place, message.value() or b"", message.timestamp()[1] / 1000))
    consumer.close()
    return found


def stream(pipeline: Pipeline) -> Mapping[str, Any]:
    return next(each for each in pipeline.status()["streams"] if each["name"] == "page_views")


def shown(store: Store) -> dict[str, Any]:
    """Documents by key, whatever each store's helper calls them."""
    return {
        json.dumps([document["began"], document["page"]], ensure_ascii=False): document
        for document in store.documents().values()
    }


def assert_shown(pipeline: Pipeline, clicks: Clicks) -> float:
    """Wait until all windows up to now are closed, and compare what readers see with what they should."""
    now = time.time()
    moment = datetime.fromtimestamp(now, UTC).isoformat()
    done = pipeline.here("wait", "--closed", moment, "--timeout", "120", seconds=150)
    assert done.code == 0, f"{done.err}\n{pipeline.explain()}"
    pipeline.wait("trends")
    pipeline.wait("trends-cache")
    pipeline.wait("live-cache")
    for name, store in stores(pipeline).items():
        found, wanted = shown(store), clicks.wanted(now)
        assert {key: found.get(key) for key in wanted} == wanted, name
        assert {key for key in found if found[key]["began"] < moment[:19]} >= wanted.keys()
    return now


def test_windows_are_published_once_they_are_over_and_equal_the_events(pipeline: Pipeline) -> None:
    clicks = Clicks(pipeline, SEED)
    for _ in range(12):
        clicks.write(60)
        time.sleep(0.5)
    assert_shown(pipeline, clicks)
    wanted = clicks.left_out()
    counts = Counter(wanted.values())
    assert min(counts["late"], counts["invalid"]) > 2

    def counted() -> bool:
        told = stream(pipeline)
        return (told["late"], told["invalid"], told["dropped"]) == (counts["late"], counts["invalid"], 0)

    until("what is left out to be counted", counted, 60)
    assert stream(pipeline)["state"] == "live"
    log = records(pipeline.endpoints.kafka, f"{pipeline.name}.stream.page_views.1.late", committed=True)
    assert {(key or b"").decode(): json.loads(value or b"")["reason"] for key, value in log} == wanted
    assert len(log) == len(wanted)


def test_verify_computes_it_again_as_a_batch(pipeline: Pipeline) -> None:
    done = pipeline.here("verify", "--json", seconds=180)
    reports = {report["name"]: report for report in done.json()["followers"]}
    assert done.code == 0, reports
    assert {*reports} == {
        "item-search",
        "item-cache",
        "trends",
        "trends-cache",
        "live-cache",
        "visits",
        "pairs",
        "busiest",
    }
    assert min(reports[name]["source_documents"] for name in ("trends", "visits", "pairs")) > 3
    assert reports["busiest"]["source_documents"] > 1
    assert {name: report["in_sync"] for name, report in reports.items()} == dict.fromkeys(reports, True)


def test_a_document_that_somebody_changes_in_the_log_is_found_and_named(pipeline: Pipeline) -> None:
    log = f"{pipeline.name}.stream.page_views.1"
    key, value = next(
        (key, value) for key, value in records(pipeline.endpoints.kafka, log, committed=True) if key and value
    )
    _tampered.add(key)
    wrong = json.loads(value) | {"views": 10_000}
    producer = Producer({"bootstrap.servers": pipeline.endpoints.kafka, "partitioner": "murmur2_random"})
    producer.produce(log, json.dumps(wrong).encode(), key)
    producer.flush(15)
    try:
        done = pipeline.here("verify", "page_views", "--json", seconds=180)
        (report,) = done.json()["followers"]
        assert (done.code, report["stage"], report["different"]) == (1, "stream-log", 1)
        assert report["samples"][0]["key"] == key.decode()
    finally:
        began = datetime.fromisoformat(json.loads(value)["began"]).timestamp()
        producer.produce(log, value, key, headers={"begin": str(round(began * 1000))})
        producer.flush(15)
    assert pipeline.here("verify", "page_views", seconds=180).code == 0


def test_a_run_that_is_killed_publishes_each_window_once(pipeline: Pipeline) -> None:
    clicks = Clicks(pipeline, SEED + 1)
    for turn in range(3):
        clicks.write(100)
        time.sleep(1 + turn)
        job = [job for job in pipeline.jobs() if job.running][-1]
        job.kill()
        clicks.write(100)
        pipeline.run()
    assert_shown(pipeline, clicks)
    assert stream(pipeline)["dropped"] == 0
    log = records(pipeline.endpoints.kafka, f"{pipeline.name}.stream.page_views.1", committed=True)
    written = Counter(key for key, _ in log)
    assert {key for key, n in written.items() if n > 1} <= _tampered


def test_a_lost_checkpoint_is_computed_again_and_only_differences_are_published(pipeline: Pipeline) -> None:
    clicks = Clicks(pipeline, SEED + 2)
    before = records(pipeline.endpoints.kafka, f"{pipeline.name}.stream.page_views.1", committed=True)
    job = [job for job in pipeline.jobs() if job.running][-1]
    assert job.stop() == 0
    for name in ("page_views", "live", "pairs"):
        shutil.rmtree(stack_home() / "rows" / pipeline.name / f"{name}-1.checkpoint")
    clicks.write(200)
    pipeline.run()
    assert_shown(pipeline, clicks)
    after = records(pipeline.endpoints.kafka, f"{pipeline.name}.stream.page_views.1", committed=True)
    new = Counter(after) - Counter(before)  # of several partitions, which have no common order
    assert len(new) > 2
    assert not {key for key, _ in before} & {key for key, _ in new}
    assert pipeline.here("verify", "trends", "page_views", "live-cache", "pairs", seconds=180).code == 0


def test_events_that_are_gone_bound_the_proof_and_what_is_computed_again(pipeline: Pipeline) -> None:
    topic = f"{pipeline.name}.clicks"
    found = _records(pipeline.endpoints.kafka, topic)
    admin = AdminClient({"bootstrap.servers": pipeline.endpoints.kafka})
    for place in admin.delete_records(
        [TopicPartition(topic, p, len(found) // PARTITIONS // 2) for p in range(2)]
    ).values():
        place.result()
    done = pipeline.here("verify", "page_views", seconds=180)
    assert done.code == 0, done.out
    assert "cannot be compared, since their events are gone" in done.err
    before = shown(stores(pipeline)["trends"])
    assert [job for job in pipeline.jobs() if job.running][-1].stop() == 0
    shutil.rmtree(stack_home() / "rows" / pipeline.name / "page_views-1.checkpoint")
    clicks = Clicks(pipeline, SEED + 3)
    clicks.write(100)
    job = pipeline.run()
    now = datetime.now(UTC).isoformat()
    done = pipeline.here("wait", "--closed", now, "page_views", "--timeout", "120", seconds=150)
    assert done.code == 0, f"{done.err}\n{job.output()}"
    assert "stay as they were published" in job.output()
    pipeline.wait("trends")
    more = shown(stores(pipeline)["trends"])
    assert {key: more.get(key) for key in before} == before
    assert len(more) > len(before)
    assert pipeline.here("verify", "trends", "page_views", seconds=180).code == 0
    rebuilt = pipeline.here("rebuild", "page_views")
    assert (rebuilt.code, rebuilt.out.split(";")[0]) == (0, "page_views: build 2 is begun")
    until("readers to see it", partial(_sees, pipeline, 2), 120)
    pipeline.wait("trends")
    before, after = more, shown(stores(pipeline)["trends"])
    assert 0 < len(after) < len(before)
    assert {key: before[key] for key in after if key in before} == {key: after[key] for key in after if key in before}
    assert pipeline.here("verify", "trends", seconds=180).code == 0


def test_another_sql_is_a_build_beside_the_one_that_readers_see(pipeline: Pipeline) -> None:
    pipeline.sync["streams"]["page_views"]["sql"] = SQL.replace("count(*)", "count(*) + 1000")
    pipeline.apply()
    until("readers to see the new one", partial(_sees, pipeline, 3), 120)
    until("its windows", lambda: stream(pipeline)["closed_to"] is not None, 60)
    found = shown(stores(pipeline)["trends"])
    assert found
    assert {document["views"] > 1000 for document in found.values()} == {True}
    assert pipeline.here("verify", "trends", "page_views", seconds=180).code == 0


def _sees(pipeline: Pipeline, generation: int) -> bool:
    return all(pipeline.follower(name)["generation"] == generation for name in ("trends", "trends-cache"))
