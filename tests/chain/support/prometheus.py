"""A real Prometheus, where there is one: it scrapes a `serve`, and judges our rules."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tests.support.machine import until


class Prometheus:
    """Scrapes and judges every second."""

    def __init__(self, url: str) -> None:
        self._url = url

    def _ask(self, path: str) -> Any:
        answer = urllib3.request("GET", f"{self._url}/api/v1/{path}", timeout=10, retries=False)
        return answer.json()["data"]

    def ready(self) -> bool:
        try:
            return urllib3.request("GET", f"{self._url}/-/ready", timeout=5, retries=False).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def firing(self) -> set[tuple[str, str]]:
        """(alert, whom its figure is of) of all that fire now."""
        found = set()
        for one in self._ask("alerts")["alerts"]:
            labels = one["labels"]
            if one["state"] == "firing":
                found.add((labels["alertname"], labels.get("who") or labels.get("follower") or ""))
        return found

    def until_firing(self, alert: str, who: str = "", seconds: float = 90) -> None:
        deadline = time.monotonic() + seconds
        while (alert, who) not in self.firing():
            assert time.monotonic() < deadline, f"{alert} of {who or 'the pipeline'} does not fire: {self.firing()}"
            time.sleep(0.2)

    def until_over(self, *alerts: str, seconds: float = 120) -> None:
        """None of these fires any more, of anybody."""

        def over() -> bool:
            return not {name for name, _ in self.firing()} & set(alerts)

        until(f"{', '.join(alerts)} to be over", over, seconds)


@contextmanager
def running(folder: Path, target: str, rules: dict[str, Any]) -> Iterator[Prometheus]:
    """Until the block ends. Skips the test where this machine has none."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("there is no `prometheus` here: Debian's package has it")
    (folder / "rules.yml").write_text(json.dumps(rules))
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    scraped = [{"job_name": "driftless", "static_configs": [{"targets": [target]}]}]
    settings = {"global": every, "rule_files": ["rules.yml"], "scrape_configs": scraped}
    (folder / "prometheus.yml").write_text(json.dumps(settings))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [program, "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--log.level=warn"]
    command.append(f"--web.listen-address=127.0.0.1:{port}")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    found = Prometheus(f"http://127.0.0.1:{port}")
    try:
        until("Prometheus to be ready", found.ready, 60)
        yield found
    finally:
        process.terminate()
        process.wait(20)
