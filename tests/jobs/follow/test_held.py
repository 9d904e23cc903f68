"""When a follower stops instead of quarantining: where its store takes nothing at all."""

from __future__ import annotations

from typing import Any

import pytest

from driftless.errors import SinkMisconfigured
from driftless.facts.counts import WorkCounts
from driftless.sink import Applied, Rejected
from jobs.follow.progress import Progress
from jobs.follow.quarantine import EVERYTHING, stop_where_nothing_is_taken


class Counting:
    """A store that holds so many documents."""

    def __init__(self, documents: int) -> None:
        self.documents = documents

    def count(self, _: int) -> int:
        return self.documents


def refused(number: int, written: int = 0) -> Applied:
    return Applied(written, 0, tuple(Rejected(str(n), n, f"routing_missing_exception {n}") for n in range(number)))


def stops(applied: Applied, *, documents: int = 0, built: bool = False, written: int = 0, stale: int = 0) -> bool:
    sink: Any = Counting(documents)
    progress = Progress("f", "v", 1, counts=WorkCounts(written, stale))
    progress.put(built=built)
    try:
        stop_where_nothing_is_taken(progress, sink, applied)
    except SinkMisconfigured:
        return True
    return False


def test_a_store_that_takes_nothing_from_the_first_document_on_stops_its_follower() -> None:
    sink: Any = Counting(0)
    said = rf"^none of the first {EVERYTHING} documents can be written.*routing_missing_exception {EVERYTHING - 1}$"
    with pytest.raises(SinkMisconfigured, match=said) as raised:
        stop_where_nothing_is_taken(Progress("f", "v", 1), sink, refused(EVERYTHING))
    assert "sync.yaml" in raised.value.hint


def test_where_any_document_was_ever_taken_the_others_are_quarantined() -> None:
    assert stops(refused(EVERYTHING))
    assert not stops(refused(EVERYTHING - 1))
    assert not stops(refused(EVERYTHING, written=1))
    assert not stops(refused(EVERYTHING), written=1)
    assert not stops(refused(EVERYTHING), stale=1)
    assert not stops(refused(EVERYTHING), built=True)
    assert not stops(refused(EVERYTHING), documents=1)
