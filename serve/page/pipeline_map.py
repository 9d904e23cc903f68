"""The pipeline as boxes: source, connector, topics, views, streams, followers, and what each reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from driftless.config.models import Config
from driftless.config.views import ManyConfig, OneConfig, ViewConfig
from driftless.control.health import clock
from driftless.metrics.figures import stream_lag_seconds, view_lag_seconds
from serve.facts.collector import Snapshot

Facts = Mapping[str, Any]
Rate = Callable[[str], float | None]
"""Writes a second of a follower, or of `view NAME` and `stream NAME`."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Box:
    """`id`: of its kind and name. `state`: in a word. `good`: well, not well, or neither (a pause). `reads`: ids.

    `lines`: what is shown in it, as (what, value).
    """

    id: str
    kind: str
    name: str
    state: str
    good: bool | None
    lines: tuple[tuple[str, str], ...] = ()
    reads: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class MapColumn:
    """Boxes of one kind, one below the other."""

    title: str
    boxes: tuple[Box, ...]


def pipeline_map(config: Config, snapshot: Snapshot, rate: Rate) -> list[MapColumn]:
    """Columns from the source to the followers; without those that the pipeline has nothing of."""
    facts = snapshot.facts
    ill = troubled(snapshot)
    followers = [_follower(one, rate(one["name"]), ill, config) for one in facts["followers"]]
    columns = [
        MapColumn("Source", (_source(facts["source"], ill),)),
        MapColumn("Connector", (_connector(facts["source"], ill),)),
        MapColumn("Topics", (*_topics(config, snapshot, ill), *_events(config))),
        MapColumn("Streams", tuple(_stream(one, config, ill, snapshot, rate) for one in facts["streams"])),
        MapColumn("Views", tuple(_view(one, config, ill, snapshot, rate) for one in facts["views"])),
        MapColumn("Followers", tuple(followers)),
    ]
    return [column for column in columns if column.boxes]


def _source(source: Facts, troubled: set[str]) -> Box:
    up = source["lsn"] is not None
    lines = [("position", source["lsn"] or "-")]
    if source["slot_lag_bytes"] is not None:
        lines.append(("kept for the slot", megabytes(source["slot_lag_bytes"])))
    good = up and "source" not in troubled
    return Box("source", "source", "Postgres", "up" if up else "away", good, tuple(lines))


def _connector(source: Facts, troubled: set[str]) -> Box:
    state = source["connector"]
    good = state == "RUNNING" and not {"connector", "Kafka Connect"} & troubled
    slot = (("slot", source["slot"] or "-"),)
    return Box("connector", "connector", "Debezium", (state or "unknown").lower(), good, slot, ("source",))


def _topics(config: Config, snapshot: Snapshot, troubled: set[str]) -> Iterator[Box]:
    for table in config.source.tables:
        changed = f"table {table}" in troubled
        lines = []
        if (records := snapshot.tails.records.get(table)) is not None:
            lines.append(("records", f"{records:,}"))
        if (age := snapshot.tails.ages.get(table)) is not None:
            lines.append(("newest", f"{duration(age)} ago"))
        yield Box(
            f"table {table}",
            "topic",
            table.removeprefix("public."),
            "changed" if changed else "captured",
            not changed,
            tuple(lines),
            ("connector",),
        )


def _events(config: Config) -> Iterator[Box]:
    """Topics that applications write."""
    for name, events in config.events.items():
        if events.topic:
            yield Box(f"events {name}", "topic", name, "events", True, (("topic", events.topic),))


def _view(view: Facts, config: Config, troubled: set[str], snapshot: Snapshot, rate: Rate) -> Box:
    declared = config.views[view["name"]]
    lines = [("position", view["frontier_lsn"] or "-")]
    if declared.joined:
        lines += [
            ("behind", _lasting(view_lag_seconds(snapshot.state, view["name"], snapshot.now))),
            ("to read", f"{view['lag_records'] or 0:,}"),
            ("to publish", f"{view['dirty'] or 0:,}"),
            ("publishes", _a_second(rate(f"view {view['name']}"))),
        ]
    reads = [f"stream {declared.stream}"] if declared.stream else []
    reads += [f"table {table}" for table in sorted(_tables(declared))]
    good = is_well(view["state"], f"view {view['name']}", troubled) if declared.joined else True
    state = view["state"] if declared.joined else "of one table"
    return Box(f"view {view['name']}", "view", view["name"], state, good, tuple(lines), tuple(reads))


def _tables(declared: ViewConfig) -> set[str]:
    """Every table that a view shows something of, or that leads to one."""
    found = {declared.root} if declared.root and not declared.stream else set[str]()
    waiting: list[Any] = [*declared.one.values(), *declared.many.values()]
    while waiting:
        relation: OneConfig | ManyConfig = waiting.pop()
        through = relation.through or ()
        found |= {relation.table} | ({through} if isinstance(through, str) else {each.table for each in through})
        waiting += [*relation.one.values(), *relation.many.values()]
    return found


def _stream(stream: Facts, config: Config, troubled: set[str], snapshot: Snapshot, rate: Rate) -> Box:
    closed = "-" if stream["closed_to"] is None else clock(stream["closed_to"])
    kept = f"{stream['state_rows']:,} rows, {megabytes(stream['state_bytes'])}"
    lines = (
        ("position", stream["frontier_lsn"] or "-"),
        ("closed to", closed),
        ("behind", _lasting(stream_lag_seconds(snapshot.state, stream["name"], snapshot.now))),
        ("to read", f"{stream['lag_records'] or 0:,}"),
        ("publishes", _a_second(rate(f"stream {stream['name']}"))),
        ("state", kept),
    )
    good = is_well(stream["state"], f"stream {stream['name']}", troubled)
    return Box(
        f"stream {stream['name']}", "stream", stream["name"], stream["state"], good, lines, _read(stream, config)
    )


def _read(stream: Facts, config: Config) -> tuple[str, ...]:
    """What a stream's SQL names: other streams, and events, be it by a pattern."""
    words = set(_WORD.findall(config.streams[stream["name"]].sql))
    words |= {pattern.events for name, pattern in config.patterns.items() if name in words}
    found = [f"stream {name}" for name in config.streams if name in words and name != stream["name"]]
    for name, events in config.events.items():
        if name in words:
            captured = events.table or events.outbox
            found.append(f"table {captured}" if captured else f"events {name}")
    return tuple(dict.fromkeys(found))


def _follower(follower: Facts, rate: float | None, troubled: set[str], config: Config) -> Box:
    name, view = follower["name"], follower["view"]
    lines = [
        ("position", follower["applied_lsn"] or "-"),
        ("behind", _lasting(follower["lag_seconds"])),
        ("to apply", "-" if follower["lag_records"] is None else f"{follower['lag_records']:,}"),
        ("writes", _a_second(rate)),
    ]
    if follower["quarantined"]:
        lines.append(("quarantined", f"{follower['quarantined']:,}"))
    reads = (f"stream {view}" if view in config.streams else f"view {view}",)
    good = is_well(follower["state"], f"follower {name}", troubled)
    return Box(f"follower {name}", "follower", name, follower["state"], good, tuple(lines), reads)


def troubled(snapshot: Snapshot) -> set[str]:
    """Who has a problem."""
    return {problem["who"] for problem in snapshot.facts["problems"]}


def is_well(state: str, who: str, troubled: set[str]) -> bool | None:
    """None for neither well nor not: one that is paused, or being built."""
    if any(one == who or one.startswith(f"{who}/") for one in troubled):
        return False
    return True if state == "live" else None


def _lasting(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)


def _a_second(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.1f}/s"


def megabytes(size: float) -> str:
    """Bytes as they are shown."""
    return f"{size / 1e6:,.1f} MB"


def duration(seconds: float) -> str:
    """A length of time in one word, or two."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
