"""Writes of a view's log, by Arrow: its records are documents already."""

from __future__ import annotations

import pyarrow as pa

from driftless.facts.epochs import TopicLog
from jobs.decode.arrow_documents import PLACED_WRITES
from jobs.decode.arrow_records import versions


class DocumentRows:
    """What `documents_sql` says, of records whose bytes are text. Others are left to Spark, which takes any bytes.

    Has no state, so any thread may use it.
    """

    headers = False
    schema = PLACED_WRITES

    def __init__(self, log: TopicLog) -> None:
        self._log = log

    def rows(self, records: pa.Table) -> pa.Table | None:
        try:
            keys, documents = records["key"].cast(pa.string()), records["value"].cast(pa.string())
        except pa.ArrowInvalid:
            return None
        partitions, offsets = records["partition"], records["offset"]
        made = versions(self._log, partitions.to_numpy(), offsets.to_numpy())
        return pa.table([keys, made, documents, partitions, offsets], schema=self.schema)
