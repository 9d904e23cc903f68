"""What a generation takes up from its store after a restart: other threads see nothing of it, or all of it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from driftless.facts.epochs import Epoch, TopicLog
from driftless.sink import Sink
from jobs.follow.checkpoint import Checkpoint
from jobs.follow.generation_worker import GenerationWorker
from jobs.follow.job_spec import Job
from jobs.follow.progress import AppliedState
from jobs.follow.readers_generation import ReadersGeneration
from tests.support.machine import until

LOG = TopicLog("items", "id", 1, (Epoch(1, {0: 3}, "first"),))
CHECKPOINT = Checkpoint(1, "id", {0: 9}, None, 1.0, built=True)


class Store:
    """Stands for a sink. `gate`: it answers what readers see when that is set."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.asked = threading.Event()
        self.live: int | None = 1

    def promoted(self) -> int | None:
        live = self.live
        self.asked.set()
        assert self.gate.wait(20)
        return live

    def promote(self, generation: int) -> None:
        self.live = generation


def follow(store: Store) -> GenerationWorker:
    spec: Any = SimpleNamespace(open=lambda: store)
    source: Any = SimpleNamespace(topic="shop.public.item", arrow=None)
    job = Job("item", "item", 2, LOG, source, spec, 7e5)
    kafka = SimpleNamespace(beginnings=lambda *_: {0: 0})
    pending = SimpleNamespace()
    held = ["a document"]
    any_: list[Any] = [job, kafka, None, None, None, None, pending, 1, held, ReadersGeneration()]
    return GenerationWorker(*any_)


def test_a_generation_with_quarantined_documents_is_never_seen_as_built_without_them() -> None:
    """The store answers last what readers see: a turn that looked before that promoted what was held back."""
    store = Store()
    worker = follow(store)
    thread = threading.Thread(target=worker._resume, args=(CHECKPOINT.to_text(),))
    thread.start()
    assert store.asked.wait(20)
    assert worker.progress.holding == AppliedState()
    assert not worker.progress.live
    store.gate.set()
    thread.join(20)
    assert worker.progress.holding == AppliedState({0: 3}, {0: 9}, None, built=True, quarantined=1, known=True)
    assert worker.progress.seen.number == 1


def test_what_a_store_said_before_a_switch_is_not_believed_after_it() -> None:
    store, seen = Store(), ReadersGeneration()
    thread = threading.Thread(target=seen.ask, args=(cast(Sink, store),))
    thread.start()
    assert store.asked.wait(20)
    assert seen.switch(cast(Sink, store), 2)
    store.gate.set()
    thread.join(20)
    assert seen.number == 2


def test_one_that_readers_are_to_see_where_they_see_none_takes_nobody_s_place() -> None:
    store, seen = Store(), ReadersGeneration()
    store.gate.set()
    assert not seen.switch(cast(Sink, store), 2, only_first=True)
    assert (store.live, seen.number) == (1, 1)
    store.live = None
    assert seen.switch(cast(Sink, store), 2, only_first=True)
    assert [store.promoted(), seen.number] == [2, 2]


def test_a_switch_that_fails_leaves_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    store, seen = Store(), ReadersGeneration()
    store.gate.set()
    seen.ask(cast(Sink, store))

    def fails(_: int) -> None:
        raise ValueError

    monkeypatch.setattr(store, "promote", fails)
    with pytest.raises(ValueError):  # noqa: PT011
        seen.switch(cast(Sink, store), 2)
    assert seen.number == 1
    until("the next to be able to switch", lambda: seen.claims.acquire(blocking=False), 1)
