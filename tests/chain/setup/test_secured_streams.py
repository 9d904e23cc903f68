"""Streams whose every client reaches Kafka over TLS with a login: a kill, the proof, and no password on the disk."""

from __future__ import annotations

import psycopg
import pytest

from stack import stack_home
from tests.chain.conftest import MakePipeline
from tests.chain.streams.test_streams import SEED, Clicks, assert_shown, computed
from tests.support.pipeline import Pipeline
from tests.support.security.secured import SCRAM_PASSWORD, SCRAM_USER, Secured

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection, secured: Secured) -> Pipeline:
    pipeline = computed(make_pipeline, source, secrets={"KAFKA_PASSWORD": SCRAM_PASSWORD})
    pipeline.sync["kafka"]["bootstrap"] = secured.address("SECURED")
    pipeline.sync["kafka"]["security"] = {
        "protocol": "SASL_SSL",
        "mechanism": "SCRAM-SHA-512",
        "username": SCRAM_USER,
        "password": "${KAFKA_PASSWORD}",
        "ca": str(secured.files.ca),
    }
    pipeline.apply()
    return pipeline


def test_streams_over_tls_outlive_a_kill_and_are_proven(pipeline: Pipeline) -> None:
    clicks = Clicks(pipeline, SEED)
    job = pipeline.run()
    clicks.write(200)
    assert_shown(pipeline, clicks)
    job.kill()
    clicks.write(200)
    job = pipeline.run()
    assert_shown(pipeline, clicks)
    done = pipeline.here("verify", "--json", seconds=300)
    assert done.out, done.err
    reports = {report["name"]: report for report in done.json()["followers"]}
    assert (done.code, {name: r["in_sync"] for name, r in reports.items()}) == (0, dict.fromkeys(reports, True))
    assert min(reports[name]["source_documents"] for name in ("trends", "live-cache", "visits", "pairs")) > 3
    assert job.stop() == 0
    assert "canary" not in f"{job.output()}{done.out}{done.err}"


def test_no_password_is_in_a_checkpoint(pipeline: Pipeline) -> None:
    """Spark writes a query's settings and its sources' places beside its state."""
    found = [path for path in (stack_home() / "rows" / pipeline.name).rglob("*") if path.is_file()]
    assert [path for path in found if "offsets" in path.parts] != []
    assert [str(path) for path in found if b"canary" in path.read_bytes()] == []
