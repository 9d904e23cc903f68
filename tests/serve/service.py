"""A service without a pipeline: the real application and server, over facts that are given."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import uvicorn

from driftless.facts.state import State
from driftless.metrics.figures import LogTails
from serve.access import AccessRules
from serve.app import Service
from serve.collector import Collector, Snapshot
from serve.server import configured

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
    "views": [],
    "streams": [],
    "followers": [],
    "problems": [],
    "unreachable": [],
}
TOKEN = "a-token-of-the-tests-0123456789"  # noqa: S105


class KnownFacts:
    """Stands for the collector."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.ready.set()
        self.kafka_up = True

    def look(self) -> Snapshot:
        return Snapshot(time.time(), time.time(), State({}), FACTS, LogTails(), None)


@contextmanager
def served(access: AccessRules | None = None, facts: KnownFacts | None = None) -> Iterator[int]:
    """The port at which it answers, on 127.0.0.1."""
    service = Service("shop", cast("Collector", facts or KnownFacts()), access or AccessRules(TOKEN, open=True))
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(configured(service.app()))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield int(listening.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()
    assert not thread.is_alive()
