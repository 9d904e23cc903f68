"""Figures as Prometheus reads them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from driftless.errors import ConfigError
from driftless.metrics.catalogue import PIPELINE, Metric
from driftless.metrics.figures import Figure

CONTENT_TYPE = CONTENT_TYPE_LATEST


def exposed(pipeline: str, figures: Iterable[Figure]) -> bytes:
    """The text of `/metrics`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(pipeline, lambda: figures))
    return generate_latest(registry)


def expose_process(pipeline: str, port: int, figures: Callable[[], Iterable[Figure]]) -> int:
    """Serve figures of this process, with its memory and processor time, on loopback, until it ends; the port.

    Raises ConfigError where it cannot listen there.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(pipeline, figures))
    ProcessCollector(registry=registry)
    try:
        server, _ = start_http_server(port, "127.0.0.1", registry)
    except OSError as exc:
        why = f"--metrics {port}: cannot listen there: {exc.strerror or exc}"
        raise ConfigError(why, hint="choose another port, or 0 for any that is free") from None
    return int(server.server_port)


class _Families(Collector):
    def __init__(self, pipeline: str, figures: Callable[[], Iterable[Figure]]) -> None:
        self._pipeline = pipeline
        self._figures = figures

    def collect(self) -> Iterator[Family]:
        found: dict[str, Family] = {}
        for figure in self._figures():
            family = found.get(figure.metric.name)
            if family is None:
                family = found[figure.metric.name] = _family(figure.metric)
            labels = [self._pipeline, *figure.labels]
            if isinstance(figure.value, tuple):
                parts, total = figure.value
                buckets = [("+Inf" if math.isinf(bound) else str(bound), count) for bound, count in parts]
                family.add_metric(labels, buckets, total)  # type: ignore[attr-defined]
            else:
                family.add_metric(labels, figure.value)  # type: ignore[attr-defined]
        yield from found.values()


def _family(metric: Metric) -> Family:
    kinds: dict[str, type[Family]] = {
        "gauge": GaugeMetricFamily,
        "counter": CounterMetricFamily,
        "histogram": HistogramMetricFamily,
    }
    return kinds[metric.type](metric.name, metric.meaning, labels=(PIPELINE, *metric.labels))  # type: ignore[call-arg]
