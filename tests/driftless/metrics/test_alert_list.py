"""The list of alerts: what each means, and the files that are made of it."""

from __future__ import annotations

import json

import pytest

from cli.pages import alerts_page, metrics_page
from driftless.control.health import Kind
from driftless.metrics import catalogue as m
from driftless.metrics.alerts import Alert, Condition, alerts
from driftless.metrics.catalogue import CATALOGUE
from driftless.metrics.figures import Figure
from driftless.metrics.prometheus import dashboard, rules


def alert(name: str, **bounds: float) -> Alert:
    return next(one for one in alerts(**bounds) if one.name == name)


def test_every_kind_of_problem_is_an_alert() -> None:
    kinds = [one.when.only["kind"] for one in alerts() if one.when.metric is m.PROBLEM]
    assert sorted(kinds) == sorted(Kind)


def test_a_condition_holds_beyond_its_bound_and_for_its_labels() -> None:
    lags = alert("DriftlessFollowerLags", lag=30.0)
    at = Figure(m.FOLLOWER_LAG_SECONDS, ("a",), 30.0)
    beyond = Figure(m.FOLLOWER_LAG_SECONDS, ("b",), 30.001)
    assert list(lags.firing([at, beyond, Figure(m.VIEW_LAG_SECONDS, ("c",), 99.0)])) == [beyond]
    failed = alert("DriftlessFailed")
    one = Figure(m.PROBLEM, (Kind.FAILED, "follower a"), 1)
    assert list(failed.firing([one, Figure(m.PROBLEM, (Kind.WAITING, "follower b"), 1)])) == [one]
    assert failed.told(one) == "follower a has failed and is not tried again"
    proven = alert("DriftlessDrift")
    drift = Figure(m.FOLLOWER_PROVEN, ("a",), 0)
    assert list(proven.firing([drift, Figure(m.FOLLOWER_PROVEN, ("b",), 1)])) == [drift]


def test_a_follower_that_somebody_paused_may_lag() -> None:
    lags = alert("DriftlessFollowerLags")
    paused, behind = Figure(m.FOLLOWER_STATE, ("a", "paused"), 1), Figure(m.FOLLOWER_LAG_SECONDS, ("a",), 999.0)
    other = Figure(m.FOLLOWER_LAG_SECONDS, ("b",), 999.0)
    assert list(lags.firing([paused, behind, other])) == [other]
    assert list(lags.firing([Figure(m.FOLLOWER_STATE, ("a", "paused"), 0), behind])) == [behind]


def test_rules_say_the_same_as_the_list() -> None:
    made = {rule["alert"]: rule for rule in rules()["groups"][0]["rules"]}
    assert [*made] == [*(one.name for one in alerts()), "DriftlessServeIsAway"]
    assert made["DriftlessFollowerLags"]["expr"] == (
        "driftless_follower_lag_seconds > 60 unless on (pipeline, follower) "
        'driftless_follower_state{state="paused"} > 0'
    )
    assert made["DriftlessSlotRunsOut"] == {
        "alert": "DriftlessSlotRunsOut",
        "expr": "driftless_slot_left_seconds < 21600",
        "for": "300s",
        "labels": {"severity": "critical"},
        "annotations": {
            "summary": "{{ $labels.pipeline }}: Postgres will give the replication slot up within six hours",
            "description": "start the connector, or raise max_slot_wal_keep_size and make room on the disk",
        },
    }
    assert made["DriftlessServeIsAway"]["expr"] == "absent(driftless_build_info)"


def test_each_rule_says_what_to_do_and_about_whom() -> None:
    for one in alerts():
        assert one.do
        labels = dict.fromkeys(one.when.metric.labels, "X")
        assert one.about.format(**labels) != "", one.name
        assert (one.when.over is None) != (one.when.under is None), one.name
    assert len({one.name for one in alerts()}) == len(alerts())


def test_a_condition_without_a_bound_never_holds() -> None:
    assert not Condition(m.SOURCE_UP).holds(Figure(m.SOURCE_UP, (), 1))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (alerts_page.PAGE, alerts_page.page),
        (alerts_page.RULES, alerts_page.rules_text),
        (alerts_page.DASHBOARD, alerts_page.dashboard_text),
        (metrics_page.PAGE, metrics_page.render),
    ],
    ids=["alerts.md", "rules", "dashboard", "metrics.md"],
)
def test_the_files_are_up_to_date(file: object, text: object) -> None:
    from pathlib import Path

    assert isinstance(file, Path)
    assert callable(text)
    assert file.read_text(encoding="utf-8") == text(), "run `make docs`"


def test_the_dashboard_shows_figures_that_there_are() -> None:
    names = {metric.name for metric in CATALOGUE} | {f"{m.READABLE.name}_bucket"}
    asked = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    assert len(asked) > 15
    for expression in asked:
        assert any(f"{name}{{" in expression for name in names), expression
        assert 'pipeline="$pipeline"' in expression
    json.dumps(dashboard())
