"""Where a build of a stream reads its events: a topic that applications write, or the log of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from driftless.config.duration import milliseconds
from driftless.config.streams import EventsConfig
from driftless.kafka.client import Offsets, Topic
from driftless.streams.event_types import shown_columns
from driftless.table import Column


@dataclass(frozen=True)
class CapturedEvents:
    """How the log of a table holds events: each row that was added is one.

    `columns`: those of the row that are read. `payload`: the column whose JSON object has all others; empty where there
    is none. `epoch`: with which they begin, at the earliest before its snapshot is complete. What the snapshot read is
    before `until`. `repeated`: of that, the rows that the log has already, partition -> offsets.
    """

    table: str
    columns: tuple[Column, ...]
    payload: str
    epoch: int
    until: Offsets = field(default_factory=dict)
    repeated: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        return {
            "table": self.table,
            "columns": [asdict(column) for column in self.columns],
            "payload": self.payload,
            "epoch": self.epoch,
            "until": {str(p): offset for p, offset in self.until.items()},
            "repeated": {str(p): list(offsets) for p, offsets in self.repeated.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CapturedEvents:
        columns = tuple(map(Column.from_json, data["columns"]))
        until = {int(p): int(offset) for p, offset in data["until"].items()}
        repeated = {int(p): tuple(map(int, offsets)) for p, offsets in data["repeated"].items()}
        return cls(str(data["table"]), columns, str(data["payload"]), int(data["epoch"]), until, repeated)


class SkippedRange(NamedTuple):
    """Records of a partition from `begin` to before `end`, of which `sample` of 10,000 are read all the same."""

    partition: int
    begin: int
    end: int
    sample: int


@dataclass(frozen=True)
class EventSource:
    """Events as a build reads them: a topic from `floors` on. `lateness`: in milliseconds. `correct`: for how many more
    an event that is late corrects what was final. `captured`: where the topic is the log of a table. `behind`: where
    the stream is further behind, in milliseconds, it leaves events unread, but for `sample` of 10,000; 0 for never.
    `skipped`: those that it has left unread. `once`: whether of events that are alike one counts.
    """

    topic: str
    topic_id: str
    floors: Offsets
    columns: Mapping[str, str]
    event: str
    sent: str | None
    lateness: int
    correct: int = 0
    captured: CapturedEvents | None = None
    behind: int = 0
    sample: int = 0
    skipped: tuple[SkippedRange, ...] = ()
    once: bool = False

    @classmethod
    def of(cls, config: EventsConfig, topic: Topic, floors: Offsets) -> EventSource:
        """Of a topic that applications write."""
        return cls(topic.name, topic.id, floors, dict(config.columns), **_rules(config))

    @classmethod
    def of_table(
        cls, config: EventsConfig, topic: str, columns: Mapping[str, str], rows: CapturedEvents
    ) -> EventSource:
        """Of the log of a table. Where it begins is known once its snapshot is complete."""
        return cls(topic, "", {}, dict(columns), **_rules(config), captured=rows)

    @classmethod
    def of_versions(cls, topic: str, columns: Mapping[str, str], rows: CapturedEvents) -> EventSource:
        """Of the log of a table, of which all versions of rows are read: none of them is an event, or late."""
        return cls(topic, "", {}, dict(columns), "", None, 0, captured=rows)

    @property
    def shown(self) -> dict[str, str]:
        """The columns that a query sees, with their types."""
        return shown_columns(self.columns, self.sent, once=self.once)

    @property
    def is_placed(self) -> bool:
        """Whether it is known where it begins."""
        return self.captured is None or bool(self.floors)

    def to_json(self) -> dict[str, object]:
        left_out = {"captured", "skipped", *(() if self.once else ("once",))}
        fields = {name: value for name, value in vars(self).items() if name not in left_out}
        captured = {} if self.captured is None else {"captured": self.captured.to_json()}
        return {**fields, "floors": {str(p): o for p, o in self.floors.items()}, **captured}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EventSource:
        captured = CapturedEvents.from_json(data["captured"]) if data.get("captured") else None
        floors = {int(p): int(o) for p, o in data["floors"].items()}
        return cls(**{**data, "floors": floors, "captured": captured})

    @property
    def definition(self) -> list[object]:
        """What its rows are made of: where it begins is no part of that."""
        log: object = self.topic_id if self.captured is None else _definition(self.captured)
        made_of = [self.topic, log, sorted(self.columns.items()), self.event, self.sent, self.lateness]
        made_of += [self.correct] if self.correct else []
        made_of += [{"once": True}] if self.once else []
        return [*made_of, *([{"behind": self.behind, "sample": self.sample}] if self.behind else [])]


def _rules(config: EventsConfig) -> dict[str, Any]:
    time = config.time
    rules: dict[str, Any] = {
        "event": time.event,
        "sent": time.sent,
        "lateness": config.lateness_ms,
        "correct": config.correct_ms,
        "once": config.once,
    }
    if config.overload is None:
        return rules
    return {**rules, "behind": milliseconds(config.overload.behind), "sample": config.overload.of_10_000}


def _definition(rows: CapturedEvents) -> list[object]:
    return [rows.table, [asdict(replace(column, toastable=False)) for column in rows.columns], rows.payload]
