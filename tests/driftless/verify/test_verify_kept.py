"""What an interrupted verify leaves behind is gone on with: no record is read twice, and none is left out."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from driftless.errors import ConfigError
from driftless.facts.epochs import first_epoch
from driftless.kafka.client import Kafka, Offsets
from driftless.verify import resumable_run
from driftless.verify.report import Report
from driftless.verify.resumable_run import ResumableRun
from driftless.verify.spool import hashes, seed
from driftless.verify.stages import LogSpool
from driftless.verify.steps import Step
from driftless.verify.subject import Subject
from driftless.version import make_version

ASKED = {"followers": {"cache": [1, 0]}}


class Killed(Exception):
    """The process is killed here."""


class Log:
    """A log of two partitions whose records are read three offsets at a time. `breaks`: after so many reads."""

    def __init__(self, end: int, breaks: int = 1000) -> None:
        self.end = end
        self.breaks = breaks
        self.asked: list[Offsets] = []

    def read(self, begin: Offsets, end: Offsets) -> Iterator[pa.Table]:
        self.asked.append(dict(begin))
        at = dict(begin)
        for _ in range(self.breaks):
            places = [(p, o) for p in end for o in range(at[p], min(end[p], at[p] + 3))]
            at = {p: min(end[p], at[p] + 3) for p in end}
            yield pa.table(
                {
                    "key": [f"{p}-{o}" for p, o in places],
                    "version": pa.array([make_version(1, o) for _, o in places], pa.int64()),
                    "document": pa.array([str(o) for _, o in places], pa.string()),
                    "partition": pa.array([p for p, _ in places], pa.int32()),
                }
            )
            if at == end:
                return
        raise Killed

    def decided_ends(self, topic: str, partitions: int) -> Offsets:  # noqa: ARG002
        return {0: self.end, 1: self.end - 1}


def spool(path: Path, log: Log, topic_id: str = "id") -> LogSpool:
    subject = Subject("view", "table-log", "", first_epoch("topic", topic_id, 2), log)
    return LogSpool(subject, cast(Kafka, cast(Any, log)), path / "log", Step("log"))


def keys(read: LogSpool) -> list[str]:
    return sorted(key for batch in read.spool.read("key") for key in batch["key"].to_pylist())


def every(end: int) -> list[str]:
    return sorted([f"0-{o}" for o in range(end)] + [f"1-{o}" for o in range(end - 1)])


def test_a_log_that_was_read_to_a_place_is_read_on_from_there(tmp_path: Path) -> None:
    spool(tmp_path, Log(7)).read_on()
    log = Log(9)
    again = spool(tmp_path, log)
    assert keys(again) == every(7)
    again.read_on()
    assert log.asked == [{0: 7, 1: 6}]
    assert keys(again) == every(9)
    assert again.spool.load("version", only=hashes(["0-8"]))["version"].tolist() == [make_version(1, 8)]


def test_killed_while_it_reads_it_loses_no_more_than_one_slice(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        spool(tmp_path, Log(20, breaks=4)).read_on()
    log = Log(20)
    again = spool(tmp_path, log)
    again.read_on()
    assert log.asked == [{0: 12, 1: 12}]
    assert keys(again) == every(20)
    assert again.spool.rows == 39


def test_what_was_read_of_another_topic_is_not_gone_on_with(tmp_path: Path) -> None:
    spool(tmp_path, Log(7)).read_on()
    log = Log(5)
    again = spool(tmp_path, log, topic_id="made anew")
    again.read_on()
    assert log.asked == [{0: 0, 1: 0}]
    assert keys(again) == every(5)


def test_followers_that_were_compared_are_known_and_hashes_are_the_same(tmp_path: Path) -> None:
    first = ResumableRun(tmp_path, ASKED, resume=False)
    before = hashes(["a"]).tolist()
    report = Report("cache", 1, "view", 77, 3, 3, stage="follower", samples=[{"key": "a"}])
    report.counts["missing"] = 2
    first.done(report)
    first.close()
    seed(seed() ^ 1)
    assert hashes(["a"]).tolist() != before
    again = ResumableRun(tmp_path, ASKED, resume=True)
    assert hashes(["a"]).tolist() == before
    assert again.reports == {"cache": report}
    assert again.reports["cache"].counts["extra"] == 0
    again.remove()
    again.close()
    with pytest.raises(ConfigError, match="no interrupted verify"):
        ResumableRun(tmp_path, ASKED, resume=True)


def test_there_is_nothing_to_go_on_with_for_others_or_after_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ResumableRun(tmp_path, ASKED, resume=False).close()
    with pytest.raises(ConfigError, match="no interrupted verify"):
        ResumableRun(tmp_path, {"followers": {"search": [1, 0]}}, resume=True)
    ResumableRun(tmp_path, ASKED, resume=True).close()
    monkeypatch.setattr(resumable_run, "KEPT_SECONDS", -1.0)
    with pytest.raises(ConfigError, match="too long ago"):
        ResumableRun(tmp_path, ASKED, resume=True)


def test_what_a_killed_verify_left_is_removed_by_the_next_after_a_day(tmp_path: Path) -> None:
    def left(name: str, hours: float) -> Path:
        file = tmp_path / name / "0" / "log"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"rows")
        for path in (file, file.parent, file.parent.parent):
            os.utime(path, (time.time() - hours * 3600,) * 2)
        return file

    old, recent = left("killed", 25), left("under way", 23)
    ResumableRun(tmp_path, ASKED, resume=False).close()
    assert not old.parent.parent.exists()
    assert recent.read_bytes() == b"rows"


def test_two_at_once_do_not_meet(tmp_path: Path) -> None:
    first = ResumableRun(tmp_path, ASKED, resume=False)
    second = ResumableRun(tmp_path, ASKED, resume=False)
    assert second.folder != first.folder
    with pytest.raises(ConfigError, match="another process runs the same verify"):
        ResumableRun(tmp_path, ASKED, resume=True)
    second.remove()
    second.close()
    assert (first.folder / "state.json").is_file()
    assert [path.name for path in first.folder.iterdir()] == ["state.json"]
    first.close()
