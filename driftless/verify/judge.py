"""The verdict on one part of the keys: source against log, and follower against log, by hashes alone.

A log's records are of three zones around the position that the source was read at. What lies before the position
(`BEFORE`) the source must show, and the follower must have applied. What lies around it (`AROUND`) the source may show
or not: of a key that has such records, it must show one of the states that they tell. What lies behind it (`AFTER`)
only the follower may show. So a key that nobody writes to is compared exactly, and one that is written to all the time
is held to what its log says, without anybody having to stand still.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from driftless.verify.spool import ABSENT, Hashes

BEFORE, AROUND, AFTER = 0, 1, 2
Columns = Mapping[str, Any]
Mask = npt.NDArray[np.bool_]

MISSING, EXTRA, DIFFERENT, STALE, AHEAD, ROWS = 1, 2, 3, 4, 5, 6
"""STALE: an older state than the follower must have applied. AHEAD: a version that the log has not come to.
ROWS: what a view keeps of its tables would publish another document.
"""


_NOBODY = {"hash": 0, "version": -1, "canon": ABSENT, "raw": ABSENT, "partition": 0}


@dataclass(frozen=True)
class SuspectKeys:
    """Keys by hash, each with what is wrong. `moving`: the log tells of a later change, so that it may be right yet."""

    keys: Hashes
    problems: npt.NDArray[np.int8]
    moving: Mask

    def __len__(self) -> int:
        return len(self.keys)

    def without(self, keys: Hashes) -> SuspectKeys:
        """The same but for some keys."""
        left = ~np.isin(self.keys, keys)
        return SuspectKeys(self.keys[left], self.problems[left], self.moving[left])


def zones(log: Columns, lo: Mapping[int, int], hi: Mapping[int, int], offset_mask: int) -> npt.NDArray[np.int8]:
    """The zone of each record. Partitions are numbered from 0."""
    offsets = log["version"] & offset_mask
    first, last = (np.array([bounds[p] for p in range(len(bounds))], np.int64) for bounds in (lo, hi))
    partitions = log["partition"]
    zone = (offsets >= first[partitions]).astype(np.int8) + (offsets >= last[partitions]).astype(np.int8)
    return np.asarray(zone, np.int8)


class KeyHistory:
    """The records of some keys, in order. `newest`: the places of each key's newest before the position; `last`: of
    each key's newest of all.
    """

    def __init__(self, log: Columns, zone: npt.NDArray[np.int8]) -> None:
        # One record of no key, behind everything: then no array is empty.
        log = {name: np.append(log[name], _NOBODY[name]) for name in _NOBODY}
        zone = np.append(zone, np.int8(AFTER))
        order = np.lexsort((log["version"], log["hash"]))
        self.hash, self.version, self.canon, self.raw, self.partition = (log[name][order] for name in _NOBODY)
        self.zone = zone[order]
        self.newest = ends_of_runs(self.hash, np.flatnonzero(self.zone == BEFORE))
        self.last = ends_of_runs(self.hash, np.arange(len(self.hash)))

    def find_newest(self, keys: Hashes) -> tuple[npt.NDArray[np.int64], Mask]:
        """The place of each key's newest record before the position, and whether there is one."""
        return _find(self.hash, self.newest, keys)

    def find_last(self, keys: Hashes) -> tuple[npt.NDArray[np.int64], Mask]:
        """The same of the newest record of all."""
        return _find(self.hash, self.last, keys)

    def find(self, keys: Hashes, versions: Hashes) -> tuple[npt.NDArray[np.int64], Mask]:
        """The place of the record of a key at a version, and whether there is one."""
        ours = _mix(self.hash, self.version)
        order = np.argsort(ours)
        return _find(ours, order, _mix(keys, versions))

    def shown(self) -> Hashes:
        """The keys that have a document before the position."""
        return np.asarray(self.hash[self.newest[self.raw[self.newest] != ABSENT]])

    def moving(self, keys: Hashes) -> Mask:
        """Whether the log tells of a change around the position or after it."""
        return np.isin(keys, self.hash[self.zone > BEFORE])

    def deleted_later(self, keys: Hashes, most: int) -> Mask:
        """Whether a delete of the key lies behind BEFORE, up to a zone."""
        later = (self.zone > BEFORE) & (self.zone <= most) & (self.raw == ABSENT)
        return np.isin(keys, self.hash[later])


def source_against_log(source: Columns, log: KeyHistory) -> SuspectKeys:
    """What the log tells otherwise than the source: keys that it lacks, should not have, or has otherwise."""
    keys, canon = source["hash"], source["canon"]
    place, known = log.find_newest(keys)
    there = known & (log.raw[place] != ABSENT)
    wrong = ~(there & (log.canon[place] == canon))
    around = log.zone == AROUND
    told = _mix(log.hash[around], log.canon[around])
    wrong[wrong] = ~np.isin(_mix(keys[wrong], canon[wrong]), told)
    problems = np.where(there[wrong], DIFFERENT, MISSING).astype(np.int8)
    extra = log.shown()
    extra = extra[~np.isin(extra, keys)]
    extra = extra[~log.deleted_later(extra, AROUND)]
    return _found(log, [(keys[wrong], problems), (extra, np.full(len(extra), EXTRA, np.int8))])


def items_against_log(items: Columns, log: KeyHistory, ends: Hashes, *, expires: bool = False) -> SuspectKeys:
    """What a follower that has applied everything before the position shows otherwise than its log.

    `ends`: for each partition the first version that the log has not come to by now. `expires`: what is absent is no
    difference.
    """
    keys, versions = items["hash"], items["version"]
    place, known = log.find(keys, versions)
    newest, must = log.find_newest(keys)
    last, told = log.find_last(keys)
    stale = must & (log.version[newest] > versions)
    ahead = versions >= np.where(told, ends[log.partition[last]], ends.max())
    # Somebody wrote the same document again, at a version of the store's own: harmless, as changes to come are newer.
    rewritten = ~known & told & (versions > log.version[last]) & _alike(items, log, last)
    wrong = stale | ahead | ~(rewritten | (known & _alike(items, log, place)))
    nothing = ~told | (log.raw[last] == ABSENT)
    problems = np.select([ahead, stale, nothing], [AHEAD, STALE, EXTRA], DIFFERENT).astype(np.int8)
    lacking = log.shown()
    lacking = lacking[:0] if expires else lacking[~np.isin(lacking, keys)]
    lacking = lacking[~log.deleted_later(lacking, AFTER)]
    return _found(log, [(keys[wrong], problems[wrong]), (lacking, np.full(len(lacking), MISSING, np.int8))])


def _found(log: KeyHistory, parts: list[tuple[Hashes, npt.NDArray[np.int8]]]) -> SuspectKeys:
    keys = np.concatenate([keys for keys, _ in parts])
    problems = np.concatenate([problems for _, problems in parts])
    return SuspectKeys(keys, problems, log.moving(keys))


def _alike(items: Columns, log: KeyHistory, place: npt.NDArray[np.int64]) -> Mask:
    """Whether an item is the document of the record at a place, by its text, or by its value where that is known."""
    by_text = items["raw"] == log.raw[place]
    by_value = (items["canon"] != ABSENT) & (items["canon"] == log.canon[place])
    return np.asarray((log.raw[place] != ABSENT) & (by_text | by_value))


def ends_of_runs(values: Hashes, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Of places that are in the order of their values, the last of each value."""
    some = values[places]
    return np.asarray(places[np.append(some[1:] != some[:-1], [True])[: len(places)]])


def _find(values: Hashes, places: npt.NDArray[np.int64], wanted: Hashes) -> tuple[npt.NDArray[np.int64], Mask]:
    """The place of each wanted value, among places in the order of their values; and whether it is there."""
    if not len(places):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(values[places], wanted), len(places) - 1)
    found = places[at]
    return found, values[found] == wanted


def _mix(keys: Hashes, other: Hashes) -> Hashes:
    """One number for each pair: that two pairs have the same is as unlikely as that two hashes are equal."""
    with np.errstate(over="ignore"):
        mixed = keys.astype(np.int64) * np.int64(-7046029254386353131) + other
        return mixed ^ (mixed >> np.int64(29))
