"""Writes of a view's log, by Arrow: its records are documents already."""

from __future__ import annotations

import pyarrow as pa

from driftless.facts.epochs import TopicLog
from driftless.sink import WRITES
from jobs.decode.arrow_rows import versions


class DocumentRows:
    """What `documents_sql` says, of records whose bytes are text. Others are left to Spark, which takes any bytes.

    Has no state, so any thread may use it. `partition` and `offset` stand after the columns of WRITES.
    """

    headers = False
    schema = pa.schema([*WRITES, pa.field("partition", pa.int32()), pa.field("offset", pa.int64())])

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
