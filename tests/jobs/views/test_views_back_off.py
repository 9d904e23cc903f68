"""How long a builder waits before it tries again: longer each time, and from the start after success."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from driftless.errors import SourceUnavailable
from driftless.marker import Marker
from jobs.views import builder as builders
from jobs.views.builder import Builder
from jobs.views.cuts import Cut
from jobs.views.progress import BuildProgress
from jobs.views.store.contract import RowsLost


@dataclass
class Stop:
    """Set when it has been waited on for so often."""

    most: int
    waits: list[float] = field(default_factory=list)

    def is_set(self) -> bool:
        return len(self.waits) >= self.most

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)


def builder(most: int) -> tuple[Builder, Stop]:
    build, stop = object.__new__(Builder), Stop(most)
    view = SimpleNamespace(name="order", shards=1)
    declared = cast("Any", SimpleNamespace(view=view, number=1, log=None))
    build.build, build._shard, build.stop = declared, 0, cast("Any", stop)
    build.progress, build._pause = BuildProgress(declared), builders.PAUSE_SECONDS
    build._shared = cast("Any", SimpleNamespace(spark=None))
    build._before_resnapshot, build._clean, build._held, build._ids = False, False, False, {}
    build._computed = None
    build._own = cast("Any", SimpleNamespace(topic_id="t"))
    build._identity = cast("Any", SimpleNamespace(leaders={}))
    return build, stop


def test_back_off_begins_from_the_start_after_success(monkeypatch: Any) -> None:
    monkeypatch.setattr(builders, "name_jobs", lambda *_: None)
    build, stop = builder(11)
    whole = SimpleNamespace(read=lambda *_: SimpleNamespace(changes=[], reached={}, whole=True))
    keeps = SimpleNamespace(apply=lambda *_, **__: None)

    def life() -> None:
        """Every seventh comes to a cut before the server is away again."""
        if len(stop.waits) == 7:
            build._advance(cast("Any", keeps), cast("Any", whole), Cut(Marker(1, 1.0), {}))
            assert build.progress.last_error == ""
        raise SourceUnavailable("Kafka cannot be reached")

    monkeypatch.setattr(build, "_build", life)
    build.run()
    assert stop.waits == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 0.2, 0.4, 0.8, 1.6]
    assert build.progress.last_error == "Kafka cannot be reached"
    assert build.progress.error is None


def test_rows_that_are_lost_again_and_again_do_not_spin(monkeypatch: Any) -> None:
    monkeypatch.setattr(builders, "name_jobs", lambda *_: None)
    build, stop = builder(4)

    def life() -> None:
        raise RowsLost("the disk is full")

    monkeypatch.setattr(build, "_build", life)
    build.run()
    assert stop.waits == [0.2, 0.4, 0.8, 1.6]
