"""Prove one subject: take a position of the source, read every stage, judge, and look again at what did not agree."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from driftless.errors import NoDocument, SinkUnavailable
from driftless.kafka.client import Kafka, Offsets
from driftless.verify import boundary, judge
from driftless.verify.beyond import Beyond
from driftless.verify.judge import SuspectKeys
from driftless.verify.mend import mend, mend_log, mend_view
from driftless.verify.position_waiter import PositionWaiter
from driftless.verify.spool import Hashes, Spool, hashes
from driftless.verify.stages import LogSpool, read_items, read_source
from driftless.verify.steps import RateLimiter, Step
from driftless.verify.subject import Source, Subject, Target
from driftless.version import MAX_OFFSET, make_version

ROUNDS = 6
"""Cuts that are taken at the most: the first of all keys, the others of those that did not agree."""
PART_ROWS = 1_000_000
"""Rows that are judged at a time, by their hashes: bounds the memory that it takes."""
MOST_AGAIN = 200_000
"""Keys of a stage that are looked at again. Beyond, a stage is not wrong by chance."""
SCANS = 3
_FIRST_KEYS, _READ_KEYS, _READ_BYTES = 50, 1_000, 8 << 20
"""Documents of a follower that are read at a time: the first, the most, and how many bytes they may have."""
LOG = ""
"""The scope of what is wrong in the log; a follower's name is that of what is wrong there alone."""


@dataclass
class Verdict:
    """What was found of a subject. `wrong`: scope -> key -> problem, of judge.py; `more`: how many of each problem
    beyond those that are named. `unproven`: keys that changed at every cut, so that nothing is said of them.
    `beyond`: keys of documents that the source cannot show, with the place of the value that is to blame.
    `mended`: what was wrong and is no more. `values`: of some keys, whose document is which, where that was asked.
    """

    lsn: int = 0
    source_documents: int = 0
    documents: dict[str, int] = field(default_factory=dict)
    wrong: dict[str, dict[str, int]] = field(default_factory=dict)
    more: dict[str, Counter[int]] = field(default_factory=dict)
    unproven: set[str] = field(default_factory=set)
    beyond: dict[str, str] = field(default_factory=dict)
    mended: dict[str, dict[str, int]] = field(default_factory=dict)
    values: dict[str, dict[str, str]] = field(default_factory=dict)
    cuts: int = 0


@dataclass(frozen=True)
class VerifyContext:
    """What proving needs beside the subject. `folder`: for what is read; removed by whoever made it."""

    kafka: Kafka
    source: Source
    reached: PositionWaiter
    folder: Path
    source_rate: float
    follower_rate: float
    report: Callable[[str], None]
    steps: list[Step]


class NoTargetsLeft(Exception):
    """None of the followers can be compared; each knows why."""


@dataclass
class _Cut:
    """What the source shows at a position; the first record of each partition that it may lack there, and the first
    that it surely lacks.
    """

    lo: Offsets
    hi: Offsets
    source: Spool


class Proof:
    """One subject. Nothing is held: neither a lock at the source, nor a follower.

    A cut begins with the ends of the log: what lies before them was committed before the position that is taken then.
    A marker is written; once that is in Kafka, all that was committed at the position lies before the log's ends. What
    lies between is told apart by boundary.py, and what follows from that is in judge.py.
    """

    def __init__(self, subject: Subject, means: VerifyContext) -> None:
        self._subject = subject
        self._means = means
        self._source = subject.source or means.source
        self._verdict = Verdict()
        self._held = frozenset[str]()
        self._log = LogSpool(subject, means.kafka, self._path("log"), self._step("log"))

    def run(self) -> Verdict:
        """Cut after cut, each of what did not agree at the last. What still does not, and rests, is wrong."""
        suspects: dict[str, dict[str, int]] = {}
        try:
            suspects = self._first()
            while suspects and self._verdict.cuts < ROUNDS:
                suspects = self._again(suspects)
        except NoTargetsLeft:
            return self._verdict
        for scope, keys in suspects.items():
            for key, problem in keys.items():
                if scope == LOG and self._subject.skips:
                    self._verdict.unproven.add(key)
                else:
                    self._verdict.wrong.setdefault(scope, {})[key] = problem
        if self._subject.builders is not None:
            for key in self._subject.builders.audit():
                self._verdict.wrong.setdefault(LOG, {}).setdefault(key, judge.ROWS)
        return self._verdict

    def mend(self) -> None:
        """Have written again what is wrong in the log, then from the log what is wrong in followers; and look again."""
        subject = self._subject
        if subject.again is not None:
            self._mend(LOG, lambda wrong: mend_log(subject, wrong, self._log, self._means.kafka))
        if subject.builders is not None:
            self._mend(LOG, partial(mend_view, subject.builders))
            self._mend(LOG, partial(mend_view, subject.builders, refill=True))
        for target in subject.targets:
            if not target.trouble:
                self._mend(target.follower, partial(self._mend_follower, target))

    def collect_samples(self, most: int) -> None:
        """Take the documents of some keys that are wrong into the verdict, as they are now, to be shown."""
        subject, values = self._subject, self._verdict.values
        wrong = {scope: sorted(keys)[:most] for scope, keys in self._verdict.wrong.items() if keys}
        keys = list(dict.fromkeys(key for some in wrong.values() for key in some))
        if not keys:
            return
        with self._source.moment(self._means.report) as moment, suppress(NoDocument):
            for page in moment.documents(subject.careful or subject.statement, keys, aside=True):
                for key, text in page:
                    values.setdefault(key, {})["source"] = Beyond(moment).look(key, text)
        for target in subject.targets:
            shown = [] if target.trouble else wrong.get(LOG, []) + wrong.get(target.follower, [])
            for row in target.sink.read(target.generation, shown).to_pylist() if shown else []:
                values.setdefault(row["key"], {})[target.follower] = row["document"]

    def _mend_follower(self, target: Target, wrong: Mapping[str, int]) -> None:
        self._log.read_on()
        mend(self._subject, target, wrong, self._log)

    def _mend(self, scope: str, write: Callable[[Mapping[str, int]], object]) -> None:
        verdict = self._verdict
        wrong = verdict.wrong.pop(scope, {})
        if not wrong:
            return
        write(wrong)
        left, most = {scope: dict(wrong)}, verdict.cuts + ROUNDS
        with suppress(NoTargetsLeft):
            while left and verdict.cuts < most:
                left = self._again(left)
        still = verdict.wrong.get(scope, {}) | left.get(scope, {})
        verdict.wrong[scope] = still
        mended = {key: problem for key, problem in wrong.items() if key not in still}
        verdict.mended.setdefault(scope, {}).update(mended)

    # -- the first cut, of all keys -----------------------------------------------------------------------------

    def _first(self) -> dict[str, dict[str, int]]:
        verdict, targets = self._verdict, self._subject.targets
        ended = threading.Event()
        scans: dict[str, Future[Spool]] = {}
        with _beside(len(targets)) as pool:

            def begin() -> None:
                """At once, and beside the source and the log: each of them waits for a server most of the time."""
                scans.update({t.follower: pool.submit(self._scan, t, ended) for t in targets if not t.trouble})

            try:
                cut = self._cut(None, begin)
                items = {name: scan.result() for name, scan in scans.items()}
            finally:
                ended.set()
        self._read_to_the_end()
        for spool in items.values():
            spool.rename(self._log.aliases)
        verdict.source_documents = cut.source.rows
        verdict.documents = dict.fromkeys(items, 0)
        found: dict[str, list[SuspectKeys]] = {LOG: [], **{name: [] for name in items}}
        parts = 1 + max(spool.rows for spool in (self._log.spool, cut.source, *items.values())) // PART_ROWS
        for part in range(parts):
            log = self._history(cut, part=part, parts=parts)
            source = cut.source.load("hash", "canon", part=part, parts=parts)
            found[LOG].append(self._judge_log(source, log))
            for target in targets:
                if target.follower in items:
                    columns = _newest(items[target.follower].load("hash", *_ITEM, part=part, parts=parts))
                    verdict.documents[target.follower] += len(columns["hash"])
                    found[target.follower].append(self._judge(target, columns, log))
        return {
            scope: named
            for scope, some in found.items()
            if (named := self._named(scope, some, [*items.values(), cut.source, self._log.spool]))
        }

    def _scan(self, target: Target, ended: threading.Event) -> Spool:
        """Everything that a follower shows, from the beginning again where it is switched meanwhile."""
        for attempt in range(SCANS):
            step = self._step(target.follower)
            path = self._path(f"{target.follower}-{attempt}")
            try:
                step.total = target.sink.count(target.generation)
                batches = takewhile(lambda _: not ended.is_set(), target.sink.scan(target.generation))
                return self._read(target, batches, path, step, by_value=False)
            except SinkUnavailable:
                self._means.steps.remove(step)
                if attempt == SCANS - 1:
                    raise
        raise AssertionError

    def _named(self, scope: str, some: list[SuspectKeys], spools: list[Spool]) -> dict[str, int]:
        """Keys by name, of the last spool that tells it; those beyond what is looked at again are counted at once."""
        keys = np.concatenate([found.keys for found in some])
        problems = np.concatenate([found.problems for found in some])
        if len(keys) > MOST_AGAIN:
            self._verdict.more[scope] = Counter(problems[MOST_AGAIN:].tolist())
            keys, problems = keys[:MOST_AGAIN], problems[:MOST_AGAIN]
        if not len(keys):
            return {}
        named: dict[int, str] = {}
        for spool in spools:
            named |= spool.keys(keys)
        return {named[key]: problem for key, problem in zip(keys.tolist(), problems.tolist(), strict=True)}

    # -- the others, of what did not agree ----------------------------------------------------------------------

    def _again(self, suspects: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
        """What is wrong for good goes into the verdict; what has changed again meanwhile is given back."""
        every = list(dict.fromkeys(key for keys in suspects.values() for key in keys))
        cut = self._cut(every)
        items: dict[str, Spool] = {}
        for target in self._subject.targets:
            keys = suspects.get(target.follower)
            if keys and not target.trouble:
                for key in self._nameless(target, keys):
                    self._verdict.wrong.setdefault(target.follower, {})[key] = keys.pop(key)
                items[target.follower] = self._read_again(target, list(keys))
        self._read_to_the_end()
        left: dict[str, dict[str, int]] = {}
        for scope, keys in suspects.items():
            chosen = hashes(list(keys))
            log = self._history(cut, only=chosen)
            if scope == LOG:
                found = self._judge_log(cut.source.load("hash", "canon", only=chosen), log)
            elif scope in items:
                target = next(target for target in self._subject.targets if target.follower == scope)
                found = self._judge(target, _newest(items[scope].load("hash", *_ITEM)), log)
            else:
                continue  # it has stopped, and is told of as that
            named = dict(zip(chosen.tolist(), keys, strict=True))
            for key, problem, moving in zip(found.keys.tolist(), found.problems.tolist(), found.moving, strict=True):
                into = left if moving else self._verdict.wrong
                into.setdefault(scope, {})[named[key]] = problem
        return left

    def _nameless(self, target: Target, keys: Iterable[str]) -> list[str]:
        """What a scan gave that is no key's, so that it cannot be asked for."""
        names = list(keys)
        held = target.sink.scan_keys(pa.array(names, pa.string())).to_pylist()
        aliases = self._log.aliases
        return [name for name, there in zip(names, held, strict=True) if name != there and there not in aliases]

    def _read_again(self, target: Target, keys: Sequence[str]) -> Spool:
        def batches() -> Iterator[pa.RecordBatch]:
            start, most = 0, _FIRST_KEYS
            while start < len(keys):
                found = target.sink.read(target.generation, keys[start : start + most])
                yield found
                start += most
                most = max(1, min(_READ_KEYS, _READ_BYTES * most // max(1, found.nbytes)))

        path = self._path(f"{target.follower}-again")
        return self._read(target, batches(), path, self._step(f"{target.follower}: again", len(keys)), by_value=True)

    # -- what both have in common -------------------------------------------------------------------------------

    def _cut(self, keys: Sequence[str] | None, reached: Callable[[], None] = lambda: None) -> _Cut:
        """Of these keys, or of all. `reached`: called as soon as the followers have applied the position."""
        subject, means, log = self._subject, self._means, self._subject.log
        self._verdict.cuts += 1
        topics = {log.topic: log.partitions, **subject.beside}
        lo = means.kafka.written_ends(topics)
        with self._source.moment(means.report) as moment, _beside() as pool:
            self._verdict.lsn = self._verdict.lsn or moment.lsn
            marker = self._source.mark()
            if keys is None:
                step = self._step("source", moment.count(subject.statement))
            else:
                step = self._step("source, again", len(keys))
            pace = RateLimiter(means.source_rate)
            reading = pool.submit(read_source, subject, moment, self._path("source"), pace, step, keys)
            means.reached.in_kafka(marker)
            if subject.skips:
                self._await(marker)
            hi = {topic: means.kafka.decided_ends(topic, partitions) for topic, partitions in topics.items()}
            self._await(marker)
            reached()
            first, last = lo[log.topic], hi[log.topic]
            if subject.beside:
                first, last = boundary.find(means.kafka, log.topic, moment.lsn, lo, hi)
            self._log.read_on()
            source, beyond = reading.result()
            self._verdict.beyond |= beyond
        return _Cut(first, last, source)

    def _read_to_the_end(self) -> None:
        """Whatever the followers' documents were made of is known then, and what of it their stores refused."""
        self._log.read_on()
        self._held |= self._subject.quarantined()
        for target in self._subject.targets:
            target.held |= target.quarantined() | self._held

    def _await(self, marker: int) -> None:
        subject = self._subject
        self._means.reached.by_followers(subject.targets, marker, subject.superseded)
        if subject.targets and all(target.trouble for target in subject.targets):
            raise NoTargetsLeft

    def _read(
        self, target: Target, batches: Iterator[pa.RecordBatch], path: Path, step: Step, *, by_value: bool
    ) -> Spool:
        pace = RateLimiter(self._means.follower_rate)
        return read_items(target, batches, path, pace, step, by_value=by_value)

    def _history(self, cut: _Cut, only: Hashes | None = None, part: int = 0, parts: int = 1) -> judge.KeyHistory:
        columns = self._log.spool.load("hash", *_RECORD, only=only, part=part, parts=parts)
        return judge.KeyHistory(columns, judge.zones(columns, cut.lo, cut.hi, MAX_OFFSET))

    def _judge_log(self, source: dict[str, Any], log: judge.KeyHistory) -> SuspectKeys:
        """What the source cannot show proves nothing; of what the log cannot tell, the followers' quarantine does."""
        found = judge.source_against_log(source, log)
        return self._without_held(found, self._held | {*self._verdict.beyond, *self._log.unreadable})

    def _judge(self, target: Target, items: dict[str, Any], log: judge.KeyHistory) -> SuspectKeys:
        epoch = self._subject.log.newest.number
        ends = np.array([make_version(epoch, self._log.at[p]) for p in sorted(self._log.at)], np.int64)
        found = judge.items_against_log(items, log, ends, expires=target.expires)
        return self._without_held(found, target.held)

    @staticmethod
    def _without_held(found: SuspectKeys, held: frozenset[str]) -> SuspectKeys:
        return found.without(hashes(sorted(held))) if held else found

    def _step(self, what: str, total: int = 0) -> Step:
        step = Step(f"{self._subject.name}: {what}", total)
        self._means.steps.append(step)
        return step

    def _path(self, name: str) -> Path:
        return self._means.folder / f"{self._subject.name}-{self._verdict.cuts}-{name}".replace("/", "%")


@contextmanager
def _beside(threads: int = 1) -> Iterator[ThreadPoolExecutor]:
    """Threads that are not waited for where the block ends by an error: what they read from ends then."""
    pool = ThreadPoolExecutor(max(1, threads), "beside")
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


_RECORD = ("canon", "raw", "version", "partition")
_ITEM = ("canon", "raw", "version")


def _newest(items: dict[str, Any]) -> dict[str, Any]:
    """Each key once: a scan may give a document twice."""
    order = np.lexsort((items["version"], items["hash"]))
    kept = judge.ends_of_runs(items["hash"], order)
    return {name: column[kept] for name, column in items.items()}
