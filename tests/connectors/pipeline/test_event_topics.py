"""What `check` says of a topic by whose settings events would be lost, or judged by the wrong clock."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from connectors.pipeline.streams import topic_faults
from driftless.config.models import KafkaConfig
from driftless.kafka.client import Kafka
from stack import Endpoints
from tests.driftless.config.test_config import GOOD, load_text
from tests.driftless.config.test_streams_config import STREAMS
from tests.support.machine import until

pytestmark = pytest.mark.server

GOOD_TOPIC = {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "delete", "retention.ms": "700000000"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (GOOD_TOPIC, ()),
        (GOOD_TOPIC | {"retention.ms": "-1"}, ()),
        (GOOD_TOPIC | {"message.timestamp.type": "CreateTime"}, ("message.timestamp.type=CreateTime",)),
        (GOOD_TOPIC | {"cleanup.policy": "compact"}, ("cleanup.policy=compact",)),
        (GOOD_TOPIC | {"cleanup.policy": "compact,delete", "retention.ms": "1000"}, ("cleanup.policy=", "=1000")),
        (GOOD_TOPIC | {"retention.ms": "604809999"}, ("late ones correct for 604810000 ms",)),
        (GOOD_TOPIC | {"retention.ms": "604810000"}, ()),
    ],
)
def test_a_topic_that_would_lose_events_is_refused(
    endpoints: Endpoints, tmp_path: Path, settings: Mapping[str, str], said: tuple[str, ...]
) -> None:
    kafka, topic = Kafka(KafkaConfig(bootstrap=endpoints.kafka)), f"events-{time.time_ns()}"
    kafka.create(topic, 1, settings)
    until("the topic", lambda: kafka.topic(topic))
    streams = STREAMS.replace("app.clicks", topic).replace("lateness: 10s", "lateness: 10s\n    late: {correct: 7d}")
    found = list(topic_faults(load_text(tmp_path, GOOD + streams), kafka))
    kafka.delete(topic)
    assert len(found) == len(said)
    for (at, what), part in zip(found, said, strict=True):
        assert at == ("events", "clicks", "topic")
        assert part in what
        assert f"kafka-configs --alter --topic {topic} --add-config " in what
