"""What a batch was made of, and which checkpoint may be gone on with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driftless.errors import SourceError
from jobs.streams.log.batch import PublishedBatch, QueryCheckpoint

READ = {"clicks": {0: 5, 1: 2}, "ticks": {0: 1}}
PUBLISHED = PublishedBatch("abc", 7, READ, 1_000, 1_000, 500)
AGAIN = PublishedBatch("abc", 7, READ, 1_000, 1_000, 500, {"clicks": {0: 6}})


def checkpoint(folder: Path, planned: int, committed: int) -> QueryCheckpoint:
    """One as Spark leaves it."""
    (folder / "offsets").mkdir()
    (folder / "commits").mkdir()
    (folder / "metadata").write_text('{"id":"abc"}')
    for batch in range(planned + 1):
        lines = ["v1", json.dumps({"batchWatermarkMs": batch * 100, "conf": {}})]
        lines += [
            json.dumps({topic: {str(p): o + batch for p, o in offsets.items()}}) for topic, offsets in READ.items()
        ]
        (folder / "offsets" / str(batch)).write_text("\n".join(lines))
    for batch in range(committed + 1):
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    (folder / "offsets" / ".7.crc").write_text("")
    return QueryCheckpoint(folder)


def test_what_was_published_is_read_back() -> None:
    for batch in (PUBLISHED, AGAIN):
        assert PublishedBatch.from_text(batch.to_text()) == batch
    assert (PUBLISHED.is_refill, AGAIN.is_refill) == (False, True)
    for strange in (b"", b"{}", b"[]", b'{"checkpoint": 1, "batch": "x"}', b"null"):
        with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
            PublishedBatch.from_text(strange)


def test_a_planned_batch_says_what_it_reads_and_what_it_closes(tmp_path: Path) -> None:
    planned = checkpoint(tmp_path, 3, 2).planned(2)
    assert (planned.closed_ms, planned.read) == (200, {"clicks": {0: 7, 1: 4}, "ticks": {0: 3}})


@pytest.mark.parametrize("text", ["", "v1", "v1\n{}\n", "v1\nno json\n{}", 'v1\n{"batchWatermarkMs":1}\n{"clicks":3}'])
def test_a_checkpoint_that_cannot_be_read_is_told(tmp_path: Path, text: str) -> None:
    found = checkpoint(tmp_path, 1, 1)
    (tmp_path / "offsets" / "1").write_text(text)
    with pytest.raises(SourceError, match="cannot be read"):
        found.planned(1)


@pytest.mark.parametrize(("committed", "goes_on"), [(5, False), (6, True), (7, True), (8, False)])
def test_a_checkpoint_is_gone_on_with_where_one_batch_at_most_is_in_doubt(
    tmp_path: Path, committed: int, goes_on: bool
) -> None:
    """Batch 7 was published. Spark may not have heard of it; if it has finished more, or less, it is another time's."""
    assert checkpoint(tmp_path, 8, committed).continues(PUBLISHED) is goes_on


def test_another_checkpoint_is_never_gone_on_with(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, 7, 7)
    (tmp_path / "metadata").write_text('{"id":"other"}')
    assert not found.continues(PUBLISHED)
    assert not QueryCheckpoint(tmp_path / "none").continues(PUBLISHED)


def test_one_without_a_published_batch_must_have_finished_none(tmp_path: Path) -> None:
    assert QueryCheckpoint(tmp_path / "none").continues(None)
    assert checkpoint(tmp_path, 0, -1).continues(None)
    assert not QueryCheckpoint(tmp_path).continues(PUBLISHED)


@pytest.mark.parametrize(
    ("reach", "read"),
    [
        ({}, True),
        ({"clicks": {0: 5, 1: 2}}, True),
        ({"clicks": {0: 6, 1: 0}}, False),
        ({"clicks": {2: 1}}, False),
        ({"views": {0: 1}}, False),
        ({"views": {0: 0}}, True),
    ],
)
def test_it_is_known_what_a_batch_had_read(reach: dict[str, dict[int, int]], read: bool) -> None:
    assert PUBLISHED.has_read(reach) is read
