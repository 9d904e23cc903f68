"""What a campaign does. Each returns what shows that it fired, and fails where nothing does."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import redis
from confluent_kafka import Producer

from tests.chain.faults.test_stores_lost import index
from tests.chain.history.test_topics import admin, customers, cut_tails, ends_of, make_anew
from tests.chain.support import broken
from tests.chaos.campaign import Campaign
from tests.support.machine import until
from tests.support.network import allowed

Fault = Callable[[Campaign], str]
FAULTS: dict[str, Fault] = {}
NETWORK = allowed()
"""Whether driftless runs in a network of its own. A broker says itself where it is: else no proxy is before it."""


def fault(do: Fault) -> Fault:
    FAULTS[do.__name__.replace("_", " ")] = do
    return do


def kill(server: str, c: Campaign) -> str:
    before = c.stack.running()[server]
    c.stack.kill(server)
    time.sleep(c.rng.uniform(0, 3))
    c.stack.start(server)
    now = c.stack.running()[server]
    assert now != before
    return f"process {before}, then {now}"


def stall(server: str, c: Campaign) -> str:
    with broken.asleep(c.stack.running()[server]) as processes:
        time.sleep(c.rng.uniform(3, 12))
    return f"{processes} processes were asleep"


def part(server: str, c: Campaign) -> str:
    """No connection to it for a while, from wherever driftless runs."""
    with c.proxies[server].parted() as cut:
        time.sleep(c.rng.uniform(2, 12))
    return f"{cut} connections were cut"


def slow(server: str, c: Campaign) -> str:
    delay = c.rng.uniform(0.2, 1.0)
    return f"{c.proxies[server].answer_late(delay, 10)} answers came {delay:.1f} s late"


def cut_off(server: str, c: Campaign) -> str:
    c.proxies[server].cut_off(3)
    return "3 answers"


def lose(server: str, mark: bytes, c: Campaign) -> str:
    proxy = c.proxies[server]
    for _ in range(3):
        before = proxy.faults
        proxy.lose_reply_to(mark)
        until("the answer to a write to be lost", lambda before=before: proxy.faults > before, 60)  # type: ignore[misc]
    return "3 answers to writes that had landed"


for _server in ("postgres", "kafka", "connect", "opensearch", "redis"):
    FAULTS[f"kill {_server}"] = partial(kill, _server)
    FAULTS[f"stall {_server}"] = partial(stall, _server)
for _server in ("postgres", "opensearch", "redis", *(["kafka"] if NETWORK else [])):
    FAULTS[f"part from {_server}"] = partial(part, _server)
    FAULTS[f"slow {_server}"] = partial(slow, _server)
    FAULTS[f"cut off answers of {_server}"] = partial(cut_off, _server)
FAULTS["lose answers of opensearch"] = partial(lose, "opensearch", b"/_bulk")
FAULTS["lose answers of redis"] = partial(lose, "redis", b"EVALSHA")


@fault
def kill_the_run(c: Campaign) -> str:
    c.job.kill()
    return "it is gone"


@fault
def drop_the_slot(c: Campaign) -> str:
    broken.drop_slot(c.pipeline)
    return "there was none for a moment"


@fault
def move_the_slot(c: Campaign) -> str:
    with broken.connector_stopped(c.pipeline):
        before = (broken.slot_row(c.pipeline) or {})["confirmed_flush_lsn"]
        time.sleep(2)
        query = "select pg_replication_slot_advance(%s, pg_current_wal_lsn())"
        c.pipeline.connection.execute(query, (broken.slot(c.pipeline),))
        after = (broken.slot_row(c.pipeline) or {})["confirmed_flush_lsn"]
        until("it to be noticed", lambda: not c.job.running, 60)
    assert before != after
    return f"from {before} to {after}"


@fault
def lose_connects_position(c: Campaign) -> str:
    with broken.connector_stopped(c.pipeline):
        time.sleep(2)
        broken.rest(c.pipeline).call("DELETE", f"{broken.connector(c.pipeline)}/offsets")
    return "it has none"


@fault
def take_a_table_out_of_the_publication(c: Campaign) -> str:
    publication = broken.slot(c.pipeline)
    c.pipeline.connection.execute(f"alter publication {publication} drop table order_lines".encode())
    time.sleep(2)
    return "it is out"


@fault
def make_a_topic_anew(c: Campaign) -> str:
    with broken.connector_stopped(c.pipeline):
        make_anew(c.pipeline, customers(c.pipeline), c.rng.choice([0, 3000]))
    return "it has another id"


@fault
def cut_off_the_end_of_a_log(c: Campaign) -> str:
    before = ends_of(c.pipeline)
    with broken.connector_stopped(c.pipeline):
        cut_tails(c.pipeline, c.stack)
        after = ends_of(c.pipeline)
    assert after != before
    return f"ends {before}, then {after}"


@fault
def flush_redis(c: Campaign) -> str:
    with redis.Redis.from_url(c.pipeline.endpoints.redis) as client:
        keys = client.dbsize()
        client.flushall()
    assert keys
    return f"{keys} keys"


@fault
def delete_an_index(c: Campaign) -> str:
    server, name = index(c.pipeline, c.rng.choice(["customer-search", "order-search"]))
    server.call("DELETE", f"/{name}")
    time.sleep(3)
    return name


@fault
def add_a_column_with_values(c: Campaign) -> str:
    name = f"c{c.rng.randrange(10**6)}"
    c.pipeline.connection.execute(f"alter table customers add column {name} int not null default 7".encode())
    return name


@fault
def truncate_a_table(c: Campaign) -> str:
    c.pipeline.connection.execute("truncate customers")
    return "it was empty"


@fault
def rebuild_a_follower(c: Campaign) -> str:
    follower = c.rng.choice(["customer-search", "customer-cache", "order-search", "order-cache"])
    done = c.pipeline.here("rebuild", follower, seconds=300)
    assert done.code == 0, done.err
    return follower


@fault
def add_partitions(c: Campaign) -> str:
    from confluent_kafka.admin import NewPartitions

    kafka = admin(c.pipeline)
    kafka.create_partitions([NewPartitions(customers(c.pipeline), 5)])[customers(c.pipeline)].result()
    return "it has 5"


@fault
def write_strange_messages(c: Campaign) -> str:
    """Into the source's log, as a role that may only connect can; and into the control topic."""
    name = c.pipeline.name
    for prefix in ("driftless", "driftless.truncate.public.customers", f"driftless:{name}:{c.rng.randrange(10**9)}"):
        for transactional in (True, False):
            message = (transactional, prefix, "x" * c.rng.choice([0, 10, 10_000_000]))
            c.pipeline.connection.execute("select pg_logical_emit_message(%s, %s, %s)", message)
    producer = Producer({"bootstrap.servers": c.pipeline.endpoints.kafka})
    for key in ("hello", "lease/customer-cache", "generation/order-search/1", "pipeline/identity"):
        producer.produce(f"{name}.control", c.rng.randbytes(30), key.encode())
    assert producer.flush(30) == 0
    return "6 messages and 4 records"
