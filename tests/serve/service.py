"""A service without a pipeline: the real application and server, over facts that are given."""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import uvicorn

from driftless.config.models import Config
from driftless.errors import SinkError
from driftless.facts.state import State
from driftless.metrics.figures import LogTails
from serve.actions import Actions
from serve.app import Service
from serve.facts.collector import Collector, Snapshot
from serve.facts.held import HeldCount
from serve.facts.history import FollowerHistory
from serve.http.access import AccessRules
from serve.http.server import Listening, configured
from serve.why import WhyReport
from tests.driftless.config.test_config import load_text

FOLLOWER: dict[str, Any] = {
    "name": "item-cache",
    "view": "item",
    "state": "live",
    "generation": 1,
    "generations": [],
    "applied_lsn": "0/40",
    "lag_seconds": 0.5,
    "lag_records": 0,
    "documents": 3,
    "quarantined": 0,
    "trouble": None,
    "proven_lsn": None,
    "proven_at": None,
}
VIEW: dict[str, Any] = {
    "name": "item",
    "state": "live",
    "generation": 1,
    "frontier_lsn": "0/40",
    "lag_records": 0,
    "dirty": 0,
    "quarantined": 0,
    "error": None,
}
FACTS: dict[str, Any] = {
    "pipeline": "shop",
    "source": {
        "lsn": "0/40",
        "slot": "driftless_shop",
        "slot_lag_bytes": 1,
        "slot_left_bytes": None,
        "slot_status": "reserved",
        "connector": "RUNNING",
        "changed": {},
        "trouble": None,
        "unwatched_lsn": None,
    },
    "warnings": [],
    "views": [VIEW],
    "streams": [],
    "followers": [FOLLOWER],
    "problems": [],
    "unreachable": [],
}
TOKEN = "a-token-of-the-tests-0123456789"  # noqa: S105


class KnownFacts:
    """Stands for the collector."""

    def __init__(self) -> None:
        self.history = FollowerHistory()
        self.quarantine: list[HeldCount] | None = []
        self.ready = threading.Event()
        self.ready.set()
        self.kafka_up = True

    def look(self) -> Snapshot:
        return Snapshot(time.time(), time.time(), State({}), FACTS, LogTails(), None)


class KnownActions:
    """Stands for what the buttons do: `done` is what was asked for."""

    verbs = ("pause", "resume", "rebuild")

    def __init__(self) -> None:
        self.done: list[tuple[str, str, int | None]] = []

    def do(self, verb: str, follower: str, generation: int | None) -> str:
        if follower == "nobody":
            raise SinkError("there is no follower `nobody`", hint="name another")
        self.done.append((verb, follower, generation))
        return f"{verb} is done"

    def verifying(self) -> str:
        return ""


SYNC = """\
name: shop
source: {dsn: postgresql://localhost/shop, tables: {public.items: {}}}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://127.0.0.1:1"}
views: {item: {root: public.items}}
followers: {item-cache: {view: item, redis: {url: "redis://127.0.0.1:1", key: "item:{id}"}}}
"""


def config() -> Config:
    """What the service is of."""
    with tempfile.TemporaryDirectory() as folder:
        return load_text(Path(folder), SYNC)


@contextmanager
def served(
    access: AccessRules | None = None,
    facts: KnownFacts | None = None,
    actions: KnownActions | None = None,
    why: WhyReport | None = None,
    port: int = 0,
    place: Listening | None = None,
) -> Iterator[int]:
    """The port at which it answers, on 127.0.0.1."""
    given = cast("Collector", facts or KnownFacts()), access or AccessRules(TOKEN, open=True)
    service = Service(config(), *given, cast("Actions", actions or KnownActions()), why or WhyReport(Path("sync.yaml")))
    listening = socket.create_server(("127.0.0.1", port))
    server = uvicorn.Server(configured(service.app(), place))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield int(listening.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()
    assert not thread.is_alive()
