"""A pipeline's figures at one moment, made of what `status` knows and of what runs tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from driftless.control.request import is_running
from driftless.control.status import LEFT_OUT
from driftless.facts.builds import newest_number, progress_key, standings
from driftless.facts.counts import cumulative
from driftless.facts.epochs import registered_log
from driftless.facts.state import State
from driftless.facts.streams import newest_stream_number, stream_progress_key
from driftless.lsn import parse_lsn
from driftless.metrics import catalogue as m
from driftless.metrics.catalogue import Metric

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """One value of a metric. `labels`: the values of the metric's labels, in their order. `value`: a number; of a
    histogram, the parts as (upper bound, how many up to it) and the sum.
    """

    metric: Metric
    labels: tuple[str, ...]
    value: float | tuple[Sequence[tuple[float, int]], float]

    def has(self, labels: Mapping[str, str]) -> bool:
        """Whether it has these labels."""
        return labels.items() <= dict(zip(self.metric.labels, self.labels, strict=True)).items()


@dataclass(frozen=True)
class LogTails:
    """Where tables' logs stand, by full name. `records`: offsets from beginning to end. `ages`: seconds since the
    newest record was written.
    """

    records: Mapping[str, int] = field(default_factory=dict)
    ages: Mapping[str, float] = field(default_factory=dict)


def pipeline_figures(
    state: State,
    facts: Facts,
    now: float,
    *,
    tails: LogTails | None = None,
    slot_seconds: float | None = None,
    kafka_up: bool = True,
) -> Iterator[Figure]:
    """All of them. `facts`: the JSON of `status`. `now`: the broker's time. `slot_seconds`: until the slot is lost."""
    yield Figure(m.KAFKA_UP, (), float(kafka_up))
    for problem in facts["problems"]:
        yield Figure(m.PROBLEM, (problem["kind"], problem["who"]), 1)
    yield from _source(facts["source"], slot_seconds)
    yield from _tables(state, facts["source"]["changed"], tails or LogTails())
    for view in facts["views"]:
        yield from _view(state, view, now)
    for stream in facts["streams"]:
        yield from _stream(state, stream, now)
    for follower in facts["followers"]:
        yield from _follower(state, follower, now)
    yield from work_figures(current_work(state, facts))
    yield from _leases(state, now)


def work_figures(facts: Mapping[str, Facts]) -> Iterator[Figure]:
    """What runs have counted of their work. `facts`: where each worker stands, by its key in the control topic."""
    for key, fact in facts.items():
        kind, *name = key.split("/")
        if kind == "follower":
            yield from _worked(name[0], name[1], fact.get("counts"))
        elif kind == "build":
            yield from _known(m.VIEW_PUBLISHED, fact.get("published"), name[0], name[2])
            yield from _known(m.VIEW_STORE, fact.get("store_bytes"), name[0], name[2])
        elif kind == "computed":
            yield from _known(m.STREAM_PUBLISHED, fact.get("published"), name[0])


def current_work(state: State, facts: Facts) -> dict[str, Facts]:
    """Where workers stand: every generation of a follower, and the newest build of a view and of a stream."""
    found: dict[str, Facts] = {f"follower/{name}": fact.value for name, fact in state.by_prefix("follower").items()}
    for view in facts["views"]:
        number = newest_number(state, view["name"])
        shards = enumerate(standings(state, view["name"], number))
        found |= {progress_key(view["name"], number, shard): fact for shard, fact in shards}
    for stream in facts["streams"]:
        key = stream_progress_key(stream["name"], newest_stream_number(state, stream["name"]))
        found[key] = state.get(key) or {}
    return found


def _known(metric: Metric, value: Any, *labels: str) -> Iterator[Figure]:
    """The figure, where there is a value."""
    if value is not None:
        yield Figure(metric, labels, float(value))


def _position(metric: Metric, lsn: str | None, *labels: str) -> Iterator[Figure]:
    yield from _known(metric, None if lsn is None else parse_lsn(lsn), *labels)


def _states(metric: Metric, name: str, said: str) -> Iterator[Figure]:
    for state in m.STATES:
        yield Figure(metric, (name, state), float(state == said))


def _source(source: Facts, slot_seconds: float | None) -> Iterator[Figure]:
    yield Figure(m.SOURCE_UP, (), float(source["lsn"] is not None))
    yield from _position(m.SOURCE_POSITION, source["lsn"])
    yield from _known(m.SLOT_RETAINED, source["slot_lag_bytes"])
    yield from _known(m.SLOT_LEFT, source["slot_left_bytes"])
    yield from _known(m.SLOT_SECONDS, slot_seconds)
    if source["slot_status"] is not None:
        yield Figure(m.SLOT_LOST, (), float(source["slot_status"] == "lost"))
    yield Figure(m.CONNECTOR_UP, (), float(source["connector"] == "RUNNING"))


def _tables(state: State, changed: Mapping[str, str], tails: LogTails) -> Iterator[Figure]:
    for table in sorted(state.by_prefix("epochs")):
        log = registered_log(state, table)
        if log is not None:
            yield Figure(m.TABLE_EPOCH, (table,), log.newest.number)
            yield from _known(m.TABLE_RECORDS, tails.records.get(table), table)
            yield from _known(m.TABLE_AGE, tails.ages.get(table), table)
            yield Figure(m.TABLE_CHANGED, (table,), float(table in changed))


def _view(state: State, view: Facts, now: float) -> Iterator[Figure]:
    name = view["name"]
    yield from _states(m.VIEW_STATE, name, view["state"])
    yield from _known(m.VIEW_BUILD, view["generation"], name)
    yield from _position(m.VIEW_POSITION, view["frontier_lsn"], name)
    yield from _known(m.VIEW_LAG, view["lag_records"], name)
    yield Figure(m.VIEW_WAITING, (name,), view["dirty"])
    yield Figure(m.VIEW_QUARANTINED, (name,), view["quarantined"])
    yield from _known(m.VIEW_LAG_SECONDS, view_lag_seconds(state, name, now), name)


def _stream(state: State, stream: Facts, now: float) -> Iterator[Figure]:
    name = stream["name"]
    yield from _states(m.STREAM_STATE, name, stream["state"])
    yield from _known(m.STREAM_BUILD, stream["generation"], name)
    yield from _position(m.STREAM_POSITION, stream["frontier_lsn"], name)
    yield from _known(m.STREAM_LAG_SECONDS, stream_lag_seconds(state, name, now), name)
    yield from _known(m.STREAM_LAG, stream["lag_records"], name)
    yield from _known(m.STREAM_CLOSED, stream["closed_to"], name)
    for why in LEFT_OUT:
        yield Figure(m.STREAM_EVENTS, (name, why), stream[why])
    yield Figure(m.STREAM_CORRECTED, (name,), stream["corrected"])
    yield Figure(m.STREAM_ROWS, (name,), stream["state_rows"])
    yield Figure(m.STREAM_BYTES, (name,), stream["state_bytes"])


def _follower(state: State, follower: Facts, now: float) -> Iterator[Figure]:
    name = follower["name"]
    yield from _states(m.FOLLOWER_STATE, name, follower["state"])
    yield from _known(m.FOLLOWER_GENERATION, follower["generation"], name)
    yield Figure(m.FOLLOWER_GENERATIONS, (name,), len(follower["generations"]))
    generation = state.get(f"generation/{name}/{follower['generation']}") or {}
    yield from _known(m.FOLLOWER_EPOCH, generation.get("epoch"), name)
    yield from _position(m.FOLLOWER_POSITION, follower["applied_lsn"], name)
    yield from _known(m.FOLLOWER_LAG_SECONDS, follower["lag_seconds"], name)
    yield from _known(m.FOLLOWER_LAG, follower["lag_records"], name)
    yield from _known(m.FOLLOWER_DOCUMENTS, follower["documents"], name)
    yield Figure(m.FOLLOWER_QUARANTINED, (name,), follower["quarantined"])
    proof = state.facts.get(f"proof/{name}")
    if proof is not None:
        yield Figure(m.FOLLOWER_PROVEN, (name,), float(bool(proof.value["in_sync"])))
        yield Figure(m.FOLLOWER_PROOF_AGE, (name,), max(0.0, now - proof.time))


def _worked(follower: str, generation: str, counts: Any) -> Iterator[Figure]:
    if not isinstance(counts, dict):  # an older version runs it
        return
    labels = follower, generation
    plain = {
        "written": m.WRITTEN,
        "stale": m.STALE,
        "retries": m.RETRIES,
        "records": m.RECORDS,
        "slices": m.SLICES,
        "slice_seconds": m.SLICE_SECONDS,
        "slice_bytes": m.SLICE_BYTES,
    }
    for name, metric in plain.items():
        yield from _known(metric, counts.get(name), *labels)
    for reason, count in sorted(counts.get("refused", {}).items()):
        yield Figure(m.REFUSED, (*labels, reason), count)
    readable = counts.get("readable")
    if readable is not None and (parts := cumulative(readable)):
        yield Figure(m.READABLE, labels, (parts, float(readable.get("sum", 0.0))))


def _leases(state: State, now: float) -> Iterator[Figure]:
    for lease, fact in sorted(state.by_prefix("lease").items()):
        kind, _, name = lease.partition(" ")
        labels = (kind, name) if name else ("follower", lease)
        yield Figure(m.LEASE_HELD, labels, float(is_running(state, lease, now)))
        yield Figure(m.LEASE_TOKEN, labels, float(str(fact.value["token"])))
        yield Figure(m.LEASE_AGE, labels, max(0.0, now - fact.time))


def view_lag_seconds(state: State, name: str, now: float) -> float | None:
    """The age of the position of a view of several tables: that of the last of its shards. None before the first."""
    return _oldest(standings(state, name, newest_number(state, name)), now)


def stream_lag_seconds(state: State, name: str, now: float) -> float | None:
    """The same of a stream."""
    return _oldest([state.get(stream_progress_key(name, newest_stream_number(state, name))) or {}], now)


def _oldest(facts: Sequence[Facts], now: float) -> float | None:
    """`now`: the time of the source, or nearly so."""
    times = [None if (marker := fact.get("marker")) is None else float(marker[1]) for fact in facts]
    known = [time for time in times if time is not None]
    return max(0.0, now - min(known)) if known and len(known) == len(times) else None
