"""Records of a table's topic by Arrow: their values, keys and versions, where all of them are of the plainest kind.

What a record is, Spark's expressions say (jobs/decode/records.py). They cost a JVM that has just started 35 µs a record
and a warm one 15, and Arrow's reader of JSON 1 (docs/benchmarks.md). What is unusual, a mistake for one, is not judged
here: nothing of such records is taken, and they are decoded again by the expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from driftless.facts.epochs import TopicLog
from driftless.table import Table
from driftless.version import OFFSET_BITS
from jobs.decode.arrow_values import Form, UnusualError, Values, parsed
from jobs.decode.values import member

# Its stubs know fewer arguments than the functions take.
pc: Any = pyarrow.compute


@dataclass(frozen=True)
class ParsedRecords:
    """`columns`: values as they are in the log, null for all of a record that is `gone`, a delete. `keys`: as texts."""

    columns: dict[str, Values]
    keys: Values
    versions: Values
    gone: Values


class RecordParser:
    """Of one table. Has no state, so any thread may use it."""

    def __init__(
        self,
        table: Table,
        log: TopicLog,
        forms: Mapping[str, Form],
        keys: Mapping[str, Form],
        unavailable: str,
        since: Mapping[str, int],
    ) -> None:
        """`forms`: of the columns that are wanted. `keys`: of the key's, in its order. `unavailable` and `since`: as of
        `writes_sql`.
        """
        self._log = log
        self._forms = forms
        self._keys = keys
        self._since = {name: known for name, known in since.items() if name in forms}
        lacking = bool(unavailable) and table.needs_full_identity
        self._unavailable = (unavailable, unavailable.encode().hex()) if lacking else ()

    @property
    def headers(self) -> bool:
        """Whether it looks at the headers of records."""
        return any(self._since.values())

    def parse(self, records: pa.RecordBatch) -> ParsedRecords:
        """Records are given as the Kafka source's columns. Raises UnusualError and pa.ArrowException."""
        values = records["value"].cast(pa.string())  # looks whether it is UTF-8
        for text in self._unavailable:
            if pc.any(pc.match_substring(values, text)).as_py():
                raise UnusualError
        columns = parsed(values.fill_null("{}"), self._forms)
        for name, known in self._since.items():
            _check_present(name, known, columns[name], values, records)
        return ParsedRecords(
            columns,
            self._key_texts(records["key"].cast(pa.string())),
            versions(self._log, records["partition"].to_numpy(), records["offset"].to_numpy()),
            values.is_null(),
        )

    def _key_texts(self, keys: Values) -> Values:
        """As `key_sql` does: the one value's text, or several values as an array."""
        found = parsed(keys, self._keys)
        texts = {name: form.text(found[name]) for name, form in self._keys.items()}
        if any(text.null_count for text in texts.values()):
            raise UnusualError
        if len(texts) == 1:
            return next(iter(texts.values()))
        parts = [self._keys[name].as_json(text) for name, text in texts.items()]
        return pc.binary_join_element_wise("[", pc.binary_join_element_wise(*parts, ","), "]", "")


def rows_of(records: pa.Table, make: Callable[[pa.RecordBatch], pa.RecordBatch], schema: pa.Schema) -> pa.Table | None:
    """What `make` gives for each batch; None where it raises UnusualError for one, or Arrow an error of its own."""
    try:
        return pa.Table.from_batches([make(batch) for batch in records.to_batches() if batch.num_rows], schema)
    except (UnusualError, pa.ArrowException):
        return None


def versions(log: TopicLog, partitions: Any, offsets: Any) -> Values:
    """As `version_sql` does, of numpy's arrays."""
    epochs = np.full(len(offsets), log.newest.number)
    for number, ends in reversed(log.ends):
        epochs[offsets < np.array([ends.get(p, 0) for p in range(log.partitions)])[partitions]] = number
    return pa.array(epochs << OFFSET_BITS | offsets)


def header(headers: Values, name: str) -> Values:
    """The header of that name of each record; null where there is none. Raises UnusualError where there are two."""
    of, one = pc.list_parent_indices(headers), headers.flatten()
    named = pc.equal(one.field("key"), name)
    rows, values = of.filter(named).to_numpy(), one.field("value").filter(named)
    if (np.diff(rows) == 0).any():
        raise UnusualError
    places = np.full(len(headers), -1)
    places[rows] = np.arange(len(rows))
    return values.take(pa.array(places, mask=places < 0))


def _check_present(name: str, known: int, cells: Values, values: Values, records: pa.RecordBatch) -> None:
    """As `faults_sql` does."""
    if cells.null_count == values.null_count:  # of deletes alone
        return
    nulls = pc.and_(cells.is_null(), values.is_valid())
    absent = pc.and_(nulls, pc.invert(pc.fill_null(pc.match_substring(values, member(name)), True)))
    if known and pc.any(absent).as_py():
        changed = pc.fill_null(header(records["headers"], "lsn").cast(pa.string()).cast(pa.int64()), 0)
        absent = pc.and_(absent, pc.greater(changed, known))
    if pc.any(absent).as_py():
        raise UnusualError
