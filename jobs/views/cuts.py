"""Cuts: moments between two transactions of the source, by the ends of transactions that Debezium tells of.

One task writes in commit order. So when the end of a transaction has been read, every row of it, and of all before
it, has been written to Kafka; and a row's header says where the transaction before its own ended
(`prev_commit_lsn`). Rows for which that lies before the end that was read are of whole transactions; those at or behind
it are not, or not surely.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import TopicPartition

from driftless import names
from driftless.kafka.client import TAIL, Kafka, Offsets
from driftless.kafka.errors import unreadable
from driftless.marker import Marker

_BACK = 1_000
"""Offsets before the topic's end at which reading begins: a transaction's end is among them, also while the source is
away."""


@dataclass(frozen=True)
class Cut:
    """All transactions that ended at or before the marker's LSN, and no later one. Their rows lie before `ends`."""

    marker: Marker
    ends: Mapping[str, Offsets]


def cut_text(marker: Marker) -> str:
    """What a row store keeps of a cut."""
    return json.dumps([marker.lsn, marker.time])


def marker_of(text: str) -> Marker:
    return Marker(*json.loads(text))


class CutReader:
    """The newest cut of a pipeline over some of its topics. Not to be shared between threads.

    What a stream has computed is of no transaction of the source: whatever is committed of it belongs to the next cut.
    """

    def __init__(
        self, kafka: Kafka, pipeline: str, topics: Mapping[str, int], streams: Mapping[str, int] | None = None
    ) -> None:
        """`topics`: of tables, with how many partitions; `streams`: of streams."""
        self._kafka = kafka
        self._topics = topics
        self._streams = streams or {}
        self._last: Marker | None = None
        self._computed: Mapping[str, Offsets] = {}
        self._topic = names.transaction_topic(pipeline)
        self._consumer = kafka.consumer(**TAIL)
        first = kafka.beginnings(self._topic, 1)[0]
        begin = max(first, kafka.committed_ends(self._topic, 1)[0] - _BACK)
        self._consumer.assign([TopicPartition(self._topic, 0, begin)])

    def next(self, seconds: float, *, again: bool = False) -> Cut | None:
        """The newest cut, where there is one that was not given before; waits so long for the first. `again`: also with
        nothing new.
        """
        newest: Marker | None = None
        first = self._consumer.poll(seconds)
        messages = [] if first is None else [first]
        while messages:
            for message in messages:
                error = message.error()
                if error is None:
                    newest = transaction_end(message.value()) or newest
                elif not error.retriable():
                    raise unreadable(self._topic, error)
            messages = self._consumer.consume(1_000, 0)
        computed = self._kafka.all_committed_ends(self._streams) if self._streams else {}
        if newest is None and (self._last is None or (computed == self._computed and not again)):
            return None
        self._last, self._computed = newest or self._last, computed
        assert self._last is not None
        # Asked for after it was read, and without regard to Kafka's own transactions: the commit of the one that
        # brought the end may not have reached the other partitions yet.
        return Cut(self._last, {**self._kafka.written_ends(self._topics), **computed})

    def close(self) -> None:
        self._consumer.close()


def transaction_end(value: bytes | None) -> Marker | None:
    """Where a transaction ended; None for its beginning, and for what Debezium cannot have written."""
    try:
        record = json.loads(value or b"")
        if record["status"] != "END":
            return None
        tx, _, lsn = record["id"].rpartition(":")
        return Marker(int(lsn), int(record["ts_ms"]) / 1000) if tx.isdecimal() and lsn.isdecimal() else None
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        return None
