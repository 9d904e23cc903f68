"""Write what a follower should show, from its log, so that no newer write is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from driftless.errors import SinkError
from driftless.kafka.client import TIMEOUT, Kafka, produce
from driftless.kafka.errors import not_taken
from driftless.sink import WRITES
from driftless.verify.judge import AHEAD, EXTRA, ROWS
from driftless.verify.spool import hashes
from driftless.verify.stages import LogSpool
from driftless.verify.subject import UNREADABLE, Subject, Target, ViewBuilders
from driftless.version import make_version, split_version

_BATCH = 1_000
_SNAPSHOT_KEYS = 500


def mend(subject: Subject, target: Target, wrong: Mapping[str, int], log: LogSpool) -> int:
    """Give a store the newest document of each key, or a delete, at the last version before the log's end.

    That is newer than what the store can rightly have, and older than whatever comes: where a change has come meanwhile
    the store keeps that. May be repeated. A document whose version is beyond the log's end stays as it is, since
    nothing could be written over it. Returns how many the store has taken.
    """
    keys = [key for key, problem in wrong.items() if problem != AHEAD]
    newest = _newest(keys, log)
    documents = _documents(subject, newest)
    epoch, least = subject.log.newest.number, min(log.at.values())
    rows = []
    for key in keys:
        if key in newest and key not in documents:
            continue  # compacted away since: a newer one is on its way
        end = log.at[newest[key][0]] if key in newest else least
        if end > 0:
            rows.append({"key": key, "version": make_version(epoch, end - 1), "document": documents.get(key)})
    written = 0
    for start in range(0, len(rows), _BATCH):
        applied = target.sink.apply(
            target.generation, pa.RecordBatch.from_pylist(rows[start : start + _BATCH], schema=WRITES)
        )
        if applied.rejected:
            raise SinkError(
                f"{target.follower}: the store refuses a document that is to be mended: {applied.rejected[0].reason}",
                hint="make the store take it, by its mapping or its limits in sync.yaml; then run the command again",
            )
        written += applied.written
    return written


def mend_log(subject: Subject, wrong: Mapping[str, int], log: LogSpool, kafka: Kafka) -> None:
    """Have the source's rows of these keys written into a table's log again, after a delete of what has none.

    A row that comes into being meanwhile is read by that snapshot, so no delete is left over it. May be repeated.
    """
    assert subject.again is not None
    extra = [key for key, problem in wrong.items() if problem == EXTRA]
    producer = kafka.producer(**{"enable.idempotence": True})
    for partition, version in _newest(extra, log).values():
        _, offset = split_version(version)
        for message in kafka.read_between(subject.log.topic, {partition: offset}, {partition: offset + 1}):
            produce(producer, subject.log.topic, message.key() or b"", None, partition=partition)
    if producer.flush(TIMEOUT):
        raise not_taken(subject.log.topic, "deletes", TIMEOUT)
    keys = list(wrong)
    for start in range(0, len(keys), _SNAPSHOT_KEYS):
        subject.again(keys[start : start + _SNAPSHOT_KEYS])


def mend_view(builders: ViewBuilders, wrong: Mapping[str, int], *, refill: bool = False) -> None:
    """Have a view publish these documents again. May be repeated.

    `refill`: of rows that it reads from its tables' logs again, as it must where those that it keeps are wrong.
    """
    if refill or ROWS in wrong.values():
        builders.refill()
    else:
        builders.republish(list(wrong))


def _newest(keys: Sequence[str], log: LogSpool) -> dict[str, tuple[int, int]]:
    """Key -> partition and version of its newest record."""
    wanted = hashes(keys)
    named = dict(zip(wanted.tolist(), keys, strict=True))
    found: dict[str, tuple[int, int]] = {}
    columns = log.spool.load("hash", "version", "partition", only=wanted)
    for place in np.argsort(columns["version"]).tolist():
        key = named[int(columns["hash"][place])]
        found[key] = int(columns["partition"][place]), int(columns["version"][place])
    return found


def _documents(subject: Subject, newest: Mapping[str, tuple[int, int]]) -> dict[str, str | None]:
    """The documents of these very records, read from the log."""
    begin: dict[int, int] = {}
    end: dict[int, int] = {}
    for partition, version in newest.values():
        _, offset = split_version(version)
        begin[partition] = min(offset, begin.get(partition, offset))
        end[partition] = max(offset + 1, end.get(partition, 0))
    found: dict[str, str | None] = {}
    for table in subject.history.read(begin, end):
        rows = zip(*(table.column(name).to_pylist() for name in ("key", "version", "document")), strict=True)
        found.update({key: text for key, version, text in rows if newest.get(key, (0, -1))[1] == version})
    return {key: text for key, text in found.items() if text is None or not text.startswith(UNREADABLE)}
