"""Versions, log positions and the epoch registry."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftless.errors import SourceError
from driftless.facts.epochs import Epoch, TopicLog, first_epoch
from driftless.lsn import format_lsn, parse_lsn
from driftless.version import MAX_EPOCH, MAX_OFFSET, make_version, split_version

epochs = st.integers(1, MAX_EPOCH)
offsets = st.integers(0, MAX_OFFSET)


@given(epochs, offsets, epochs, offsets)
def test_versions_order_by_epoch_then_offset(e1: int, o1: int, e2: int, o2: int) -> None:
    assert (make_version(e1, o1) < make_version(e2, o2)) == ((e1, o1) < (e2, o2))


@given(epochs, offsets)
def test_a_version_splits_into_what_made_it_and_fits_a_signed_long(epoch: int, offset: int) -> None:
    version = make_version(epoch, offset)
    assert split_version(version) == (epoch, offset)
    assert 0 < version <= 2**63 - 1
    assert len(f"{version:019d}") == 19


@pytest.mark.parametrize(("epoch", "offset"), [(0, 0), (MAX_EPOCH + 1, 0), (1, -1), (1, MAX_OFFSET + 1)])
def test_what_does_not_fit_is_an_error(epoch: int, offset: int) -> None:
    with pytest.raises(ValueError, match="is not in"):
        make_version(epoch, offset)


@given(st.integers(0, 2**64 - 1))
def test_a_log_position_reads_back(lsn: int) -> None:
    assert parse_lsn(format_lsn(lsn)) == lsn


@pytest.mark.parametrize("text", ["", "16", "16/", "/16", "16/B374D848Z", "123456789/0", "G/0", "1/2/3"])
def test_what_is_no_log_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an LSN"):
        parse_lsn(text)


def test_an_epoch_belongs_to_the_record_and_readers_start_at_the_newest_floor() -> None:
    log = TopicLog("t", "id", 2, (Epoch(1, {0: 0, 1: 0}, "first"), Epoch(2, {0: 100, 1: 7}, "slot lost")))
    assert [log.epoch_of(0, o) for o in (0, 99, 100)] == [1, 1, 2]
    assert [log.epoch_of(1, o) for o in (6, 7)] == [1, 2]
    assert log.floor == {0: 100, 1: 7}
    assert log.version(0, 100) > log.version(0, 99)
    assert TopicLog.from_json(log.to_json()) == log


def test_no_older_epoch_begins_behind_a_newer_one() -> None:
    """A broker has lost the end of the log: what is written there again is of the epoch that begins with it."""
    log = first_epoch("t", "id", 2).begin({0: 1361, 1: 1359}, "read anew", 0).begin({0: 1170, 1: 1400}, "read anew", 0)
    assert [epoch.floors for epoch in log.epochs] == [{0: 0, 1: 0}, {0: 1170, 1: 1359}, {0: 1170, 1: 1400}]
    assert [log.epoch_of(0, o) for o in (1169, 1170, 1361)] == [1, 3, 3]
    assert [log.epoch_of(1, o) for o in (1358, 1359, 1400)] == [1, 2, 3]
    moved = log.with_topic("other", 2).begin({0: 5, 1: 5}, "made anew", 0)
    assert moved.epochs[:3] == tuple(replace(e, topic_id="id") for e in log.epochs), "offsets of another topic"


def test_a_new_topic_is_registered_from_its_first_offset() -> None:
    log = first_epoch("t", "id", 3)
    assert log.floor == {0: 0, 1: 0, 2: 0}
    assert log.version(2, 5) == make_version(1, 5)


def test_a_log_that_begins_anew_is_still_what_it_was_to_who_follows_the_older_epoch() -> None:
    first = first_epoch("t", "id", 2)
    log = first.begin({0: 10, 1: 4}, "TRUNCATE at 0/64", 100)
    assert (log.newest.number, log.newest.lsn, log.floor) == (2, 100, {0: 10, 1: 4})
    assert log.until_epoch(1) == first
    assert log.until_epoch(1).version(0, 50) == make_version(1, 50)
    assert log.until_epoch(2) == log
    with pytest.raises(SourceError, match="t has no epoch 3 yet"):
        log.until_epoch(3)


def test_an_epoch_that_was_registered_without_a_position_begins_at_none() -> None:
    facts = first_epoch("t", "id", 1).to_json()
    del facts["epochs"][0]["lsn"]  # type: ignore[index]
    assert TopicLog.from_json(facts).newest.lsn == 0
