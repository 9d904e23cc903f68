"""What an earlier demo left on the stack, removed: connector, slot, database, topics, indexes, keys."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable

import psycopg
import urllib3
from psycopg import sql

from bench.demo.place import (
    CACHE_KEY,
    COUNTED,
    FIRST,
    LATER,
    ORDER_INDEX,
    PIPELINE,
    RUSH_KEY,
    SEARCH_INDEX,
    SOLD_KEY,
)
from bench.demo.shop import DATABASE, MADE_BY
from driftless import names
from driftless.config.models import KafkaConfig
from driftless.errors import SourceError
from driftless.kafka.client import Kafka
from driftless.sink import SinkContext
from sinks import open_sink
from stack import Endpoints, stack_home

_SECONDS = 60.0


def remove_leftovers(endpoints: Endpoints) -> list[str]:
    """Remove them and say what there was. Each part may be missing. Nothing that others made is touched."""
    found: list[str] = []
    with psycopg.connect(endpoints.postgres, autocommit=True) as connection:
        made = _made_by_us(connection)
        if remove_connector(endpoints.connect, PIPELINE):
            found.append("connector")
        if made:
            drop_slot(connection, PIPELINE)
            # The slot goes first: a database with one cannot be dropped.
            connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(DATABASE)))
            found.append("database")
    if delete_topics(endpoints.kafka, PIPELINE):
        found.append("topics")
    _drop_followers(endpoints)
    shutil.rmtree(stack_home() / "rows" / PIPELINE, ignore_errors=True)
    return found


def _made_by_us(connection: psycopg.Connection) -> bool:
    """Whether there is a database of ours. Raises SourceError for one of the same name that is somebody else's."""
    row = connection.execute(
        "select shobj_description(oid, 'pg_database') from pg_database where datname = %s", (DATABASE,)
    ).fetchone()
    if row is not None and row[0] != MADE_BY:
        raise SourceError(
            f"this Postgres has a database `{DATABASE}` that the demo did not make",
            hint=f"rename it, give the demo a stack of its own (--stack NAME), or, if it may be replaced, run: "
            f"comment on database {DATABASE} is '{MADE_BY}'",
        )
    return row is not None


def remove_connector(url: str, pipeline: str) -> bool:
    """Delete it together with the source position that Connect keeps for its name, or there would be no new snapshot.

    The position can only be deleted while the connector is there and stopped.
    """
    http = urllib3.PoolManager(timeout=60.0, retries=False)
    connector = f"{url}/connectors/{names.connector(pipeline)}"
    if http.request("GET", connector).status == 404:
        return False
    http.request("PUT", f"{connector}/stop")
    for verb, path in (("DELETE", f"{connector}/offsets"), ("DELETE", connector)):
        _until(f"{verb} {path}", lambda verb=verb, path=path: http.request(verb, path).status in (200, 204, 404))  # type: ignore[misc]
    return True


def drop_slot(connection: psycopg.Connection, pipeline: str) -> None:
    """Drop it, once the connector's session has ended; one that is not there is no error."""
    slot = names.slot(pipeline)

    def gone() -> bool:
        try:
            connection.execute("select pg_drop_replication_slot(%s)", (slot,))
        except psycopg.errors.UndefinedObject:
            return True
        except psycopg.errors.ObjectInUse:
            return False
        return True

    _until(f"the slot {slot} to be free", gone)


def delete_topics(bootstrap: str, pipeline: str) -> bool:
    """Delete all topics of a pipeline; whether there were any."""
    kafka = Kafka(KafkaConfig(bootstrap=bootstrap))

    def ours() -> list[str]:
        mine = (f"{pipeline}.", names.heartbeat_topic(pipeline))
        return [topic for topic in kafka.topics() if topic.startswith(mine)]

    topics = ours()
    if topics:
        kafka.delete(*topics)
        _until("the topics to be gone", lambda: not ours())
    return bool(topics)


def _drop_followers(endpoints: Endpoints) -> None:
    """Through the sinks themselves, which refuse to drop what they did not make."""
    stores: dict[str, tuple[str, dict[str, object], tuple[str, ...]]] = {
        FIRST[0]: ("opensearch", {"url": endpoints.opensearch, "index": SEARCH_INDEX}, ("id",)),
        FIRST[1]: ("redis", {"url": endpoints.redis, "key": CACHE_KEY}, ("id",)),
        COUNTED[0]: ("redis", {"url": endpoints.redis, "key": SOLD_KEY}, ("product_id", "minute")),
        COUNTED[1]: ("redis", {"url": endpoints.redis, "key": RUSH_KEY}, ("category", "began")),
        LATER: ("opensearch", {"url": endpoints.opensearch, "index": ORDER_INDEX}, ("id",)),
    }
    for follower, (kind, config, key) in stores.items():
        sink = open_sink(kind, config, SinkContext(PIPELINE, follower, key))
        try:
            sink.drop(1, also_live=True)
        finally:
            sink.close()


def _until(what: str, probe: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not probe():
        if time.monotonic() > deadline:
            raise SourceError(f"gave up after {_SECONDS:.0f} s: {what}")
        time.sleep(0.2)
