"""Late events counted after all: whenever that is done, the log equals the batch, and at the end every event counts."""

from __future__ import annotations

import random
import time
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from driftless.config.models import KafkaConfig
from driftless.errors import SourceUnavailable
from driftless.facts.streams import StreamBuild
from driftless.kafka.client import Kafka
from driftless.names import stream_topics
from jobs.spark.source import kafka_options
from jobs.streams.late.corrected import newest_corrected
from jobs.streams.late.corrections import LateCorrections
from jobs.streams.late.left_out import late_slices
from jobs.streams.log.batch import QueryCheckpoint, newest_batch
from jobs.streams.log.published import published
from jobs.streams.moment import StreamMoment
from jobs.streams.publisher import StreamPublisher
from jobs.streams.sql import query as queries
from jobs.streams.sql.documents import results
from stack import Endpoints
from tests.jobs.streams.random_events import (
    ALONE,
    BEGIN,
    CALMS,
    CHAIN,
    CHANGES,
    FILTER,
    HOPPING,
    JOIN,
    LATENESS,
    MATCHES,
    OUTER,
    PARTITIONS,
    PATTERN,
    SEED,
    SESSION,
    SLICE_MS,
    SLICES,
    TUMBLING,
    Tried,
    build,
    documents,
    slices,
    wanted,
    written,
)
from tests.support.machine import until

pytestmark = pytest.mark.server

CORRECT = 200_000


class CorrectedQuery(Tried):
    """A query whose results are published, and corrected when a test says so."""

    def __init__(self, spark: SparkSession, kafka: Kafka, build: StreamBuild, folder: Path) -> None:
        assert build.log is not None
        self._spark, self._kafka, self._log = spark, kafka, build.log
        self._batches = f"{build.log.topic}.batches"
        self._checkpoint = QueryCheckpoint(folder, build.join_wait)
        self._options = kafka_options(kafka, "test")
        self.publisher = StreamPublisher(kafka, build.log.topic.partition(".")[0], build)
        self.corrections = LateCorrections(spark, kafka, build, self._options)
        super().__init__(spark, kafka, build, folder)

    def _publish(self, rows: DataFrame, batch: int) -> None:
        found = list(results("s", rows.toArrow(), self.build.table.key))
        self.publisher.publish(self._checkpoint.id, batch, self._checkpoint.planned(batch), found)

    def correct(self) -> int:
        """How many documents were corrected."""
        publisher, newest = self.publisher, self.publisher.newest
        if newest is None:
            return 0
        for known, records in late_slices(
            self._spark, self._kafka, self.build, self._options, publisher.left_out, newest.read
        ):
            publisher.leave_out(known, records)
        late = publisher.left_out.read
        found = self.corrections.find(publisher.corrected, late, newest.read, newest.closed_ms)
        if found is None:
            return 0
        publisher.correct(found.corrections, found.corrected)
        return len(found.corrections)

    def assert_proven(self) -> dict[str, str]:
        """The log has what a batch gives, and readers see no more and no less."""
        batch, corrected = (
            newest_batch(self._kafka, self._batches),
            newest_corrected(self._kafka, self._batches, self.build),
        )
        moment = StreamMoment(self._spark, self._kafka, self.build, batch, corrected, 0, print)
        found = {key: kept.document for key, kept in published(self._kafka, self._log).items()}
        assert dict(one for page in moment.documents("") for one in page) == found
        return found


@pytest.mark.parametrize(
    ("window", "skewed"),
    [
        pytest.param(TUMBLING, False, id="tumbling, as it was received", marks=pytest.mark.soak),
        pytest.param(SESSION, True, id="sessions, one partition before the next"),
        pytest.param(HOPPING, True, id="hopping, one partition before the next", marks=pytest.mark.soak),
        pytest.param(CHANGES, False, id="every change, as it was received", marks=pytest.mark.soak),
        pytest.param(JOIN, False, id="a join, as it was received", marks=pytest.mark.soak),
        pytest.param(FILTER, False, id="a filter, as it was received", marks=pytest.mark.soak),
        pytest.param(SESSION, False, id="sessions, as it was received", marks=pytest.mark.soak),
        pytest.param(OUTER, True, id="an outer join, one partition before the next", marks=pytest.mark.soak),
        pytest.param(ALONE, False, id="windows over an outer join, as it was received", marks=pytest.mark.soak),
        pytest.param(MATCHES, True, id="windows over a join, one partition before the next", marks=pytest.mark.soak),
        pytest.param(CHAIN, False, id="windows of windows, as it was received", marks=pytest.mark.soak),
        pytest.param(PATTERN, False, id="a pattern, as it was received", marks=pytest.mark.soak),
        pytest.param(CALMS, True, id="windows over a pattern, one partition before the next", marks=pytest.mark.soak),
    ],
)
def test_late_events_count_in_the_end_and_every_moment_between_can_be_proven(
    spark: SparkSession,
    endpoints: Endpoints,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    window: str,
    skewed: bool,
) -> None:
    seed = random.Random(f"{SEED} late {window} {skewed}").randrange(10**6)
    print(f"seed {SEED}")
    chance = random.Random(seed)
    all_ = slices(chance)
    kafka = Kafka(KafkaConfig(bootstrap=endpoints.kafka))
    name = f"late-{seed}-{time.time_ns()}"
    topic = f"{name}.events"
    # A test says when it was received, long ago.
    kafka.create(topic, PARTITIONS, {"message.timestamp.type": "CreateTime", "retention.ms": "-1"})
    build_ = build(kafka, topic, window, CORRECT).with_topics(kafka, name)
    for made in stream_topics(name, "s", 1):
        until(f"the topic {made} to be known", partial(is_known, kafka, made))
    monkeypatch.setattr(queries, "MOST_OFFSETS", chance.choice([150, 10_000]))
    monkeypatch.setattr(queries, "TRIGGER", "0 seconds")
    monkeypatch.setattr("jobs.streams.late.corrections.LOOKBACK_MS", chance.choice([2_000, 3_600_000]))
    monkeypatch.setattr("jobs.streams.late.corrections.MOST_ENDS", chance.choice([3, 1_000]))
    tried = CorrectedQuery(spark, kafka, build_, tmp_path / "checkpoint")
    try:
        corrected = 0
        for moment in written(chance, kafka, topic, all_, skewed=skewed):
            if moment > BEGIN and chance.random() < 0.7:
                tried.query.processAllAvailable()
                tried.tick(moment)
            if chance.random() < 0.15:
                tried.query.processAllAvailable()
                corrected += tried.correct()
                tried.assert_proven()
        tried.query.processAllAvailable()
        end = BEGIN + SLICES * SLICE_MS + 100_000
        tried.tick(end)
        closed = end - LATENESS - 1
        until(
            "all windows to be closed", lambda: closed_ms(tried) >= closed - build_.join_wait or not build_.closes, 60
        )
        tried.query.processAllAvailable()
        corrected += tried.correct()
        shown = documents(tried.assert_proven().values())
        assert shown == wanted(window, all_, closed, LATENESS + CORRECT)
        assert shown != wanted(window, all_, closed)
        assert corrected > 0
        assert tried.correct() == 0
        reasons = tried.publisher.left_out
        assert min(reasons.late, reasons.too_late) > 0
    finally:
        tried.query.stop()
    kafka.delete(topic, f"{topic}.ticks", *stream_topics(name, "s", 1))


def is_known(kafka: Kafka, topic: str) -> bool:
    try:
        kafka.committed_ends(topic, 1)
    except SourceUnavailable:  # it has just been made: no broker leads it yet
        return False
    return True


def closed_ms(tried: CorrectedQuery) -> int:
    newest = tried.publisher.newest
    return 0 if newest is None else newest.closed_ms
