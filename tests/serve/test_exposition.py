"""What Prometheus reads, read by its own parser."""

from __future__ import annotations

import pytest
import urllib3
from prometheus_client.parser import text_string_to_metric_families

from driftless.errors import ConfigError
from driftless.metrics import catalogue as m
from driftless.metrics.figures import Figure
from serve.http.exposition import expose_process, exposed

FIGURES = [
    Figure(m.SOURCE_UP, (), 1),
    Figure(m.WRITTEN, ('odd "name"\n\\', "1"), 5),
    Figure(m.READABLE, ("a", "1"), ([(0.5, 2), (float("inf"), 3)], 4.5)),
    Figure(m.SOURCE_POSITION, (), float(2**52 + 1)),
]


def read(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(text.decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_prometheus_reads_the_same_values() -> None:
    found = read(exposed("shop", FIGURES))
    own = ("pipeline", "shop")
    odd = (("follower", 'odd "name"\n\\'), ("generation", "1"), own)
    a = (("follower", "a"), ("generation", "1"))
    assert found == {
        ("driftless_source_up", (own,)): 1,
        ("driftless_follower_written_documents_total", odd): 5,
        ("driftless_follower_readable_seconds_bucket", (*a, ("le", "0.5"), own)): 2,
        ("driftless_follower_readable_seconds_bucket", (*a, ("le", "+Inf"), own)): 3,
        ("driftless_follower_readable_seconds_count", (*a, own)): 3,
        ("driftless_follower_readable_seconds_sum", (*a, own)): 4.5,
        ("driftless_source_position_bytes", (own,)): 2**52 + 1,
    }


def test_each_family_has_its_meaning_and_type() -> None:
    for family in text_string_to_metric_families(exposed("shop", FIGURES).decode()):
        metric = next(m for m in (figure.metric for figure in FIGURES) if m.name.removesuffix("_total") == family.name)
        assert (family.documentation, family.type) == (metric.meaning, metric.type)


def test_a_process_serves_its_own_figures_and_says_where_it_cannot() -> None:
    port = expose_process("shop", 0, lambda: FIGURES)
    found = read(urllib3.request("GET", f"http://127.0.0.1:{port}/metrics", timeout=10).data)
    assert found["driftless_source_up", (("pipeline", "shop"),)] == 1
    assert found["process_resident_memory_bytes", ()] > 1e7
    with pytest.raises(ConfigError, match=rf"--metrics {port}: cannot listen there: Address already in use"):
        expose_process("shop", port, lambda: FIGURES)
