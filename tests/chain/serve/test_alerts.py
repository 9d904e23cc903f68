"""Each rule fires on the real chain, judged by a real Prometheus, and is over when what it says has been done."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from driftless.config.models import KafkaConfig
from driftless.control.lease import Lease
from driftless.control.topic import Control
from driftless.errors import SourceUnavailable
from driftless.facts.generation import generations
from driftless.kafka.client import Kafka
from driftless.metrics.alerts import alerts
from driftless.metrics.prometheus import rules
from stack import Stack
from tests.chain.conftest import MakePipeline, newest_live
from tests.chain.support.prometheus import Prometheus, running
from tests.chain.support.serving import Serving
from tests.support.compare import OpenSearch, View
from tests.support.machine import Job, until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(300)]

ITEM = View("item", "public.items")
INDEX = {"mapping": {"dynamic": False, "properties": {"price": {"type": "integer"}}}}
FOLLOWERS = ("item-search", "item-cache")
LAG_SECONDS, PROOF_SECONDS = 15.0, 25.0


class Receiver:
    """A webhook: what it was given, in order."""

    def __init__(self) -> None:
        taken: list[dict[str, Any]] = []
        self.taken = taken

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                said = json.loads(self.rfile.read(int(self.headers["content-length"])))
                taken.append({**said, "authorization": self.headers["authorization"]})
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/hook"

    def told(self, alert: str, who: str, begin: int = 0) -> list[dict[str, Any]]:
        """What it was given of an alert of somebody, from that message on."""
        return [one for one in self.taken[begin:] if (one["alert"], one["labels"].get("who")) == (alert, who)]


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.server.shutdown()


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection, receiver: Receiver) -> Pipeline:
    """Applied, with one follower more in sync.yaml that is not; nobody runs it."""
    source.execute("create table items (id int primary key, name text, price text)")
    source.execute("insert into items select n, 'item ' || n, n from generate_series(1, 20) n")
    pipeline = make_pipeline(ITEM, index=INDEX)
    pipeline.sync["alerts"] = {"webhook": receiver.url, "headers": {"Authorization": "Bearer of-the-receiver"}}
    pipeline.apply()
    pipeline.follow("item-later", ITEM, {"redis": {}})
    pipeline.here.write()
    return pipeline


@pytest.fixture(scope="module")
def serving(pipeline: Pipeline) -> Serving:
    return Serving(pipeline)


@pytest.fixture(scope="module")
def prometheus(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    known = alerts(LAG_SECONDS, PROOF_SECONDS)
    target = serving.url.removeprefix("http://")
    with running(tmp_path_factory.mktemp("prometheus"), target, rules(known, hold=False)) as found:
        yield found


class FakeRunner(threading.Thread):
    """Holds the lease of a follower, as a run does, and tells of it what it is told to."""

    def __init__(self, pipeline: Pipeline, follower: str) -> None:
        super().__init__(daemon=True)
        kafka = KafkaConfig(bootstrap=pipeline.endpoints.kafka)
        control = Control(Kafka(kafka), pipeline.name)
        self._control, self._follower = control, follower
        self._said: dict[str, Any] | None = None
        self._ended = threading.Event()
        control.write(self._facts(self.fact()))  # of the run before it
        self._lease = Lease(control, follower)
        self.start()

    @staticmethod
    def fact(**more: object) -> dict[str, object]:
        plain: dict[str, object] = {"view": "item", "state": "live", "live": True, "applied_lsn": "0/1", "trouble": ""}
        return plain | {"marker_time": None, "lag_records": 0, "still_seconds": 0.0, "quarantined": 0} | more

    def _facts(self, said: dict[str, object] | None) -> dict[str, dict[str, object] | None]:
        """It tells of the newest generation alone: `apply` has begun one where the table changed."""
        known = generations(self._control.read(), self._follower)
        facts: dict[str, dict[str, object] | None] = {f"follower/{self._follower}/{n}": None for n in known}
        return facts | {f"follower/{self._follower}/{max(known)}": said}

    def tell(self, **more: object) -> None:
        self._said = self.fact(**more)

    def run(self) -> None:
        while not self._ended.wait(1.0):
            with suppress(SourceUnavailable):  # a test stops the broker
                self._lease.write({} if self._said is None else self._facts(self._said))

    def end(self) -> None:
        self._ended.set()
        self.join(20)
        self._lease.release(self._facts(None))


def run_followers(pipeline: Pipeline) -> Job:
    job = pipeline.run(*FOLLOWERS)
    for follower in FOLLOWERS:
        pipeline.wait(follower)
    return job


def call(pipeline: Pipeline, path: str, method: str, body: object = None) -> Any:
    return OpenSearch(pipeline.endpoints.connect, "").call(method, path, body)


@pytest.fixture(scope="module")
def fake(pipeline: Pipeline, serving: Serving, prometheus: Prometheus) -> Iterator[FakeRunner]:
    """Of the third follower, once it is applied, and what is not applied and not run has rung."""
    assert serving
    prometheus.until_firing("DriftlessNotApplied", "follower item-later")
    prometheus.until_firing("DriftlessNotRunning", "follower item-search")
    pipeline.apply()
    prometheus.until_over("DriftlessNotApplied")
    fake = FakeRunner(pipeline, "item-later")
    yield fake
    fake.end()


@pytest.fixture(scope="module", autouse=True)
def _runs(pipeline: Pipeline, fake: FakeRunner, prometheus: Prometheus) -> None:
    assert fake
    run_followers(pipeline)
    prometheus.until_over("DriftlessNotRunning")


def test_a_service_that_is_away(serving: Serving, pipeline: Pipeline, prometheus: Prometheus) -> None:
    port = serving.url.rpartition(":")[2]
    serving.job.kill()
    prometheus.until_firing("DriftlessServeIsAway")
    serving.job = pipeline.here.start("serve", "--port", port)
    pipeline.here.jobs.append(serving.job)
    prometheus.until_over("DriftlessServeIsAway")


@pytest.mark.parametrize(
    ("server", "alert", "who"),
    [
        ("postgres", "DriftlessSourceUnreachable", "source"),
        ("connect", "DriftlessConnectUnreachable", "Kafka Connect"),
        ("kafka", "DriftlessKafkaUnreachable", "Kafka"),
    ],
)
def test_a_server_that_is_away(
    stack: Stack, pipeline: Pipeline, prometheus: Prometheus, server: str, alert: str, who: str
) -> None:
    stack.kill(server)
    try:
        prometheus.until_firing(alert, who)
    finally:
        stack.up()
    prometheus.until_over(alert)
    pipeline.connect()
    for follower in FOLLOWERS:
        pipeline.wait(follower)


def test_a_connector_that_is_paused(pipeline: Pipeline, prometheus: Prometheus) -> None:
    call(pipeline, f"/connectors/driftless-{pipeline.name}/pause", "PUT")
    prometheus.until_firing("DriftlessConnectorDown", "connector")
    call(pipeline, f"/connectors/driftless-{pipeline.name}/resume", "PUT")
    prometheus.until_over("DriftlessConnectorDown")


def run_again(pipeline: Pipeline) -> None:
    """Once what a run has ended of is mended."""
    for job in pipeline.jobs():
        if job.running and job.arguments[0] == "run":
            job.stop()
        job.told = True
    run_followers(pipeline)


def test_a_topic_that_forgets(pipeline: Pipeline, prometheus: Prometheus) -> None:
    """The run ends of it, and `apply` mends it."""
    entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ResourceType.TOPIC, f"{pipeline.name}.public.items", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": pipeline.endpoints.kafka})
    for done in admin.incremental_alter_configs([topic]).values():
        done.result()
    prometheus.until_firing("DriftlessLogUntrusted", "source")
    pipeline.apply()
    prometheus.until_over("DriftlessLogUntrusted")
    run_again(pipeline)


def test_a_table_that_changed(pipeline: Pipeline, prometheus: Prometheus) -> None:
    with psycopg.connect(pipeline.dsn, autocommit=True) as own:  # the other one broke when Postgres was killed
        own.execute("alter table items add column note text")
    prometheus.until_firing("DriftlessTableChanged", "table public.items")
    pipeline.apply()
    prometheus.until_over("DriftlessTableChanged")
    newest_live(pipeline, *FOLLOWERS)


def test_a_document_that_is_refused(pipeline: Pipeline, prometheus: Prometheus) -> None:
    with psycopg.connect(pipeline.dsn, autocommit=True) as own:
        own.execute("update items set price = 'dear' where id = 1")
        prometheus.until_firing("DriftlessQuarantine", "follower item-search")
        own.execute("update items set price = '7' where id = 1")
    prometheus.until_over("DriftlessQuarantine")


def test_a_store_that_forbids_writing(pipeline: Pipeline, prometheus: Prometheus, receiver: Receiver) -> None:
    def told() -> list[dict[str, Any]]:
        return receiver.told("DriftlessFailed", "follower item-search", begin)

    begin = len(receiver.taken)
    search = OpenSearch(pipeline.endpoints.opensearch, "")
    index = pipeline.sync["followers"]["item-search"]["opensearch"]["index"]
    search.call("PUT", f"/{index}/_settings", {"index.blocks.write": True})
    with psycopg.connect(pipeline.dsn, autocommit=True) as own:
        own.execute("update items set name = 'blocked' where id = 2")
    prometheus.until_firing("DriftlessFailed", "follower item-search")
    until("the webhook to be told", lambda: [one["state"] for one in told()] == ["firing"], 30)
    search.call("PUT", f"/{index}/_settings", {"index.blocks.write": False})
    run_again(pipeline)
    prometheus.until_over("DriftlessFailed")
    until("the webhook to be told of the end", lambda: [one["state"] for one in told()] == ["firing", "resolved"], 30)
    first, last = told()
    assert first["id"] == last["id"]
    assert first["authorization"] == "Bearer of-the-receiver"
    assert first["labels"] == {"kind": "failed", "who": "follower item-search"}
    assert "OpenSearch forbids writing" in first["summary"]


def test_a_store_that_is_down(pipeline: Pipeline, stack: Stack, prometheus: Prometheus) -> None:
    stack.kill("redis")
    try:
        with psycopg.connect(pipeline.dsn, autocommit=True) as own:
            own.execute("update items set name = 'later' where id = 3")
        prometheus.until_firing("DriftlessWaiting", "follower item-cache")
        prometheus.until_firing("DriftlessFollowerLags", "item-cache")
    finally:
        stack.up()
    prometheus.until_over("DriftlessWaiting", "DriftlessFollowerLags")


def test_drift_and_a_proof_that_is_old(pipeline: Pipeline, prometheus: Prometheus) -> None:
    assert pipeline.here("verify", "item-cache", seconds=240).code == 0
    prometheus.until_firing("DriftlessProofIsOld", "item-cache")
    cache = pipeline.stores["item-cache"]
    with redis.Redis.from_url(pipeline.endpoints.redis) as client:
        client.set(cache.name((4,)), '{"id": 4}')
    assert pipeline.here("verify", "item-cache", seconds=240).code == 1
    prometheus.until_firing("DriftlessDrift", "item-cache")
    prometheus.until_over("DriftlessProofIsOld", seconds=PROOF_SECONDS)
    assert pipeline.here("verify", "item-cache", "--repair", seconds=240).code == 0
    prometheus.until_over("DriftlessDrift")


def test_a_run_that_does_not_start_or_get_on_or_shows_nothing(fake: FakeRunner, prometheus: Prometheus) -> None:
    """What no fault of a server makes a sound run say, a fake one says: of our own protocol alone."""
    prometheus.until_firing("DriftlessNotStarting", "follower item-later")
    fake.tell(live=False)
    prometheus.until_over("DriftlessNotStarting")
    prometheus.until_firing("DriftlessNoReaders", "follower item-later")
    fake.tell(still_seconds=100.0, marker_time=1.0)
    prometheus.until_over("DriftlessNoReaders")
    prometheus.until_firing("DriftlessStandsStill", "follower item-later")
    fake.tell()
    prometheus.until_over("DriftlessStandsStill", "DriftlessFollowerLags")


def test_a_slot_that_runs_out_and_is_lost(pipeline: Pipeline, prometheus: Prometheus) -> None:
    connector = f"/connectors/driftless-{pipeline.name}"
    with psycopg.connect(pipeline.endpoints.postgres, autocommit=True) as server:

        def limit(size: str) -> None:
            server.execute(f"alter system set max_slot_wal_keep_size = '{size}'")
            server.execute("select pg_reload_conf()")

        def write() -> None:
            server.execute("select pg_logical_emit_message(false, 'filling', repeat('x', 1000000))")

        try:
            limit("4GB")
            call(pipeline, f"{connector}/stop", "PUT")

            def runs_out() -> bool:
                write()
                return ("DriftlessSlotRunsOut", "") in prometheus.firing()

            until("the slot to run out", runs_out, 90)
            limit("1MB")
            server.execute("select pg_switch_wal()")
            for _ in range(5):
                server.execute("select pg_logical_emit_message(false, 'filling', repeat('x', 20000000))")
                server.execute("select pg_switch_wal()")
            server.execute("checkpoint")
            prometheus.until_firing("DriftlessSlotLost")
        finally:
            limit("-1")
    for job in pipeline.jobs():
        if job.running and job.arguments[0] == "run":
            job.stop()
    pipeline.apply()
    prometheus.until_over("DriftlessSlotLost", "DriftlessSlotRunsOut")


def test_every_rule_was_to_fire_here() -> None:
    """So that a rule that is added gets a test."""
    said = Path(__file__).read_text(encoding="utf-8")
    names = [rule["alert"] for rule in rules()["groups"][0]["rules"]]
    assert [name for name in names if f'"{name}"' not in said] == []
