"""A network that fails between a run and the brokers. These tell clients themselves where they are, so it is the run
that stands in a network of its own (tests/support/network.py), in which that place is a proxy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from stack import Endpoints
from tests.chain.conftest import MakePipeline, in_step
from tests.chain.views.test_views import SUMMED, Writers, make_orders
from tests.support.network import allowed
from tests.support.pipeline import Pipeline
from tests.support.proxy import Proxy, broker_apart
from tests.support.seeds import seeds

pytestmark = [
    pytest.mark.server,
    pytest.mark.soak,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not allowed(), reason="no network of its own may be made here"),
]
PARTED_SECONDS = 20.0
SLOW_SECONDS = 0.7


@pytest.fixture(scope="module")
def kafka(endpoints: Endpoints) -> Iterator[Proxy]:
    """The way to the broker in a network of its own; those to the other servers are there too."""
    others = (endpoints.postgres, endpoints.connect, endpoints.opensearch, endpoints.redis)
    with broker_apart(endpoints.kafka, others) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection, kafka: Proxy) -> Pipeline:
    def within(**more: object) -> Pipeline:
        made = make_pipeline(**more)
        made.here.within = kafka.within
        return made

    pipeline = make_orders(within, source)
    source.execute(SUMMED)
    return pipeline


def parted(kafka: Proxy, pipeline: Pipeline) -> None:
    with kafka.parted():
        said = pipeline.here("status")
        assert said.code != 0, said
        assert f"Kafka at {pipeline.endpoints.kafka} cannot be reached" in said.err, said
        time.sleep(PARTED_SECONDS)


def slow(kafka: Proxy, _: Pipeline) -> None:
    kafka.answer_late(SLOW_SECONDS, 50)


def cut_off(kafka: Proxy, _: Pipeline) -> None:
    kafka.cut_off(8)


@pytest.mark.parametrize("fault", [parted, slow, cut_off])
def test_a_network_that_fails_between_a_run_and_the_brokers(
    pipeline: Pipeline, kafka: Proxy, fault: Callable[[Proxy, Pipeline], None]
) -> None:
    """While orders are written, and the run reads from the brokers and publishes to them."""
    job = in_step(pipeline)
    writers = Writers(pipeline.dsn, seeds("network", 1)[0])
    try:
        fault(kafka, pipeline)
    finally:
        kafka.heal()
        writers.end()
    pipeline.assert_in_step()
    assert job.running, "the same run has gone on"
