"""What `status` says, made of the control topic and of what the source said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from driftless.config.models import Config
from driftless.control.health import Kind, Problem, current, follower_problems, stream_problems, view_problems
from driftless.control.request import is_running
from driftless.control.strangers import warnings
from driftless.facts.builds import newest_number, standings
from driftless.facts.state import UNWATCHED, State
from driftless.facts.streams import newest_stream_number, stream_progress_key
from driftless.lsn import format_lsn, parse_lsn
from driftless.names import stream_lease, view_lease


@dataclass(frozen=True)
class SourceStatus:
    """The source's side; None where the source cannot be reached or has no slot for this pipeline yet.

    `slot_left_bytes`: what may be written before the server gives the slot up; None where it never does.
    `slot_status`: as Postgres' wal_status. `connector`: its state, as Connect says; None where it does not answer.
    `changed`: tables that are no longer as they were registered, and in what. `troubles`: why the log cannot be trusted
    any more, or does not go on, and which server does not answer.
    """

    lsn: int | None = None
    slot: str | None = None
    slot_lag_bytes: int | None = None
    time: float | None = None
    slot_left_bytes: int | None = None
    slot_status: str | None = None
    connector: str | None = None
    changed: Mapping[str, str] = field(default_factory=dict)
    troubles: Sequence[Problem] = ()
    warnings: Sequence[str] = ()


def status(config: Config, state: State, source: SourceStatus, now: float) -> dict[str, Any]:
    """The contract's JSON. `now`: the broker's time, by which leases are judged."""
    followers = [_follower(config, name, state, source, now) for name in config.followers]
    views = [_built(name, state, now) if view.joined else _view(name, followers) for name, view in config.views.items()]
    streams = [_stream(name, state, now) for name in config.streams]
    lsn = None if source.lsn is None else format_lsn(source.lsn)
    problems = [
        *source.troubles,
        *(Problem(Kind.TABLE_CHANGED, f"table {t}", w, "see `driftless plan`") for t, w in source.changed.items()),
    ]
    for name, view in zip(config.views, views, strict=True):
        if config.views[name].joined:
            problems += view_problems(state, view, now, source.time)
    for stream in streams:
        problems += stream_problems(state, stream, now, source.time)
    problems += [problem for follower in followers for problem in follower_problems(state, follower, now)]
    return {
        "pipeline": config.name,
        "source": {
            "lsn": lsn,
            "slot": source.slot,
            "slot_lag_bytes": source.slot_lag_bytes,
            "slot_left_bytes": source.slot_left_bytes,
            "slot_status": source.slot_status,
            "connector": source.connector,
            "changed": dict(source.changed),
            "trouble": "; ".join(f"{trouble.what}; {trouble.do}" for trouble in source.troubles) or None,
            "unwatched_lsn": _unwatched(state, followers),
        },
        "warnings": [*source.warnings, *warnings(state)],
        "views": views,
        "streams": streams,
        "followers": followers,
        "problems": [problem.to_json() for problem in problems],
        "unreachable": [problem.who for problem in problems if problem.unreachable],
    }


def _unwatched(state: State, followers: Sequence[Mapping[str, Any]]) -> str | None:
    """The position before which changes may be missing unnoticed; None where all followers are proven beyond it."""
    fact = state.get(UNWATCHED)
    if fact is None:
        return None
    lsn = str(fact["lsn"])
    proven = [f["proven_lsn"] is not None and parse_lsn(f["proven_lsn"]) >= parse_lsn(lsn) for f in followers]
    return None if proven and all(proven) else lsn


def settled(state: State, now: float) -> dict[str, dict[str, object] | None]:
    """The facts by which what has ended with an error is only stopped: something has been done about it since."""
    facts: dict[str, dict[str, object] | None] = {}
    for key, fact in state.facts.items():
        kind, *names = key.split("/")
        if kind not in ("follower", "build", "computed") or fact.value.get("state") != "failed":
            continue
        if kind == "build":
            lease = view_lease(names[0], int(names[2]))
        else:
            lease = names[0] if kind == "follower" else stream_lease(names[0])
        if not is_running(state, lease, now):
            facts[key] = {**fact.value, "state": "stopped", "trouble": ""}
    return facts


def _follower(config: Config, name: str, state: State, source: SourceStatus, now: float) -> dict[str, Any]:
    running = is_running(state, name, now)
    paused = state.get(f"paused/{name}") is not None
    generations: list[dict[str, Any]] = []
    for number in sorted(state.by_prefix(f"generation/{name}"), key=int):
        fact = state.get(f"follower/{name}/{number}") or {}
        said = str(fact.get("state", "stopped"))
        generations.append(
            {
                "n": int(number),
                "live": bool(fact.get("live", False)),
                "state": said if running or said == "failed" else "paused" if paused else "stopped",
                "applied_lsn": fact.get("applied_lsn"),
            }
        )
    live = next((g for g in generations if g["live"]), generations[-1] if generations else None)
    others = {g["state"] for g in generations if g is not live}
    fact = (state.get(f"follower/{name}/{live['n']}") if live else None) or {}
    return {
        "name": name,
        "view": config.followers[name].view,
        "state": _state(live["state"], others) if live else "stopped",
        "generation": live["n"] if live else None,
        "generations": generations,
        "applied_lsn": fact.get("applied_lsn"),
        "lag_seconds": _lag_seconds(fact, source, now),
        "lag_records": fact.get("lag_records"),
        "documents": fact.get("documents"),
        "quarantined": fact.get("quarantined", 0),
        "trouble": "; ".join(dict.fromkeys(_troubles(state, name, current(generations)))) or None,
        **_proven(state, name, live["n"] if live else None),
    }


def _proven(state: State, name: str, generation: int | None) -> dict[str, Any]:
    """The last position at which verify found what readers see to be right, and when (seconds since 1970)."""
    fact = state.facts.get(f"proven/{name}")
    if fact is None or fact.value["generation"] != generation:
        return {"proven_lsn": None, "proven_at": None}
    return {"proven_lsn": fact.value["lsn"], "proven_at": round(fact.time, 3)}


def _state(live: str, others: set[str]) -> str:
    """A follower's own state: that of the generation that readers see, unless another is on its way to them."""
    if live == "live" and "promoting" in others:
        return "promoting"
    return "rebuilding" if live == "live" and "bootstrapping" in others else live


def _troubles(state: State, name: str, generations: Sequence[Mapping[str, Any]]) -> list[str]:
    facts = (state.get(f"follower/{name}/{g['n']}") or {} for g in generations)
    return [str(fact["trouble"]) for fact in facts if fact.get("trouble")]


def _view(name: str, followers: list[dict[str, Any]]) -> dict[str, Any]:
    """A view of one table is its table's topic: it stands where the most advanced of its followers has seen it."""
    ours = [f for f in followers if f["view"] == name]
    seen = [f["applied_lsn"] for f in ours if f["applied_lsn"] is not None]
    return {
        "name": name,
        "state": "live" if any(f["state"] == "live" for f in ours) else "stopped",
        "generation": 1,
        "frontier_lsn": max(seen, key=parse_lsn, default=None),
        "lag_records": 0,
        "dirty": 0,
        "quarantined": 0,
        "error": None,
    }


_WORST_FIRST = ("failed", "stopped", "bootstrapping", "live")


def _built(name: str, state: State, now: float) -> dict[str, Any]:
    """A view of several tables, by its newest build: as far as the last of its shards."""
    number = newest_number(state, name)
    shards = standings(state, name, number)
    states = []
    for shard, fact in enumerate(shards):
        said = str(fact.get("state", "stopped"))
        states.append(said if said == "failed" or is_running(state, view_lease(name, shard), now) else "stopped")
    trouble = "; ".join(dict.fromkeys(str(fact["trouble"]) for fact in shards if fact.get("trouble"))) or None
    reached = [str(fact["frontier_lsn"]) for fact in shards if fact.get("frontier_lsn")]
    return {
        "name": name,
        "state": min(states, key=_WORST_FIRST.index, default="stopped"),
        "generation": number or None,
        "frontier_lsn": min(reached, key=parse_lsn) if reached and len(reached) == len(shards) else None,
        "lag_records": max((fact.get("lag_records") or 0 for fact in shards), default=None),
        "dirty": sum(fact.get("dirty") or 0 for fact in shards),
        "quarantined": sum(fact.get("quarantined") or 0 for fact in shards),
        "trouble": trouble,
        "error": trouble if "failed" in states else None,
    }


LEFT_OUT = ("late", "too_late", "invalid", "changed", "deleted", "dropped", "skipped")
"""Why a stream leaves events out, as `status` names it."""


def _stream(name: str, state: State, now: float) -> dict[str, Any]:
    """A stream, by its newest build. `closed_to`, in seconds since 1970: windows that end by then are published.
    `approximate`: columns that are not exact, with the standard error as a share of the number.
    """
    number = newest_stream_number(state, name)
    fact = state.get(stream_progress_key(name, number)) or {}
    said = str(fact.get("state", "stopped"))
    if said != "failed" and not is_running(state, stream_lease(name), now):
        said = "stopped"
    trouble = str(fact.get("trouble") or "") or None
    counts = (*LEFT_OUT, "corrected", "state_rows", "state_bytes")
    return {
        "name": name,
        "state": said,
        "generation": number or None,
        "closed_to": fact.get("closed_to"),
        "frontier_lsn": fact.get("frontier_lsn"),
        **{count: fact.get(count) or 0 for count in counts},
        "lag_records": fact.get("lag_records"),
        "approximate": (state.get(f"stream/{name}/{number}") or {}).get("approximate", {}),
        "trouble": trouble,
        "error": trouble if said == "failed" else None,
    }


def _lag_seconds(fact: dict[str, object], source: SourceStatus, now: float) -> float | None:
    """Age of the applied position by the source's own clock where it answers, else by the broker's."""
    applied = fact.get("marker_time")
    if applied is None:
        return None
    return round(max(0.0, (source.time or now) - float(str(applied))), 3)
