"""docs/alerts.md, and the files of rules and of the dashboard, made of the list of alerts: `make docs` writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from driftless.metrics.alerts import ABSENT_SECONDS, alerts
from driftless.metrics.prometheus import dashboard, rules

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = DOCS / "alerts.md"
RULES = DOCS / "alerts" / "prometheus-rules.yml"
DASHBOARD = DOCS / "alerts" / "grafana-dashboard.json"

_HEAD = """# Alerts

Made by `make docs` from `driftless/metrics/alerts.py`; do not edit. One list gives the rules for Prometheus
([prometheus-rules.yml](alerts/prometheus-rules.yml)), a dashboard for Grafana
([grafana-dashboard.json](alerts/grafana-dashboard.json)) and, without either, messages to a webhook.

No alert fires while all is well; a follower that is paused, or being built, is well. A test makes each rule of the
table fire on the real chain, and end again.

| alert | after | what it says | what to do |
|---|---|---|---|
"""

_TAIL = """
Most rules follow `driftless_problem`, which is what `driftless status` reports. The others compare one figure of
[metrics.md](metrics.md) with a bound: change it in your copy of the rules as you need.

## With Prometheus and Grafana

```yaml
# prometheus.yml
rule_files: [prometheus-rules.yml]
```

The rules expect Prometheus to scrape a `driftless serve` ([serve.md](serve.md#prometheus)); `DriftlessServeIsAway`
fires when it scrapes none. Import the dashboard into Grafana and choose the Prometheus and the pipeline at its top.

## With a webhook

```yaml
# sync.yaml
alerts:
  webhook: ${ALERT_URL}
  headers: {Authorization: "Bearer ${ALERT_TOKEN}"}
  lag: 1m
  proof: 8d
```

`driftless serve` then posts each alert as JSON when it fires, and once more when it is over:

```json
{
  "id": "8d0c6bb6a2c1c0b2a1f0c7f4f0f6c3aa",
  "pipeline": "shop",
  "state": "firing",
  "alert": "DriftlessWaiting",
  "severity": "critical",
  "labels": {"kind": "waiting", "who": "follower product-cache"},
  "summary": "follower product-cache waits for something, as for its store: Redis cannot be reached",
  "do": "`driftless status` says what it is and what to do; it resumes by itself once that is over",
  "value": 1.0,
  "since": "2026-03-01T12:00:00.000+00:00",
  "until": null,
  "text": "shop: follower product-cache waits for something, ..."
}
```

`state` is `firing` or `resolved`, and `id` is the same in both messages. `text` is for chats that take
`{"text": ...}`, such as Slack and Mattermost.

- If the webhook does not answer with 2xx within 10 seconds, `serve` sends the message again: after 1 second at first,
  every 5 minutes at last. If an alert ends before the webhook has accepted its message, `serve` sends one message, with
  the state `resolved`.
- `serve` keeps what it has sent in the control topic, so it sends no message twice, also after a restart.
- If several `serve` of a pipeline run, one of them sends. When that one ends, another takes over: at once after a clean
  stop, within 70 seconds otherwise.
- While Kafka or the source does not answer, `serve` reports no other alert as resolved.
"""


def page() -> str:
    """The whole page."""
    rows = []
    for alert in alerts():
        labels = {name: f"*{name}*" for name in alert.when.metric.labels}
        after = f"{alert.seconds:.0f} s" if alert.seconds else "at once"
        rows.append(f"| `{alert.name}` ({alert.severity}) | {after} | {alert.about.format(**labels)} | {alert.do} |")
    absent = "no `driftless serve` is scraped, so nobody watches (by Prometheus alone)"
    rows.append(f"| `DriftlessServeIsAway` (critical) | {ABSENT_SECONDS:.0f} s | {absent} | start `driftless serve` |")
    return _HEAD + "\n".join(rows) + "\n" + _TAIL


def rules_text() -> str:
    """The file of rules."""
    head = "# Made by `make docs` from driftless/metrics/alerts.py.\ngroups:\n  - name: driftless\n    rules:"
    return "\n".join([head, *_rule_lines()]) + "\n"


def _rule_lines() -> Iterator[str]:
    for rule in rules()["groups"][0]["rules"]:
        yield f"      - alert: {rule['alert']}"
        yield f"        expr: {json.dumps(rule['expr'])}"  # text in JSON is text in YAML
        yield f"        for: {rule['for']}"
        for part in ("labels", "annotations"):
            yield f"        {part}:"
            yield from (f"          {name}: {json.dumps(value)}" for name, value in rule[part].items())


def dashboard_text() -> str:
    """The file of the dashboard."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    RULES.write_text(rules_text(), encoding="utf-8")
    DASHBOARD.write_text(dashboard_text(), encoding="utf-8")
