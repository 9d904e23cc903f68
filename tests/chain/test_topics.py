"""Topics that are made anew, cut off, changed or outlived: followers stop before they write, and say what to do."""

from __future__ import annotations

from functools import partial

import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic
from confluent_kafka.admin import ResourceType as Type

from tests.chain.broken import connector_stopped, ends
from tests.chain.conftest import MakePipeline, running
from tests.chain.test_history import APPLY, again, gap, told_everywhere
from tests.chain.test_views import make_orders
from tests.compare import View
from tests.pipeline import Job, Pipeline, until

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    pipeline = make_orders(make_pipeline, source)
    pipeline.add(View("customer", "public.customers"))
    pipeline.apply()
    return pipeline


@pytest.fixture
def job(pipeline: Pipeline) -> Job:
    """A run that has followed all there is."""
    job = running(pipeline)
    pipeline.assert_in_step()
    return job


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
    message = f"the topic {customers(pipeline)} was deleted and made again since it was registered"
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
        until("the run to tell", lambda: message in job.output(), 60)
        until("followers to have failed", partial(failed, pipeline, "customer-search", "customer-cache"), 60)
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
    until("the run to tell", lambda: message in job.output(), 60)
    until("followers to have failed", partial(failed, pipeline, "customer-search", "customer-cache"), 60)
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
    until("the run to tell", lambda: message in job.output(), 60)
    assert job.stop() in (0, 1)
    told_everywhere(pipeline, message, by=("status", "check"))
    mended(pipeline)


def test_the_topic_of_a_view_that_is_made_anew(pipeline: Pipeline, job: Job) -> None:
    number = pipeline.status()["views"][0]["generation"]
    topic = f"{pipeline.name}.view.order.{number}"
    make_anew(pipeline, topic)
    until("the run to tell", lambda: f"the topic {topic} was deleted" in job.output(), 60)
    assert job.stop() in (0, 1)
    mended(pipeline)
