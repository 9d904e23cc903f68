"""What is wrong with a pipeline, judged from what `status` knows: who, why, since when, and the command to run.

A follower, a view or the source for which nothing is found is well: it follows, or an operator has paused it, or it is
being built and gets on. Whoever adds a state adds here what of it is not well: exit codes rest on this alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from driftless.control.lease import taken_at
from driftless.control.request import is_running
from driftless.counted import counted
from driftless.facts.builds import newest_number, progress_key
from driftless.facts.state import Fact, State
from driftless.facts.streams import stream_progress_key
from driftless.names import stream_lease, view_lease

STILL_SECONDS = 15.0
"""For so long the position of a follower may stand still while the source's moves: a marker comes every half second,
and a large slice takes some 4 s.
"""
BUILDING_STILL_SECONDS = 60.0
"""The same while a run starts or builds it: Spark, and the first large slice on a slow machine, take their time."""
CHECK = "run `driftless check`"


class Kind(StrEnum):
    """What sort of problem it is: the name by which programs and alerts know it. It never changes."""

    KAFKA_UNREACHABLE = "kafka_unreachable"
    SOURCE_UNREACHABLE = "source_unreachable"
    SOURCE_TROUBLE = "source_trouble"
    CONNECT_UNREACHABLE = "connect_unreachable"
    CONNECTOR_TROUBLE = "connector_trouble"
    TABLE_CHANGED = "table_changed"
    NOT_APPLIED = "not_applied"
    NOT_RUNNING = "not_running"
    NOT_STARTING = "not_starting"
    FAILED = "failed"
    WAITING = "waiting"
    STANDS_STILL = "stands_still"
    NO_READERS = "no_readers"
    QUARANTINE = "quarantine"


@dataclass(frozen=True)
class Problem:
    """`who`: the source, Kafka, a table, a view or a follower. `since`: seconds since 1970, where that is known.

    `do`: what the operator does about it. `unreachable`: it is a server that does not answer.
    """

    kind: Kind
    who: str
    what: str
    do: str = CHECK
    since: float | None = None
    unreachable: bool = False

    def __str__(self) -> str:
        since = "" if self.since is None else f" (since {clock(self.since)})"
        said = f"{self.who}: {self.what}{since}"
        return said if self.do == CHECK and "`driftless check`" in self.what else f"{said}; {self.do}"

    def to_json(self) -> dict[str, object]:
        return {"kind": self.kind, "who": self.who, "what": self.what, "do": self.do, "since": self.since}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Problem:
        return cls(Kind(value["kind"]), value["who"], value["what"], value["do"], value["since"])


def clock(at: float) -> str:
    """A moment as it is shown, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def lines(problems: Iterable[Problem]) -> list[str]:
    """Each as a sentence; what is the same of several is told once, of all of them."""
    told: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        told.setdefault((problem.what, problem.do), []).append(problem)
    return [
        str(
            replace(
                same[0], who=_listed([p.who for p in same]), since=min((p.since for p in same if p.since), default=None)
            )
        )
        for same in told.values()
    ]


def _listed(who: Sequence[str]) -> str:
    """`followers a, b` for `follower a` and `follower b`."""
    names = list(dict.fromkeys(who))
    kinds = {name.partition(" ")[0] for name in names}
    if len(names) < 2 or len(kinds) > 1:
        return ", ".join(names)
    return f"{kinds.pop()}s {', '.join(name.partition(' ')[2] for name in names)}"


def follower_problems(state: State, shown: Mapping[str, Any], now: float) -> Iterator[Problem]:
    """What is wrong with a follower, as `status` shows it. `now`: the broker's time."""
    name, who = shown["name"], f"follower {shown['name']}"
    generations: list[Mapping[str, Any]] = shown["generations"]
    if not generations:
        yield Problem(Kind.NOT_APPLIED, who, "it was never applied", "run `driftless apply`")
        return
    if shown["quarantined"]:
        documents = f"{counted(shown['quarantined'], 'document')} {'is' if shown['quarantined'] == 1 else 'are'}"
        yield Problem(Kind.QUARANTINE, who, f"{documents} in quarantine", f"see `driftless quarantine list {name}`")
    paused = state.get(f"paused/{name}") is not None
    if not paused and not is_running(state, name, now) and shown["state"] != "failed":
        yield Problem(Kind.NOT_RUNNING, who, "nobody runs it", f"run `driftless run {name}`", _lease_end(state, name))
        return
    found = False
    for g in current(generations):
        fact = state.facts.get(f"follower/{name}/{g['n']}")
        if fact is not None:
            beside = "" if g["n"] == shown["generation"] else f"generation {g['n']}: "
            for problem in _worker(who, g["state"], fact, beside, f"run `driftless run {name}`"):
                found = True
                yield problem
    if found or paused or shown["state"] == "promoting":
        return  # while readers are switched, no position is claimed
    live = state.facts.get(f"follower/{name}/{shown['generation']}")
    if live is None:
        return  # it is just being started
    if not any(g["live"] for g in generations) and shown["state"] == "live":
        yield Problem(Kind.NO_READERS, who, "readers see none of its generations", f"run `driftless rebuild {name}`")
    building = shown["state"] == "bootstrapping"
    yield from _stillness(who, live, shown["lag_seconds"], now, state.facts.get(f"lease/{name}"), building=building)


def current(generations: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The generation that readers see and later ones: what an older one has suffered is over."""
    live = max((g["n"] for g in generations if g["live"]), default=0)
    return [g for g in generations if g["n"] >= live]


def view_problems(state: State, shown: Mapping[str, Any], now: float, source_time: float | None) -> Iterator[Problem]:
    """What is wrong with a view of several tables, by its newest build."""
    name, who = shown["name"], f"view {shown['name']}"
    number = newest_number(state, name)
    if not number:
        yield Problem(Kind.NOT_APPLIED, who, "it was never applied", "run `driftless apply`")
        return
    if held := shown.get("quarantined"):
        documents = f"{counted(held, 'document')} {'is' if held == 1 else 'are'}"
        yield Problem(Kind.QUARANTINE, who, f"{documents} in quarantine", f"see `driftless quarantine list {name}`")
    view = state.get(f"view/{name}/{number}") or {}
    declared: Any = view.get("view", {})
    shards = int(declared.get("shards", 1))
    for shard in range(shards):
        lease = view_lease(name, shard)
        one = who if shards == 1 else f"{who}/{shard}"
        fact = state.facts.get(progress_key(name, number, shard))
        said = str(fact.value.get("state", "stopped")) if fact else "stopped"
        if not is_running(state, lease, now) and said != "failed":
            ended = _lease_end(state, lease)
            yield Problem(Kind.NOT_RUNNING, one, "nobody builds it", f"run `driftless run {name}`", ended)
            continue
        if fact is None:
            continue
        found = list(_worker(one, said, fact, "", f"run `driftless run {name}`"))
        yield from found
        if not found:
            marker: Any = fact.value.get("marker")
            lag = None if marker is None else (source_time or now) - float(marker[1])
            held = state.facts.get(f"lease/{lease}")
            yield from _stillness(one, fact, lag, now, held, building=said == "bootstrapping")


def stream_problems(state: State, shown: Mapping[str, Any], now: float, source_time: float | None) -> Iterator[Problem]:
    """What is wrong with a stream, by its newest build."""
    name, who, number = shown["name"], f"stream {shown['name']}", shown["generation"]
    if not number:
        yield Problem(Kind.NOT_APPLIED, who, "it was never applied", "run `driftless apply`")
        return
    lease, again = stream_lease(name), f"run `driftless run {name}`"
    if not is_running(state, lease, now) and shown["state"] != "failed":
        yield Problem(Kind.NOT_RUNNING, who, "nobody computes it", again, _lease_end(state, lease))
        return
    fact = state.facts.get(stream_progress_key(name, number))
    if fact is None:
        return  # it is just being started
    found = list(_worker(who, shown["state"], fact, "", again))
    yield from found
    if not found:
        marker: Any = fact.value.get("marker")
        lag = None if marker is None else (source_time or now) - float(marker[1])
        building = shown["state"] == "bootstrapping"
        yield from _stillness(who, fact, lag, now, state.facts.get(f"lease/{lease}"), building=building)


def _worker(who: str, said: str, fact: Fact, beside: str, again: str) -> Iterator[Problem]:
    """What a generation or a build says of itself."""
    trouble = str(fact.value.get("trouble") or "")
    since = _since(fact)
    if said == "failed":
        yield Problem(Kind.FAILED, who, f"{beside}it has failed: {trouble or 'no reason is known'}", again, since)
    elif trouble and said not in ("paused", "stopped"):
        yield Problem(Kind.WAITING, who, f"{beside}{trouble}", CHECK, since)


def _stillness(
    who: str, fact: Fact, lag: float | None, now: float, lease: Fact | None, *, building: bool
) -> Iterator[Problem]:
    """A position that does not move while the source's does, as far as its runner tells how long it has not moved."""
    told = fact.value.get("still_seconds")
    if told is None:
        return
    taken = None if lease is None else taken_at(lease)
    if taken is not None and fact.time < taken:  # the run before this one wrote it
        if now - taken > BUILDING_STILL_SECONDS:
            yield Problem(Kind.NOT_STARTING, who, "its run does not start", CHECK, taken)
        return
    still = float(str(told)) + max(0.0, now - fact.time)
    if building and still > BUILDING_STILL_SECONDS:
        yield Problem(Kind.STANDS_STILL, who, "its build does not get on", CHECK, now - still)
    elif not building and still > STILL_SECONDS and (lag is None or lag > STILL_SECONDS):
        yield Problem(Kind.STANDS_STILL, who, "its position does not move, and the source's does", CHECK, now - still)


def _since(fact: Fact) -> float | None:
    """Since when it has its trouble, as its runner tells."""
    since = fact.value.get("trouble_since")
    return float(since) if isinstance(since, int | float) and since else None


def _lease_end(state: State, name: str) -> float | None:
    """When somebody last held a lease."""
    lease = state.facts.get(f"lease/{name}")
    return None if lease is None else lease.time
