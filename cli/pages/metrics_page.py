"""docs/metrics.md, made of the list of figures: `make docs` writes it."""

from __future__ import annotations

from pathlib import Path

from driftless.facts.counts import BOUNDS
from driftless.metrics.catalogue import CATALOGUE

PAGE = Path(__file__).parent.parent.parent / "docs" / "metrics.md"

_HEAD = """# Metrics

Made by `make docs` from `driftless/metrics/catalogue.py`; do not edit. `driftless serve` answers `GET /metrics` with
all of them, for every machine that runs a part of the pipeline; see [serve.md](serve.md). `driftless run --metrics
PORT` answers with what that process counts, and with Prometheus' own `process_*`.

Every figure has the label `pipeline`, the `name` of sync.yaml. Positions are LSNs as numbers: bytes of the write-ahead
log since it began. Counters begin again with each run. A generation is a label where several are written side by side.

"""

_TAIL = """
## How long until a change can be read

`driftless_follower_readable_seconds` has parts up to {bounds}
seconds. Each record that a follower applies while it is live is one observation: from the commit, by the source's
clock, until the store has answered, by the clock of the machine that runs the follower. So the two clocks must agree,
as NTP makes them. Of a view of several tables, all documents that are published together count from the oldest change
that any of them shows. What is read in slices of more than 2,000 records, as while a follower catches up, is not
observed, nor are the documents of a stream: their moment is that of a window.

OpenSearch shows a document to searches at its next refresh, which it makes every second unless `refresh_interval` says
otherwise; a GET shows it at once.

```promql
histogram_quantile(0.99, sum by (follower, le) (rate(driftless_follower_readable_seconds_bucket[5m])))
```
"""


def render() -> str:
    """The whole page."""
    rows = ["| name | labels | meaning |", "|---|---|---|"]
    for metric in CATALOGUE:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` ({metric.type}) | {labels} | {metric.meaning} |")
    bounds = ", ".join(f"{bound:g}" for bound in BOUNDS)
    return _HEAD + "\n".join(rows) + "\n" + _TAIL.format(bounds=bounds)


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
