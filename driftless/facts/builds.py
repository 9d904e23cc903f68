"""Builds: the generations of a view of several tables, each with a topic of its own that followers read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from driftless import names
from driftless.facts.epochs import TopicLog, first_epoch
from driftless.facts.state import State
from driftless.kafka.client import Kafka
from driftless.kafka.log_writer import create_log
from driftless.views.tree import View


@dataclass(frozen=True)
class Build:
    """`epochs`: of its tables' logs, by table, at whose floors it begins. `why` it was begun.

    `log`: its own topic; None before that is made. `history`: how often all tables had been read anew by then.
    """

    number: int
    view: View
    epochs: dict[str, int]
    partitions: int
    retention: float
    why: str = ""
    log: TopicLog | None = None
    history: int = 0

    def is_what(self, wanted: Build) -> bool:
        """Whether it holds what another would."""
        return (self.view.fingerprint, self.epochs) == (wanted.view.fingerprint, wanted.epochs)

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

    def with_topic(self, kafka: Kafka, pipeline: str) -> Build:
        """The same with its topic, made where it is missing."""
        name = names.view_topic(pipeline, self.view.name, self.number)
        found = create_log(kafka, name, self.partitions, self.retention)
        return replace(self, log=first_epoch(found.name, found.id, found.partitions))


def _key(view: str, number: int) -> str:
    return f"view/{view}/{number}"


def build_of(state: State, view: str, number: int) -> Build | None:
    """The build of that number; None where there is none."""
    fact = state.get(_key(view, number))
    return None if fact is None else Build.from_json(number, fact)


def builds(state: State, view: str) -> dict[int, Build]:
    """Every build of a view that there is, by number, oldest first."""
    facts = state.under(f"view/{view}")
    return {n: Build.from_json(n, facts[str(n)].value) for n in sorted(map(int, facts))}


def newest_number(state: State, view: str) -> int:
    """Of the build that was begun last; 0 where there is none."""
    return max(map(int, state.under(f"view/{view}")), default=0)


def newest_build(state: State, view: str) -> Build | None:
    """The one that was begun last."""
    return build_of(state, view, newest_number(state, view))


# What is asked in every turn looks at the facts themselves: a build holds whole tables.


def has_build(state: State, view: str, number: int) -> bool:
    return state.get(_key(view, number)) is not None


def is_overtaken(state: State, view: str, number: int) -> bool:
    """Whether the log of one of its tables has begun anew since, so that it may show rows that are gone."""
    last = newest_number(state, view)
    newest, mine = (state.get(_key(view, n)) for n in (last, number))
    if newest is None or mine is None:
        return number < last
    epochs, before = (cast("dict[str, int]", fact["epochs"]) for fact in (newest, mine))
    return any(epochs.get(table, 0) > epoch for table, epoch in before.items())


def progress_key(view: str, number: int, shard: int = 0) -> str:
    """Of the fact that says where a shard of a build stands."""
    return f"build/{view}/{number}/{shard}"


def standings(state: State, view: str, number: int) -> list[dict[str, Any]]:
    """Where each shard of a build stands; empty for one that has never been run."""
    fact = state.get(_key(view, number))
    declared = {} if fact is None else cast("dict[str, Any]", fact["view"])
    return [state.get(progress_key(view, number, shard)) or {} for shard in range(declared.get("shards", 0))]
