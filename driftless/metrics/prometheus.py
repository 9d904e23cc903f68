"""The alerts as Prometheus' rules, and the figures as a dashboard of Grafana's: files that are made of the lists."""

from __future__ import annotations

from typing import Any

from driftless.metrics import catalogue as m
from driftless.metrics.alerts import ABSENT_SECONDS, Alert, Condition, alerts
from driftless.metrics.catalogue import PIPELINE, Metric


def rules(known: tuple[Alert, ...] | None = None, *, hold: bool = True) -> dict[str, Any]:
    """The file of rules, as JSON, which YAML contains. `hold`: whether each has to hold for its time."""
    every = alerts() if known is None else known
    made = [_rule(alert, alert.seconds if hold else 0) for alert in every]
    absent = {
        "alert": "DriftlessServeIsAway",
        "expr": f"absent({m.BUILD.name})",
        "for": f"{ABSENT_SECONDS if hold else 0:.0f}s",
        "labels": {"severity": "critical"},
        "annotations": {
            "summary": "no driftless serve is scraped, so nobody watches",
            "description": "start `driftless serve`, or correct the scrape configuration",
        },
    }
    return {"groups": [{"name": "driftless", "rules": [*made, absent]}]}


def _rule(alert: Alert, seconds: float) -> dict[str, Any]:
    expression = _expression(alert.when)
    if alert.unless is not None:
        same = ", ".join((PIPELINE, alert.when.metric.labels[0]))
        expression += f" unless on ({same}) {_expression(alert.unless)}"
    labels = {name: f"{{{{ $labels.{name} }}}}" for name in alert.when.metric.labels}
    return {
        "alert": alert.name,
        "expr": expression,
        "for": f"{seconds:.0f}s",
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": f"{{{{ $labels.{PIPELINE} }}}}: {alert.about.format(**labels)}",
            "description": alert.do,
        },
    }


def _expression(condition: Condition) -> str:
    only = ", ".join(f'{name}="{value}"' for name, value in condition.only.items())
    series = f"{condition.metric.name}{{{only}}}" if only else condition.metric.name
    bound = f"> {condition.over:.15g}" if condition.over is not None else f"< {condition.under:.15g}"
    return f"{series} {bound}"


_ROW = 8
_WIDTH = 24
_PIPELINE = f'{PIPELINE}="$pipeline"'


def dashboard() -> dict[str, Any]:
    """The dashboard: what is wrong, followers, views, streams, the source."""
    panels = [
        _panel("What is wrong", [(m.PROBLEM.name, "{{who}}: {{kind}}")], "short", kind="table"),
        _panel("Lag of followers", [(m.FOLLOWER_LAG_SECONDS.name, "{{follower}}")], "s"),
        _panel("Records to apply", [(m.FOLLOWER_LAG.name, "{{follower}}")], "short"),
        _panel("Writes a second", [_rate(m.WRITTEN, "{{follower}}")], "ops"),
        _panel("From commit to readable", [_quantile(0.5), _quantile(0.99)], "s"),
        _panel(
            "Stale, refused, tried again",
            [
                _rate(m.STALE, "{{follower}} stale"),
                _rate(m.REFUSED, "{{follower}} refused: {{reason}}"),
                _rate(m.RETRIES, "{{follower}} tried again"),
            ],
            "ops",
        ),
        _panel(
            "Quarantine",
            [(m.FOLLOWER_QUARANTINED.name, "{{follower}}"), (m.VIEW_QUARANTINED.name, "view {{view}}")],
            "short",
        ),
        _panel("Since the last proof", [(m.FOLLOWER_PROOF_AGE.name, "{{follower}}")], "s"),
        _panel("Views: documents that wait", [(m.VIEW_WAITING.name, "{{view}}")], "short"),
        _panel("Views: row stores", [(m.VIEW_STORE.name, "{{view}}/{{shard}}")], "bytes"),
        _panel("Streams: state", [(m.STREAM_BYTES.name, "{{stream}}")], "bytes"),
        _panel("Streams: events left out", [_rate(m.STREAM_EVENTS, "{{stream}} {{why}}")], "ops"),
        _panel("The slot's log", [(m.SLOT_RETAINED.name, "kept"), (m.SLOT_LEFT.name, "left")], "bytes"),
        _panel("Age of the logs", [(m.TABLE_AGE.name, "{{table}}")], "s"),
    ]
    for number, panel in enumerate(panels):
        panel["id"] = number + 1
        panel["gridPos"] = {"h": _ROW, "w": _WIDTH // 2, "x": number % 2 * _WIDTH // 2, "y": number // 2 * _ROW}
    return {
        "title": "driftless",
        "uid": "driftless",
        "tags": ["driftless"],
        "schemaVersion": 39,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
                {
                    "name": PIPELINE,
                    "type": "query",
                    "label": "Pipeline",
                    "datasource": _SOURCE,
                    "query": f"label_values({m.BUILD.name}, {PIPELINE})",
                    "refresh": 2,
                },
            ]
        },
        "panels": panels,
    }


_SOURCE = {"type": "prometheus", "uid": "${source}"}


def _rate(metric: Metric, legend: str) -> tuple[str, str]:
    return f"rate({metric.name}{{{_PIPELINE}}}[$__rate_interval])", legend


def _quantile(q: float) -> tuple[str, str]:
    series = f"rate({m.READABLE.name}_bucket{{{_PIPELINE}}}[$__rate_interval])"
    return f"histogram_quantile({q:g}, sum by (follower, le) ({series}))", f"{{{{follower}}}} p{q * 100:.0f}"


def _panel(title: str, queries: list[tuple[str, str]], unit: str, *, kind: str = "timeseries") -> dict[str, Any]:
    targets = []
    for number, (query, legend) in enumerate(queries):
        expression = query if "{" in query else f"{query}{{{_PIPELINE}}}"
        target = {"refId": chr(ord("A") + number), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
        targets.append(target | ({"format": "table", "instant": True} if kind == "table" else {}))
    return {
        "title": title,
        "type": kind,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": targets,
    }
