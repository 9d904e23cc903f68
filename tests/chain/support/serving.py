"""A `driftless serve` of a test, and what it answers."""

from __future__ import annotations

import json
import re
from typing import Any

import urllib3
from prometheus_client.parser import text_string_to_metric_families

from tests.support.machine import Job, until
from tests.support.pipeline import Pipeline

_ADDRESS = re.compile(r"serving \S+ on (https?://\S+)")


class Serving:
    """Started beside a pipeline, on a free port of loopback; it answers when this is made."""

    def __init__(self, pipeline: Pipeline, *options: str) -> None:
        self.job: Job = pipeline.here.start("serve", "--port", "0", *options)
        pipeline.here.jobs.append(self.job)
        until("serve to say its address", self._address, 60)
        until("serve to be ready", lambda: self.get("/readyz")[0] == 200, 60)

    def _address(self) -> str | None:
        assert self.job.running, self.job.output()
        found = _ADDRESS.search(self.job.output())
        return found[1] if found else None

    @property
    def url(self) -> str:
        found = self._address()
        assert found is not None
        return found

    def get(self, path: str, seconds: float = 20) -> tuple[int, bytes]:
        """Status and body."""
        answer = urllib3.request("GET", self.url + path, timeout=seconds, retries=False)
        return answer.status, answer.data

    def status(self) -> dict[str, Any]:
        """What `/status` answers."""
        code, text = self.get("/status")
        assert code == 200, text
        return dict(json.loads(text))

    def figures(self) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
        """Every figure: name -> labels but for `pipeline` -> value."""
        code, text = self.get("/metrics")
        assert code == 200, text
        return read_figures(text)

    def figure(self, name: str, **labels: str) -> float | None:
        """One of them; None where there is none."""
        return self.figures().get(f"driftless_{name}", {}).get(frozenset(labels.items()))


def read_figures(text: bytes) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """As Prometheus' own parser reads them."""
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for one in family.samples:
            labels = frozenset((name, value) for name, value in one.labels.items() if name != "pipeline")
            found.setdefault(one.name, {})[labels] = one.value
    return found
