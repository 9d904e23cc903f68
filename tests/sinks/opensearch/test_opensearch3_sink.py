"""The newest OpenSearch against the same cases, on a server of its own: it needs a newer Java than the rest."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

import tests.sinks.opensearch.test_opensearch_sink as older
from stack import Stack
from stack.machine.java import parse_version
from tests.support import run

pytestmark = [pytest.mark.server, pytest.mark.soak]

_PLACES = ("/usr/lib/jvm/*", "/Library/Java/JavaVirtualMachines/*/Contents/Home")


def newer_java() -> Path | None:
    """A Java that OpenSearch 3 runs on: the one that is named, or one that is installed."""
    named = [Path(os.environ[name]) for name in ("OPENSEARCH_JAVA_HOME", "JAVA_HOME") if os.environ.get(name)]
    for home in (*named, *(found for place in _PLACES for found in sorted(Path("/").glob(place[1:])))):
        program = home / "bin" / "java"
        if program.exists():
            answer = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False)
            if (parse_version(answer.stderr + answer.stdout) or 0) >= 21:
                return home
    return None


@pytest.fixture(scope="module")
def newest() -> Iterator[str]:
    home = newer_java()
    if home is None:
        pytest.skip("OpenSearch 3 needs Java 21 or newer, and there is none here (OPENSEARCH_JAVA_HOME names one)")
    stack = Stack(f"{run.STACK}-newest", servers=["opensearch"])
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OPENSEARCH_JAVA_HOME", str(home))
            yield stack.up(print).opensearch
    finally:
        stack.destroy()


class TestOpenSearch3Sink(older.TestOpenSearchSink):
    duplicate = (
        "mapper_parsing_exception; json_parse_exception: Duplicate Object property; "
        "stream_read_exception: Duplicate Object property"
    )

    @pytest.fixture
    def store_url(self, newest: str) -> str:
        return newest

    def test_the_server_is_the_newer_one(self, store_url: str) -> None:
        assert urllib3.request("GET", store_url).json()["version"]["number"].startswith("3.")
