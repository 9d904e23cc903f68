"""Topics that are made anew, cut off, changed or outlived: followers stop before they write, and say what to do."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic
from confluent_kafka.admin import ResourceType as Type

from stack import Stack
from tests.chain.conftest import MakePipeline, in_step
from tests.chain.history.test_history import APPLY, again, gap, told_everywhere
from tests.chain.support.broken import connector_stopped, ends
from tests.chain.views.test_views import orders_and_customers
from tests.support.machine import Job, until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    pipeline = orders_and_customers(make_pipeline, source)
    pipeline.apply()
    return pipeline


@pytest.fixture
def job(pipeline: Pipeline) -> Job:
    return in_step(pipeline)


def admin(pipeline: Pipeline) -> AdminClient:
    return AdminClient({"bootstrap.servers": pipeline.endpoints.kafka})


def customers(pipeline: Pipeline) -> str:
    return f"{pipeline.name}.public.customers"


def make_anew(pipeline: Pipeline, topic: str, records: int = 0) -> None:
    """Delete a topic and make it again under its name, with as many records of something."""
    kafka = admin(pipeline)
    partitions = len(kafka.list_topics(topic).topics[topic].partitions)

    def made() -> bool:
        try:
            kafka.create_topics([NewTopic(topic, partitions, 1, config={"cleanup.policy": "compact"})])[topic].result()
        except KafkaException as exc:
            if exc.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # the old one, for a moment
                raise
            return False
        return True

    kafka.delete_topics([topic])[topic].result()
    until("the topic to be made again", made)
    producer = Producer({"bootstrap.servers": pipeline.endpoints.kafka, "partitioner": "murmur2_random"})
    for n in range(records):
        producer.produce(topic, b'{"id":%d,"name":"forged"}' % n, b'{"id":%d}' % n)
    assert producer.flush(30) == 0


def mended(pipeline: Pipeline) -> None:
    done = pipeline.here("apply", seconds=240)
    assert done.code == 0, done.out + done.err
    again(pipeline)


@pytest.mark.parametrize("records", [0, 5000], ids=["shorter", "longer"])
def test_a_topic_that_was_made_anew_while_nobody_ran(pipeline: Pipeline, job: Job, records: int) -> None:
    """Where it has grown past what was applied, offsets alone would show nothing."""
    assert job.stop() == 0
    with connector_stopped(pipeline):
        make_anew(pipeline, customers(pipeline), records)
    message = f"the topic {customers(pipeline)} was recreated"
    told_everywhere(pipeline, message, by=("status", "check"))
    refused = pipeline.run("customer-search", "customer-cache")
    ends(refused, message, APPLY)
    assert not pipeline.differences(["customer-search", "customer-cache"]), "something was written of it"
    gap(pipeline)
    mended(pipeline)


def test_a_topic_that_is_made_anew_under_a_run(pipeline: Pipeline, job: Job) -> None:
    with connector_stopped(pipeline):
        make_anew(pipeline, customers(pipeline), 5000)
        message = f"the topic {customers(pipeline)}"
        until("the run to tell", lambda: message in job.output(), 150)
        until("followers to have failed", partial(failed, pipeline, "customer-search", "customer-cache"), 150)
    assert not pipeline.differences(["customer-search", "customer-cache"]), "something was written of it"
    assert job.running, "it has other followers"
    assert job.stop() in (0, 1)
    gap(pipeline)
    mended(pipeline)


def failed(pipeline: Pipeline, *followers: str) -> bool:
    return all(pipeline.follower(name)["state"] == "failed" for name in followers)


def test_a_topic_that_gets_more_partitions(pipeline: Pipeline, job: Job) -> None:
    """Keys would move to other partitions, and their versions could not be compared."""
    grown = NewPartitions(customers(pipeline), 5)
    kafka = admin(pipeline)
    kafka.create_partitions([grown])[customers(pipeline)].result()
    message = f"the topic {customers(pipeline)} has 5 partitions, and 2 were registered"
    until("the run to tell", lambda: message in job.output(), 150)
    until("followers to have failed", partial(failed, pipeline, "customer-search", "customer-cache"), 150)
    gap(pipeline)
    assert job.stop() in (0, 1)
    told_everywhere(pipeline, message, by=("status", "check"))
    mended(pipeline)


def test_a_topic_that_may_forget_rows(pipeline: Pipeline, job: Job) -> None:
    entry = ConfigEntry("cleanup.policy", "compact,delete", incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(Type.TOPIC, customers(pipeline), incremental_configs=[entry])
    kafka = admin(pipeline)
    kafka.incremental_alter_configs([wanted])[wanted].result()
    message = f"the topic {customers(pipeline)} has cleanup.policy=compact,delete: it forgets rows"
    until("the run to tell", lambda: message in job.output(), 150)
    assert job.stop() in (0, 1)
    told_everywhere(pipeline, message, by=("status", "check"))
    mended(pipeline)


def test_the_topics_of_a_table_and_of_a_view_that_take_no_large_records(pipeline: Pipeline, job: Job) -> None:
    assert job.stop() == 0
    kafka = admin(pipeline)
    ordered = f"{pipeline.name}.view.order.{pipeline.status()['views'][0]['generation']}"
    for topic in (customers(pipeline), ordered):
        entry = ConfigEntry("max.message.bytes", "1048588", incremental_operation=AlterConfigOpType.SET)
        wanted = ConfigResource(Type.TOPIC, topic, incremental_configs=[entry])
        kafka.incremental_alter_configs([wanted])[wanted].result()
    for topic in (customers(pipeline), ordered):
        told_everywhere(pipeline, f"the topic {topic} has max.message.bytes=1048588", by=("status", "check"))
        assert f"change topic {topic}: max.message.bytes=16777216 (is 1048588)" in pipeline.here("plan").out
    mended(pipeline)
    for topic in (customers(pipeline), ordered):
        asked = ConfigResource(Type.TOPIC, topic)
        assert kafka.describe_configs([asked])[asked].result()["max.message.bytes"].value == "16777216"


def test_the_topic_of_a_view_that_is_made_anew(pipeline: Pipeline, job: Job) -> None:
    number = pipeline.status()["views"][0]["generation"]
    topic = f"{pipeline.name}.view.order.{number}"
    make_anew(pipeline, topic)
    until("the run to tell", lambda: f"the topic {topic} was recreated" in job.output(), 150)
    assert job.stop() in (0, 1)
    mended(pipeline)
    of_one = partial(pipeline.follower, "order-search")
    until("what cannot be kept up to be dropped", lambda: len(of_one()["generations"]) == 1, 60)


def ends_of(pipeline: Pipeline) -> list[int]:
    """Where the partitions end, whatever has become of transactions there."""
    settings = {"group.id": "test", "isolation.level": "read_uncommitted"}
    consumer = Consumer({"bootstrap.servers": pipeline.endpoints.kafka, **settings})
    places = [TopicPartition(customers(pipeline), p) for p in (0, 1)]

    def told() -> list[int] | None:
        try:
            return [int(consumer.get_watermark_offsets(place, timeout=30)[1]) for place in places]
        except KafkaException:  # a broker that has just started leads no partition yet
            return None

    try:
        return until("the partitions to be led", told) or []
    finally:
        consumer.close()


def cut_tails(pipeline: Pipeline, stack: Stack) -> None:
    """A broker that comes back without the end of a log, as after a crash of a machine that had not written it."""
    stack.kill("kafka")
    for partition in (0, 1):
        folder = stack.folder / "data" / "kafka" / f"{customers(pipeline)}-{partition}"
        *_, log = sorted(path for path in folder.glob("*.log") if path.stat().st_size)
        with log.open("rb+") as file:
            file.truncate(log.stat().st_size // 2)
        for snapshot in folder.glob("*.snapshot"):
            snapshot.unlink()
    stack.start("kafka")


def floors_of(pipeline: Pipeline) -> list[int]:
    """Where the newest epoch of the table begins in each partition."""
    facts = dict(pipeline.records("control"))  # the last of each key
    newest = json.loads(facts[b"epochs/public.customers"] or b"{}")["epochs"][-1]
    return [newest["floors"][p] for p in ("0", "1")]


@pytest.mark.parametrize("how", ["shorter", "before its epoch", "regrown"])
def test_a_broker_that_lost_the_end_of_a_log(pipeline: Pipeline, job: Job, stack: Stack, how: str) -> None:
    """Also where the newest epoch began behind what is left, and where the log has grown past that again before anybody
    looks: offsets alone would show nothing.
    """
    for _ in range(5):
        gap(pipeline)
    pipeline.assert_in_step()
    if how == "before its epoch":
        assert job.stop() == 0
        done = pipeline.here("apply", "--anew", seconds=240)
        assert done.code == 0, done.err
        job = in_step(pipeline)
    assert job.stop() == 0
    before = ends_of(pipeline)
    with connector_stopped(pipeline):
        cut_tails(pipeline, stack)
        cut = ends_of(pipeline)
        assert all(now < then for now, then in zip(cut, before, strict=True)), (cut, before)
    if how == "before its epoch":
        assert all(now < floor for now, floor in zip(cut, floors_of(pipeline), strict=True)), (cut, floors_of(pipeline))
    if how == "regrown":

        def grown() -> bool:
            # Also rows that are new: those that are left after the gaps may all be of one partition.
            pipeline.connection.execute("insert into customers select max(id) + 1, 'more' from customers")
            pipeline.connection.execute("update customers set name = name || '.'")
            return all(now > then for now, then in zip(ends_of(pipeline), before, strict=True))

        until("the log to be longer than before", grown, 120)
    ends(pipeline.run(), "the broker lost records", APPLY)
    told_everywhere(pipeline, "the broker lost records")
    mended(pipeline)


@pytest.mark.parametrize("of", ["table", "messages"])
def test_a_transaction_that_hangs_is_told_of_and_never_applied(pipeline: Pipeline, job: Job, of: str) -> None:
    """What comes after it waits; when it is aborted, all goes on, and nothing of it is shown.

    Behind the broker that lost the end of a log: where that takes away how a transaction ended, it hangs for ever.
    """
    topic, partitions = (customers(pipeline), (0, 1)) if of == "table" else (f"{pipeline.name}.message", (0,))
    settings = {"bootstrap.servers": pipeline.endpoints.kafka, "transactional.id": f"{pipeline.name}-hangs-{of}"}
    hanging = Producer({**settings, "transaction.timeout.ms": 120_000})
    hanging.init_transactions(30)
    hanging.begin_transaction()
    for partition in partitions:
        forged = (b'{"id":4242,"name":"forged"}', b'{"id":4242}')
        hanging.produce(topic, *forged, partition=partition, headers={"op": b"c", "lsn": b"1"})
    assert hanging.flush(30) == 0
    pipeline.connection.execute("update customers set name = 'after it'")
    waits = partial(pipeline.follower, "customer-cache")
    message = f"a transaction of Kafka has been open on {topic}/"
    until("it to be told of", lambda: message in (waits()["trouble"] or ""), 150)
    assert pipeline.here("wait", "--lsn", pipeline.lsn(), "--timeout", "2", "customer-cache").code == 1
    hanging.abort_transaction(30)
    pipeline.assert_in_step()
    until("nothing to be told of any more", lambda: not waits()["trouble"], 60)
    assert job.running, "the same run has gone on"


def raw(pipeline: Pipeline) -> list[Any]:
    """Every committed record of the newest epoch of the customers' topic, with its headers."""
    consumer = Consumer(
        {"bootstrap.servers": pipeline.endpoints.kafka, "group.id": "test", "enable.partition.eof": True}
    )
    found, left = list[Any](), {0, 1}
    try:
        floors = floors_of(pipeline)  # of what is gone since an older one, no record may tell
        consumer.assign([TopicPartition(customers(pipeline), p, floors[p]) for p in left])
        while left:
            message = consumer.poll(30)
            assert message is not None, "Kafka gave no answer"
            left.discard(message.partition()) if message.error() else found.append(message)
    finally:
        consumer.close()
    return found


def test_records_that_are_delivered_twice(pipeline: Pipeline, job: Job) -> None:
    """As by a producer that sends again what had landed: the newest of each key comes last both times."""
    for _ in range(3):
        gap(pipeline)
    pipeline.assert_in_step()
    producer = Producer({"bootstrap.servers": pipeline.endpoints.kafka})
    records = raw(pipeline)
    for m in records:
        producer.produce(m.topic(), m.value(), m.key(), partition=m.partition(), headers=m.headers())
    assert producer.flush(30) == 0
    assert len(raw(pipeline)) >= 2 * len(records) > 15
    gap(pipeline)
    pipeline.assert_in_step()
    assert job.running, "the same run has gone on"


def test_a_record_that_cannot_be_read(pipeline: Pipeline, job: Job) -> None:
    """Whoever reads it stops there and names it; `apply --anew` begins behind it."""
    producer = Producer({"bootstrap.servers": pipeline.endpoints.kafka})
    producer.produce(
        customers(pipeline), b'{"id": 1, "name', b'{"id":1}', partition=0, headers={"op": b"u", "lsn": b"1"}
    )
    assert producer.flush(30) == 0
    until("followers to have failed", partial(failed, pipeline, "customer-search", "customer-cache"), 150)
    assert f"{customers(pipeline)}/0" in job.output().replace("partition ", "")
    assert "cannot be decoded" in job.output()
    assert job.stop() in (0, 1)
    done = pipeline.here("apply", "--anew", seconds=240)
    assert done.code == 0, done.out + done.err
    again(pipeline)
