"""Builds of streams: the generations of a query over events, each with a log of its own that followers read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from driftless import names
from driftless.config.models import Config
from driftless.errors import SourceError
from driftless.facts.epochs import LogName, TopicLog, first_epoch
from driftless.facts.event_source import EventSource
from driftless.facts.lookups import Lookup
from driftless.facts.state import State
from driftless.kafka.client import Kafka
from driftless.kafka.log_writer import create_log
from driftless.kafka.topic_settings import batches_settings, ticks_settings
from driftless.streams.patterns import Pattern
from driftless.table import Column, Table

WINDOW, SESSION = "window", "session_window"
"""What Spark calls the column that a query is grouped by."""
JOIN, MATCH, LOOKUP = "join", "match", "lookup"
"""By what the results of an outer join, of a pattern, and of events with rows of tables become final: nothing to come
can change them.
"""
FINAL, CHANGES = "final", "changes"
"""When a document is written: once its window is closed, or with every change of it."""
KEEP_DELETES_MS = 7 * 24 * 3600 * 1000
"""For how long the log of a stream keeps deletes."""

STAMPED = {"message.timestamp.type": "LogAppendTime"}
"""Records bear the brokers' time, by which events are received: what is of a moment is found by it."""


@dataclass(frozen=True)
class WindowEnds:
    """Windows end every `step` milliseconds, one of them at `first`, in milliseconds since 1970. Each lasts `size`."""

    step: int
    first: int
    size: int = 0

    def lies_between(self, begin: int, end: int) -> bool:
        """Whether a window ends after `begin`, and at or before `end`."""
        return (end - self.first) // self.step > (begin - self.first) // self.step


@dataclass(frozen=True)
class JoinTimes:
    """Of a join of two events. `left_ms`, `right_ms`: for how long after one of that side has happened others may match
    it; it is final when all that happened by then has been read. `left`, `right`: when one happened, in SQL.
    """

    left_ms: int
    right_ms: int
    left: str = ""
    right: str = ""

    @property
    def wait_ms(self) -> int:
        """The longer of both: a window of matches closes so much later than one of events."""
        return max(self.left_ms, self.right_ms)


@dataclass(frozen=True)
class StreamBuild:
    """`sql` over `events`, by their names in it. `table`: the columns of a document, and its key. `spark`: the version
    by which it is computed; its state is another version's to read or not. `log`: None before it is made. `why` it was
    begun. `begin_ms`: windows that began before then are left out, since the log has not all events of them any more.
    `closes`: by which column of its outermost query a result becomes final, WINDOW or SESSION, or JOIN, MATCH or
    LOOKUP; empty where each is at once, as a row of a filter or of an inner join. `emit`: FINAL or CHANGES. `ends`:
    where windows may end; None where that is anywhere. `join`: of two events, whether its rows are the results or are
    grouped by windows. `reach`: for how long before a result's window begins events may be part of it, in milliseconds.
    `patterns`: of which the SQL reads matches, by their names in it. `approximate`: columns that are not exact, with
    the standard error as a share of the number. `lookups`: the tables of which events have a row, and `tables`: where
    their versions are read, by name.
    """

    stream: str
    number: int
    sql: str
    events: Mapping[str, EventSource]
    table: Table
    spark: str
    partitions: int
    why: str = ""
    log: TopicLog | None = None
    begin_ms: int = 0
    closes: str = WINDOW
    emit: str = FINAL
    ends: WindowEnds | None = None
    join: JoinTimes | None = None
    reach: int = 0
    patterns: Mapping[str, Pattern] = field(default_factory=dict)
    approximate: Mapping[str, float] = field(default_factory=dict)
    lookups: tuple[Lookup, ...] = ()
    tables: Mapping[str, EventSource] = field(default_factory=dict)

    @property
    def sources(self) -> dict[str, EventSource]:
        """All that it reads: events by their names in the SQL, and tables by theirs."""
        return {**self.events, **self.tables}

    @property
    def looked_up_at(self) -> str:
        """The column that says when events happened that have rows of tables; empty where there are none."""
        return self.events[self.lookups[0].events].event if self.lookups else ""

    @property
    def lateness(self) -> int:
        """In milliseconds: a window is final when it has been over for so long."""
        return max(source.lateness for source in self.events.values())

    @property
    def join_wait(self) -> int:
        """In milliseconds: windows of matches close so much later than those of events."""
        return 0 if self.join is None else self.join.wait_ms

    @property
    def is_of_several(self) -> bool:
        """Whether a result is made of events by several steps: of a join, of matches, or of windows of others."""
        return bool(self.closes) and (self.reach > 0 or self.join is not None or bool(self.patterns))

    @property
    def span(self) -> int:
        """For how long before its end, at the most, events may be part of a result, in ms. Not known of sessions.

        Where it is not known how long the windows themselves last, it is not longer than what may be before them.
        """
        return self.reach + (self.ends.size if self.ends else self.reach)

    @property
    def captured(self) -> bool:
        """Whether some of what it reads are rows of a table of the source."""
        return any(source.captured is not None for source in self.sources.values())

    @property
    def corrects(self) -> bool:
        """Whether late events correct what was final."""
        return any(source.correct for source in self.events.values())

    @property
    def fingerprint(self) -> str:
        """Of all that its documents depend on, but for the events themselves."""
        events = {name: source.definition for name, source in self.events.items()}
        made_of: list[object] = [self.sql, events, self.table.to_json(), self.spark]
        made_of += [] if self.emit == FINAL else [self.emit]
        made_of += [{name: pattern.to_json() for name, pattern in self.patterns.items()}] if self.patterns else []
        if self.lookups:
            made_of += [{name: source.definition for name, source in self.tables.items()}]
            made_of += [[lookup.to_json() for lookup in self.lookups]]
        return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def followed(self) -> FollowedStream:
        """Its log, for whoever follows it."""
        return FollowedStream(self.stream, self.number, self.fingerprint)

    @property
    def key(self) -> str:
        """Of its fact in the control topic."""
        return f"stream/{self.stream}/{self.number}"

    @property
    def topics(self) -> dict[str, int]:
        """What it reads: topic -> how many partitions it had when the build was begun."""
        return {source.topic: len(source.floors) for source in self.sources.values()}

    def to_json(self) -> dict[str, object]:
        return {
            "sql": self.sql,
            "events": {name: source.to_json() for name, source in self.events.items()},
            "table": self.table.to_json(),
            "spark": self.spark,
            "partitions": self.partitions,
            "why": self.why,
            "begin_ms": self.begin_ms,
            "closes": self.closes,
            "emit": self.emit,
            "ends": None if self.ends is None else [*vars(self.ends).values()],
            "reach": self.reach,
            "approximate": dict(self.approximate),
            "patterns": {name: pattern.to_json() for name, pattern in self.patterns.items()},
            "lookups": [lookup.to_json() for lookup in self.lookups],
            "tables": {name: source.to_json() for name, source in self.tables.items()},
            "join": None if self.join is None else [*vars(self.join).values()],
            "log": None if self.log is None else self.log.to_json(),
        }

    @classmethod
    def from_json(cls, stream: str, number: int, data: Mapping[str, Any]) -> StreamBuild:
        events = {name: EventSource.from_json(source) for name, source in data["events"].items()}
        log = None if data["log"] is None else TopicLog.from_json(data["log"])
        table, more = Table.from_json(data["table"]), (data["spark"], int(data["partitions"]), str(data["why"]))
        begin, closes = int(data["begin_ms"]), str(data.get("closes", WINDOW))
        emit = str(data.get("emit", FINAL))
        ends = WindowEnds(*map(int, data["ends"])) if data.get("ends") else None
        join = JoinTimes(*data["join"]) if data.get("join") else None
        reach = int(data.get("reach", 0))
        patterns = {name: Pattern.from_json(pattern) for name, pattern in data.get("patterns", {}).items()}
        build = cls(stream, number, data["sql"], events, table, *more, log, begin, closes, emit, ends, join)
        build = replace(build, reach=reach, patterns=patterns, approximate=data.get("approximate", {}))
        tables = {name: EventSource.from_json(source) for name, source in data.get("tables", {}).items()}
        return replace(build, lookups=tuple(map(Lookup.from_json, data.get("lookups", ()))), tables=tables)

    def with_sources(self, change: Callable[[EventSource], EventSource]) -> StreamBuild:
        """The same with each that it reads changed."""
        events, tables = ({n: change(s) for n, s in some.items()} for some in (self.events, self.tables))
        return replace(self, events=events, tables=tables)

    def from_first_events(self, kafka: Kafka) -> StreamBuild:
        """The same from the first events that there are now. Where older ones are gone, windows that may lack some of
        theirs are left out. The logs of tables begin with their snapshots.
        """

        def at_first(source: EventSource) -> EventSource:
            if source.captured is not None:
                return replace(source, topic_id="", floors={})
            return replace(source, floors=kafka.beginnings(source.topic, len(source.floors)))

        build = self.with_sources(at_first)
        gone = [(source.topic, p, o) for source in build.sources.values() for p, o in source.floors.items() if o]
        begins = [kafka.time_of(*place) for place in gone]
        return replace(build, begin_ms=max(begins, default=0))

    def with_topics(self, kafka: Kafka, pipeline: str) -> StreamBuild:
        """The same with its topics, made where they are missing."""
        log = names.stream_topic(pipeline, self.stream, self.number)
        found = create_log(kafka, log, self.partitions, KEEP_DELETES_MS, STAMPED)
        kafka.create(names.ticks_topic(pipeline, self.stream, self.number), 1, ticks_settings())
        kafka.create(names.late_topic(pipeline, self.stream, self.number), 1, batches_settings())
        kafka.create(names.batches_topic(pipeline, self.stream, self.number), 1, batches_settings())
        return replace(self, log=first_epoch(found.name, found.id, found.partitions))


@dataclass(frozen=True)
class AnalysedStream:
    """What Spark says of a stream's SQL. `table`: the columns of a document and its key. `events`: those that it reads,
    by name. `spark`: its version. `closes`, `ends`, `join`, `reach`, `patterns`, `approximate`,
    `lookups`: as of a build.
    """

    table: Table
    events: tuple[str, ...]
    spark: str
    closes: str
    ends: WindowEnds | None = None
    join: JoinTimes | None = None
    reach: int = 0
    patterns: Mapping[str, Pattern] = field(default_factory=dict)
    approximate: Mapping[str, float] = field(default_factory=dict)
    lookups: tuple[Lookup, ...] = ()


def stream_table(stream: str, columns: tuple[Column, ...], key: tuple[str, ...]) -> Table:
    """What a follower of a stream takes for its table. No table of the source has that name."""
    return Table("", stream, columns, key)


def stream_build(state: State, stream: str, number: int) -> StreamBuild | None:
    """The build of that number; None where there is none."""
    fact = state.get(f"stream/{stream}/{number}")
    return None if fact is None else StreamBuild.from_json(stream, number, fact)


def stream_builds(state: State, stream: str) -> dict[int, StreamBuild]:
    """Every build of a stream that there is, by number, oldest first."""
    facts = state.by_prefix(f"stream/{stream}")
    return {n: StreamBuild.from_json(stream, n, facts[str(n)].value) for n in sorted(map(int, facts))}


def newest_stream_number(state: State, stream: str) -> int:
    """Of the build that was begun last; 0 where there is none."""
    return max(map(int, state.by_prefix(f"stream/{stream}")), default=0)


def newest_stream_build(state: State, stream: str) -> StreamBuild | None:
    """The one that was begun last."""
    return stream_build(state, stream, newest_stream_number(state, stream))


def stream_progress_key(stream: str, number: int) -> str:
    """Of the fact that says where a build stands."""
    return f"computed/{stream}/{number}"


@dataclass(frozen=True)
class FollowedStream:
    """The log that a build of a stream writes: a `FollowedLog`."""

    ours: ClassVar[bool] = True
    renewal: ClassVar[str] = "its stream is rebuilt"
    stream: str
    number: int
    fingerprint: str = field(default="", compare=False)

    def to_json(self) -> LogName:
        return {"epoch": 1, "build": 0, "stream": self.number}

    def known(self, state: State) -> FollowedStream:
        build = stream_build(state, self.stream, self.number)
        return self if build is None else build.followed

    def is_registered(self, state: State) -> bool:
        return state.get(f"stream/{self.stream}/{self.number}") is not None

    def is_superseded(self, state: State) -> bool:
        """Never: a log that is final shows nothing that is gone, and `driftless apply` begins what replaces it."""
        del state
        return False

    def newest(self, state: State) -> FollowedStream:
        return replace(self, number=newest_stream_number(state, self.stream))

    def why_newest(self, state: State) -> str:
        build = newest_stream_build(state, self.stream)
        return build.why if build else ""

    def build(self, state: State) -> None:
        """None: no view is made of tables here; see `stream_build`."""
        del state

    def topic(self, state: State) -> TopicLog:
        build = stream_build(state, self.stream, self.number)
        if build is None or build.log is None:
            raise SourceError(
                f"build {self.number} of the stream {self.stream} is not there any more",
                hint="`driftless rebuild` fills the follower from the newest build",
            )
        return build.log

    def retention_seconds(self, config: Config, state: State) -> float:
        del config, state
        return KEEP_DELETES_MS / 1000

    def progress(self, state: State) -> list[dict[str, Any]]:
        return [state.get(stream_progress_key(self.stream, self.number)) or {}]
