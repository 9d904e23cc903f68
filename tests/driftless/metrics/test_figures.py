"""The figures of a pipeline, made of facts that are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from driftless.config.models import Config
from driftless.control.health import Kind, Problem
from driftless.control.lease import Holder
from driftless.control.status import SourceStatus, status
from driftless.facts.counts import BOUNDS, Histogram, WorkCounts, cumulative, is_counts
from driftless.facts.state import Fact, State
from driftless.metrics import catalogue as m
from driftless.metrics.catalogue import CATALOGUE, Metric
from driftless.metrics.figures import Figure, LogTails, pipeline_figures
from tests.driftless.config.test_config import load_text
from tests.driftless.control.test_health import SYNC

NOW = 1_000_000.0


def counts() -> dict[str, object]:
    counted = WorkCounts(written=5, stale=2, retries=1, records=9, slices=3, slice_seconds=0.75, slice_bytes=4096)
    counted.refuse(["mapper_parsing_exception: failed to parse field [a]", "mapper_parsing_exception: another"])
    counted.readable.observe([0.01, 0.06, 0.2, 4000.0, -0.5])
    return counted.to_json()


def facts() -> dict[str, Any]:
    lease = {"held": True, "token": 7, **vars(Holder.here())}
    live = {"view": "item", "state": "live", "live": True, "built": True, "applied_lsn": "0/10"}
    live |= {"marker_time": NOW - 3, "lag_records": 4, "documents": 3, "quarantined": 1, "trouble": ""}
    build = {"state": "live", "frontier_lsn": "0/20", "marker": [32, NOW - 5], "lag_records": 6, "dirty": 8}
    return {
        "lease/a": lease,
        "lease/view whole": {**lease, "held": False},
        "generation/a/2": {"epoch": 4},
        "follower/a/2": {**live, "counts": counts()},
        "view/whole/3": {"view": {"shards": 2}, "epochs": {}},
        "build/whole/3/0": {**build, "published": 11, "store_bytes": 100},
        "build/whole/3/1": {**build, "published": 12, "store_bytes": 200, "marker": [32, NOW - 9]},
        "proof/a": {"lsn": "0/8", "generation": 2, "in_sync": False},
        "epochs/public.items": {
            "topic": "shop.public.items",
            "topic_id": "x",
            "partitions": 1,
            "epochs": [{"number": 2, "floors": {"0": 0}, "why": ""}],
        },
    }


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_text(tmp_path, SYNC)


def sampled(config: Config, source: SourceStatus | None = None, **more: Any) -> list[Figure]:
    state = State({key: Fact(value, NOW - 2, 0) for key, value in facts().items()})
    shown = status(config, state, source or SourceStatus(lsn=64, time=NOW, connector="RUNNING"), NOW)
    return list(pipeline_figures(state, shown, NOW, **more))


def values(figures: list[Figure], metric: Metric) -> dict[tuple[str, ...], Any]:
    return {figure.labels: figure.value for figure in figures if figure.metric is metric}


def test_each_figure_has_the_value_that_the_facts_give(config: Config) -> None:
    source = SourceStatus(64, "s", 1000, NOW, 5000, "extended", "RUNNING", {"public.items": "it has a column less"})
    tails = LogTails({"public.items": 42}, {"public.items": 1.5})
    found = sampled(config, source, tails=tails, slot_seconds=77.0)
    wanted: dict[Metric, dict[tuple[str, ...], float]] = {
        m.KAFKA_UP: {(): 1},
        m.SOURCE_UP: {(): 1},
        m.SOURCE_POSITION: {(): 64},
        m.SLOT_RETAINED: {(): 1000},
        m.SLOT_LEFT: {(): 5000},
        m.SLOT_SECONDS: {(): 77},
        m.SLOT_LOST: {(): 0},
        m.CONNECTOR_UP: {(): 1},
        m.TABLE_EPOCH: {("public.items",): 2},
        m.TABLE_RECORDS: {("public.items",): 42},
        m.TABLE_AGE: {("public.items",): 1.5},
        m.TABLE_CHANGED: {("public.items",): 1},
        m.VIEW_BUILD: {("item",): 1, ("whole",): 3},
        m.VIEW_POSITION: {("item",): 16, ("whole",): 32},
        m.VIEW_LAG_SECONDS: {("whole",): 9},
        m.VIEW_LAG: {("item",): 0, ("whole",): 6},
        m.VIEW_WAITING: {("item",): 0, ("whole",): 16},
        m.VIEW_PUBLISHED: {("whole", "0"): 11, ("whole", "1"): 12},
        m.VIEW_STORE: {("whole", "0"): 100, ("whole", "1"): 200},
        m.FOLLOWER_GENERATION: {("a",): 2},
        m.FOLLOWER_GENERATIONS: {("a",): 1, ("b",): 0},
        m.FOLLOWER_EPOCH: {("a",): 4},
        m.FOLLOWER_POSITION: {("a",): 16},
        m.FOLLOWER_LAG_SECONDS: {("a",): 3},
        m.FOLLOWER_LAG: {("a",): 4},
        m.FOLLOWER_DOCUMENTS: {("a",): 3},
        m.FOLLOWER_QUARANTINED: {("a",): 1, ("b",): 0},
        m.FOLLOWER_PROVEN: {("a",): 0},
        m.FOLLOWER_PROOF_AGE: {("a",): 2},
        m.WRITTEN: {("a", "2"): 5},
        m.STALE: {("a", "2"): 2},
        m.RETRIES: {("a", "2"): 1},
        m.RECORDS: {("a", "2"): 9},
        m.SLICES: {("a", "2"): 3},
        m.SLICE_SECONDS: {("a", "2"): 0.75},
        m.SLICE_BYTES: {("a", "2"): 4096},
        m.REFUSED: {("a", "2", "mapper_parsing_exception"): 2},
        m.LEASE_HELD: {("follower", "a"): 1, ("view", "whole"): 0},
        m.LEASE_TOKEN: {("follower", "a"): 7, ("view", "whole"): 7},
        m.LEASE_AGE: {("follower", "a"): 2, ("view", "whole"): 2},
    }
    assert {metric.name: values(found, metric) for metric in wanted} == {k.name: v for k, v in wanted.items()}
    assert values(found, m.FOLLOWER_STATE)["a", "live"] == 1
    assert values(found, m.FOLLOWER_STATE)["a", "failed"] == 0
    assert values(found, m.PROBLEM)[Kind.QUARANTINE, "follower a"] == 1
    assert values(found, m.PROBLEM)[Kind.TABLE_CHANGED, "table public.items"] == 1
    parts, total = values(found, m.READABLE)["a", "2"]
    assert dict(parts) == dict(zip((*BOUNDS, float("inf")), (2, 2, 3, *[4] * 10, 5), strict=True))
    assert total == pytest.approx(4000.27)


def test_a_source_that_is_away_leaves_its_own_figures_out(config: Config) -> None:
    away = Problem(Kind.SOURCE_UNREACHABLE, "source", "Postgres cannot be reached", unreachable=True)
    found = sampled(config, SourceStatus(troubles=[away]), kafka_up=False)
    assert values(found, m.SOURCE_UP) == {(): 0}
    assert values(found, m.CONNECTOR_UP) == {(): 0}
    assert values(found, m.KAFKA_UP) == {(): 0}
    assert not any(values(found, metric) for metric in (m.SOURCE_POSITION, m.SLOT_RETAINED, m.SLOT_LEFT, m.SLOT_LOST))
    assert values(found, m.PROBLEM)[Kind.SOURCE_UNREACHABLE, "source"] == 1


def test_every_figure_of_a_sample_is_in_the_catalogue_with_as_many_labels(config: Config) -> None:
    for figure in sampled(config):
        assert figure.metric in CATALOGUE
        assert len(figure.labels) == len(figure.metric.labels)


def test_names_follow_the_conventions_of_prometheus() -> None:
    for metric in CATALOGUE:
        assert metric.name.endswith("_total") == (metric.type == "counter"), metric
        assert metric.meaning.endswith("."), metric
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)


def test_what_another_version_writes_is_no_count_of_ours() -> None:
    assert is_counts(counts())
    assert is_counts({})
    wrong: list[Any] = [None, [], {"written": -1}, {"written": "5"}, {"refused": []}, {"refused": {"a": "x"}}]
    assert not any(map(is_counts, wrong))
    strange: list[Any] = [[], {"counts": ["1"], "sum": 0}, {"counts": [1], "sum": -1}, {"counts": [True]}]
    for readable in strange:
        assert not is_counts({"readable": readable})
    assert cumulative({"counts": [1, 2], "sum": 1}) == [], "other parts than ours"


def test_reasons_are_counted_by_their_beginning_and_not_without_end() -> None:
    counted = WorkCounts()
    counted.refuse(f"reason {n}: field {n}" for n in range(100))
    assert sum(counted.refused.values()) == 100
    assert len(counted.refused) == 17
    assert counted.refused["other"] == 84


def test_a_histogram_counts_by_upper_bounds() -> None:
    found = Histogram()
    found.observe([BOUNDS[0], BOUNDS[0] + 1e-9, BOUNDS[-1], BOUNDS[-1] + 1])
    assert (found.counts[0], found.counts[1], found.counts[-2], found.counts[-1]) == (1, 1, 1, 1)
    assert found.count == 4
