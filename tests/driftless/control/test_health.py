"""What `status` finds wrong, from the facts of the control topic: who, why, since when, and what to do."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, cast

import pytest

from cli.output.console import PlainConsole
from cli.output.standing import grid
from cli.output.standing import shown as on_screen
from driftless.config.models import Config
from driftless.control import wait as waiting
from driftless.control.health import Kind, Problem, lines
from driftless.control.lease import Holder
from driftless.control.status import SourceStatus, status
from driftless.control.topic import Control
from driftless.facts.state import Fact, State
from jobs.supervise.movement import Movement
from serve.facts.standing import facts_of
from tests.driftless.config.test_config import load_text
from tests.support.clock import Clock

NOW = 1_000_000.0
SYNC = """\
name: shop
source: {dsn: postgresql://localhost/shop, tables: {public.items: {}, public.parts: {}}}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://127.0.0.1:1"}
views:
  item: {root: public.items}
  whole: {root: public.items, many: {parts: {table: public.parts, by: item_id}}}
followers:
  a: {view: item, redis: {url: "redis://127.0.0.1:1", key: "a:{id}"}}
  b: {view: whole, redis: {url: "redis://127.0.0.1:1", key: "b:{id}"}}
"""
HERE = vars(Holder.here())
LEASE = {"held": True, "token": 1, **HERE}
LIVE = {"view": "item", "state": "live", "live": True, "built": True, "applied_lsn": "0/10", "marker_time": NOW - 1}
LIVE |= {"lag_records": 0, "documents": 3, "quarantined": 0, "held_back": "", "trouble": "", "still_seconds": 0.2}
BUILD = {"state": "live", "frontier_lsn": "0/10", "marker": [16, NOW - 1], "ends": {}, "lag_records": 0, "dirty": 0}
BUILD |= {"trouble": "", "still_seconds": 0.2}
WELL: dict[str, Any] = {
    "pipeline/identity": {},
    "lease/a": LEASE,
    "lease/b": LEASE,
    "lease/view whole": LEASE,
    "generation/a/1": {},
    "generation/b/1": {},
    "follower/a/1": LIVE,
    "follower/b/1": LIVE,
    "view/whole/1": {"view": {"shards": 1}, "epochs": {}},
    "build/whole/1/0": BUILD,
}


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_text(tmp_path, SYNC)


def shown(config: Config, source: SourceStatus | None = None, **more: Any) -> dict[str, Any]:
    """`status` of what is well, but for these facts; `__` stands for `/`, None for a fact that there is not."""
    facts = {**WELL, **{key.replace("__", "/"): value for key, value in more.items()}}
    state = State({key: Fact(value, NOW, 0) for key, value in facts.items() if value is not None})
    return status(config, state, source or SourceStatus(lsn=20, time=NOW), NOW)


def wrong(config: Config, source: SourceStatus | None = None, **more: Any) -> list[tuple[str, str, str]]:
    return [(p["who"], p["what"], p["do"]) for p in shown(config, source, **more)["problems"]]


def test_what_is_well_has_no_problem(config: Config) -> None:
    assert wrong(config) == []
    assert shown(config)["views"][1]["error"] is None


def test_a_source_that_is_waited_for_makes_no_lease_run_out(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect hangs, and each question about it takes 5 s; a lease lasts 10 s."""
    clock = [NOW]

    class Asked:
        kafka = None

        def read(self) -> State:
            return State({key: Fact(value, clock[0] - 1, 0) for key, value in WELL.items()})

        def now(self) -> float:
            return clock[0]

    def hangs(*_: object) -> SourceStatus:
        clock[0] += 11
        return SourceStatus(lsn=20, time=NOW)

    monkeypatch.setattr("serve.facts.standing._source", hangs)
    found = facts_of(config, cast("Control", Asked()))
    assert [f["state"] for f in found["followers"]] == ["live", "live"]
    assert found["problems"] == []


CHECK, RUN, RUN_VIEW = "run `driftless check`", "run `driftless run a`", "run `driftless run whole`"
SEE, APPLY = "see `driftless quarantine list a`", "run `driftless apply`"
GONE = {**LEASE, "held": False}
FAILED = {"state": "failed", "trouble": "no"}
REBUILD = "run `driftless rebuild a`"
STILL = "its position does not move, and the source's does"


@pytest.mark.parametrize(
    ("facts", "who", "what", "do"),
    [
        ({"follower__a__1": {**LIVE, **FAILED}}, "follower a", "it has failed: no", RUN),
        ({"follower__a__1": {**LIVE, "trouble": "Redis is full"}}, "follower a", "Redis is full", CHECK),
        ({"follower__a__1": {**LIVE, "quarantined": 1}}, "follower a", "1 document is in quarantine", SEE),
        ({"follower__a__1": {**LIVE, "quarantined": 1200}}, "follower a", "1,200 documents are in quarantine", SEE),
        ({"follower__a__1": {**LIVE, "still_seconds": 16, "marker_time": NOW - 17}}, "follower a", STILL, CHECK),
        ({"lease__a": GONE}, "follower a", "nobody runs it", RUN),
        ({"lease__a": {**LEASE, "pid": 2**22 + 1}}, "follower a", "nobody runs it", RUN),
        ({"generation__a__1": None, "follower__a__1": None}, "follower a", "it was never applied", APPLY),
        ({"follower__a__1": {**LIVE, "live": False}}, "follower a", "readers see none of its generations", REBUILD),
        (
            {"follower__a__1": {**LIVE, "state": "bootstrapping", "live": False, "still_seconds": 61}},
            "follower a",
            "its build does not get on",
            CHECK,
        ),
        (
            {"generation__a__2": {}, "follower__a__2": {**LIVE, "live": False, **FAILED}},
            "follower a",
            "generation 2: it has failed: no",
            RUN,
        ),
        ({"build__whole__1__0": {**BUILD, **FAILED}}, "view whole", "it has failed: no", RUN_VIEW),
        ({"lease__view whole": None}, "view whole", "nobody builds it", RUN_VIEW),
        ({"build__whole__1__0": {**BUILD, "still_seconds": 16, "marker": [1, NOW - 30]}}, "view whole", STILL, CHECK),
        ({"view__whole__1": None}, "view whole", "it was never applied", APPLY),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_of_whom_and_with_what_to_do(
    config: Config, facts: dict[str, Any], who: str, what: str, do: str
) -> None:
    assert wrong(config, **facts) == [(who, what, do)]


@pytest.mark.parametrize(
    "facts",
    [
        {"paused__a": {}, "follower__a__1": {**LIVE, "state": "paused", "still_seconds": 900, "marker_time": 0}},
        {"paused__a": {}, "lease__a": None},
        {"follower__a__1": {**LIVE, "state": "bootstrapping", "live": False, "marker_time": None}},
        {"follower__a__1": {**LIVE, "still_seconds": 900}},  # the source stands still too
        {"follower__a__1": {**LIVE, "marker_time": NOW - 900}},  # far behind, and it gets on
        {"follower__a__1": {k: v for k, v in LIVE.items() if k != "still_seconds"}},  # told by an older version
        {"follower__a__1": None},  # just begun
        {  # what readers have left
            "generation__a__2": {},
            "follower__a__1": {**LIVE, "live": False, "state": "failed", "trouble": "rebuild it"},
            "follower__a__2": LIVE,
        },
    ],
)
def test_what_an_operator_wants_or_has_left_is_well(config: Config, facts: dict[str, Any]) -> None:
    found = shown(config, **facts)
    assert found["problems"] == []
    assert not any(follower["trouble"] for follower in found["followers"])


def test_what_the_run_before_left_is_not_held_against_the_run_that_starts(config: Config) -> None:
    """Spark starts for seconds, in which nothing is told yet; where it takes too long, that is told."""
    facts = {**WELL, "follower/a/1": {**LIVE, "marker_time": NOW - 900}, "build/whole/1/0": {**BUILD, "marker": [1, 0]}}

    def problems(held: float) -> list[tuple[str, str, float | None]]:
        leases = {key: {**LEASE, "held_seconds": held} for key in facts if key.startswith("lease/")}
        old = ("follower/", "build/")
        state = {k: Fact(v, NOW - 900 if k.startswith(old) else NOW, 0) for k, v in (facts | leases).items()}
        found = status(config, State(state), SourceStatus(lsn=20, time=NOW), NOW)["problems"]
        return [(p["who"], p["what"], p["since"]) for p in found]

    assert problems(30) == []
    slow = "its run does not start"
    since = NOW - 61
    assert problems(61) == [("view whole", slow, since), ("follower a", slow, since), ("follower b", slow, since)]
    assert ("follower a", STILL, NOW - 900.2) in problems(901)


def test_it_is_told_since_when(config: Config) -> None:
    (still,) = shown(config, follower__a__1={**LIVE, "still_seconds": 40, "marker_time": NOW - 50})["problems"]
    assert still["since"] == NOW - 40
    (full,) = shown(config, follower__a__1={**LIVE, "trouble": "full", "trouble_since": NOW - 7})["problems"]
    assert full["since"] == NOW - 7
    (gone,) = shown(config, lease__a={**LEASE, "held": False})["problems"]
    assert gone["since"] == NOW
    assert lines([Problem(Kind.WAITING, "follower a", "Redis is full", "do this", 0.0)])[0].startswith(
        "follower a: Redis is full; do"
    )
    told = lines([Problem(Kind.WAITING, "follower a", "x", "do this", NOW)])
    assert "(since 1970-01-12 13:46:40Z); do this" in told[0]


def test_the_source_is_a_problem_of_its_own(config: Config) -> None:
    said = "Postgres at h cannot be reached"
    away = Problem(Kind.SOURCE_UNREACHABLE, "source", said, "check source.dsn", unreachable=True)
    found = shown(config, SourceStatus(troubles=[away]))
    assert found["unreachable"] == ["source"]
    assert found["source"]["trouble"] == "Postgres at h cannot be reached; check source.dsn"
    changed = SourceStatus(lsn=1, time=NOW, changed={"public.items": "it is gone"})
    assert wrong(config, changed) == [("table public.items", "it is gone", "see `driftless plan`")]


def test_what_is_the_same_of_several_is_told_once() -> None:
    same = [Problem(Kind.WAITING, f"follower {name}", "Redis is full", "do this") for name in "abc"]
    assert lines([*same, Problem(Kind.WAITING, "view v", "it is slow")]) == [
        "followers a, b, c: Redis is full; do this",
        "view v: it is slow; run `driftless check`",
    ]


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_name_is_cut_however_narrow_the_terminal(width: int, tmp_path: Path) -> None:
    long = "a-follower-with-the-longest-name-that-one-may-have"[:48]
    text = SYNC.replace("  a: {view", f"  {long}: {{view").replace("item: {root", "a-view-with-a-long-name: {root")
    found = shown(load_text(tmp_path, text.replace("view: item", "view: a-view-with-a-long-name")))
    with (tmp_path / "out").open("w+") as file:
        PlainConsole(file=file, width=width).print(grid(found, width, {}), soft_wrap=True)
        file.seek(0)
        out = file.read()
    assert long in out
    assert "…" not in out
    headings = ("follower", "state", "gen", "lag s", *(("documents", "quarantined") if width > 80 else ()))
    assert [heading for heading in headings if heading not in out] == []
    assert max(map(len, out.splitlines()[1:])) <= width
    assert on_screen(found, width) is not None


def test_how_long_something_has_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("jobs.supervise.movement.time", clock)
    movement = Movement()
    assert movement.still_seconds(1, "live") == 0
    clock.now += 9
    assert movement.still_seconds(1, "live") == 9
    assert movement.still_seconds(2, "live") == 0


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, ""),
        ({"lease/a": None}, "nobody runs it; run `driftless run a`"),
        ({"lease/a": GONE, "follower/a/1": {**LIVE, **FAILED}}, "(it ended: no)"),
        ({"paused/a": {}}, "it is paused; run `driftless resume a`"),
        ({"generation/a/1": None}, "it was never applied; run `driftless apply`"),
        ({"follower/a/1": {**LIVE, **FAILED}}, "it has failed: no"),
        ({"follower/a/1": {**LIVE, **FAILED, "token": LEASE["token"]}}, "it has failed: no"),
        ({"follower/a/1": {**LIVE, **FAILED, "token": LEASE["token"] - 1}}, ""),  # of the run before
    ],
)  # fmt: skip
def test_wait_says_of_whom_it_would_wait_in_vain(facts: dict[str, Any], said: str) -> None:
    state = State({k: Fact(v, NOW, 0) for k, v in {**WELL, **facts}.items() if v is not None})
    found = waiting._why_never(state, "a", NOW)
    assert found.endswith(said) if said else found == ""


def test_a_holder_is_of_this_machine() -> None:
    assert HERE["host"] == socket.gethostname()
