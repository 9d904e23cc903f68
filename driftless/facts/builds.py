"""Builds: the generations of a view of several tables, each with a topic of its own that followers read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

from driftless import names
from driftless.config.models import Config
from driftless.errors import SourceError
from driftless.facts.epochs import FollowedTable, LogName, TopicLog, first_epoch
from driftless.facts.state import State
from driftless.facts.streams import FollowedStream
from driftless.kafka.client import Kafka
from driftless.kafka.log_writer import create_log
from driftless.table import is_computed
from driftless.views.tree import View


@dataclass(frozen=True)
class Build:
    """`epochs`: of its tables' logs, by table, at whose floors it begins; of a stream that is its root the build. `why`
    it was begun.

    `log`: its own topic; None before that is made. `history`: how often all tables had been re-snapshotted by then.
    """

    number: int
    view: View
    epochs: dict[str, int]
    partitions: int
    retention: float
    why: str = ""
    log: TopicLog | None = None
    history: int = 0

    def same_definition(self, wanted: Build) -> bool:
        """Whether it holds what another would."""
        return (self.view.fingerprint, self.epochs) == (wanted.view.fingerprint, wanted.epochs)

    @property
    def sources(self) -> dict[str, FollowedTable | FollowedStream]:
        """The logs that it is made of, by the names of tables."""
        return {
            name: FollowedStream(self.view.stream, self.epochs[name])
            if is_computed(name)
            else FollowedTable(name, self.epochs[name])
            for name in self.view.tables
        }

    @property
    def followed(self) -> FollowedView:
        """Its log, for whoever follows it."""
        return FollowedView(self.view.name, self.number, self.view.fingerprint)

    @property
    def key(self) -> str:
        """Of its fact in the control topic."""
        return _key(self.view.name, self.number)

    def to_json(self) -> dict[str, object]:
        log = None if self.log is None else self.log.to_json()
        return {
            "view": self.view.to_json(),
            "epochs": self.epochs,
            "partitions": self.partitions,
            "retention": self.retention,
            "why": self.why,
            "log": log,
            "history": self.history,
        }

    @classmethod
    def from_json(cls, number: int, data: Mapping[str, Any]) -> Build:
        log = None if data["log"] is None else TopicLog.from_json(data["log"])
        return cls(
            number,
            View.from_json(data["view"]),
            dict(data["epochs"]),
            int(data["partitions"]),
            float(data["retention"]),
            data["why"],
            log,
            data.get("history", 0),
        )

    def followed_by(self, kafka: Kafka, pipeline: str, epochs: dict[str, int], why: str, history: int) -> Build:
        """The next build of the same view, which begins at these epochs; with its topic."""
        fresh = replace(self, number=self.number + 1, epochs=epochs, why=why, log=None, history=history)
        return fresh.with_topic(kafka, pipeline)

    def with_topic(self, kafka: Kafka, pipeline: str) -> Build:
        """The same with its topic, made where it is missing."""
        name = names.view_topic(pipeline, self.view.name, self.number)
        found = create_log(kafka, name, self.partitions, self.retention)
        return replace(self, log=first_epoch(found.name, found.id, found.partitions))


def _key(view: str, number: int) -> str:
    return f"view/{view}/{number}"


def begun_at(fact: Mapping[str, Any], table: str) -> int:
    """At which place of a table's log a build begins, by its fact; 0 where it is not made of that table."""
    return int(fact["epochs"].get(table, 0))


def build_of(state: State, view: str, number: int) -> Build | None:
    """The build of that number; None where there is none."""
    fact = state.get(_key(view, number))
    return None if fact is None else Build.from_json(number, fact)


def builds(state: State, view: str) -> dict[int, Build]:
    """Every build of a view that there is, by number, oldest first."""
    facts = state.by_prefix(f"view/{view}")
    return {n: Build.from_json(n, facts[str(n)].value) for n in sorted(map(int, facts))}


def newest_number(state: State, view: str) -> int:
    """Of the build that was begun last; 0 where there is none."""
    return max(map(int, state.by_prefix(f"view/{view}")), default=0)


def newest_build(state: State, view: str) -> Build | None:
    """The one that was begun last."""
    return build_of(state, view, newest_number(state, view))


@dataclass(frozen=True)
class FollowedView:
    """The log that a build of a view writes: a `FollowedLog`."""

    ours: ClassVar[bool] = True
    renewal: ClassVar[str] = "its view is rebuilt"
    view: str
    number: int
    fingerprint: str = field(default="", compare=False)

    def to_json(self) -> LogName:
        return {"epoch": 1, "build": self.number}

    def known(self, state: State) -> FollowedView:
        build = build_of(state, self.view, self.number)
        return self if build is None else build.followed

    def is_registered(self, state: State) -> bool:
        return state.get(_key(self.view, self.number)) is not None

    def is_superseded(self, state: State) -> bool:
        """Whether a later build begins at a newer epoch of one of its tables. An older build of a stream shows nothing
        that is gone: it is read until the newer one is as far.
        """
        last = newest_number(state, self.view)
        newest, mine = (state.get(_key(self.view, n)) for n in (last, self.number))
        if newest is None or mine is None:
            return self.number < last
        epochs, before = (cast("dict[str, int]", fact["epochs"]) for fact in (newest, mine))
        return any(epochs.get(name, 0) > epoch for name, epoch in before.items() if not is_computed(name))

    def newest(self, state: State) -> FollowedView:
        return replace(self, number=newest_number(state, self.view))

    def why_newest(self, state: State) -> str:
        build = newest_build(state, self.view)
        return build.why if build else ""

    def build(self, state: State) -> Build:
        build = build_of(state, self.view, self.number)
        if build is None or build.log is None:
            raise SourceError(
                f"build {self.number} of the view {self.view} is not there any more",
                hint="`driftless rebuild` fills the follower from the newest build",
            )
        return build

    def topic(self, state: State) -> TopicLog:
        log = self.build(state).log
        assert log is not None
        return log

    def retention_seconds(self, config: Config, state: State) -> float:
        del config
        return self.build(state).retention / 1000

    def progress(self, state: State) -> list[dict[str, Any]]:
        return standings(state, self.view, self.number)


def progress_key(view: str, number: int, shard: int = 0) -> str:
    """Of the fact that says where a shard of a build stands."""
    return f"build/{view}/{number}/{shard}"


def standings(state: State, view: str, number: int) -> list[dict[str, Any]]:
    """Where each shard of a build stands; empty for one that has never been run."""
    fact = state.get(_key(view, number))
    declared = {} if fact is None else cast("dict[str, Any]", fact["view"])
    return [state.get(progress_key(view, number, shard)) or {} for shard in range(declared.get("shards", 0))]
