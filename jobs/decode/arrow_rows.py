"""Rows of a table's topic for a row store, decoded by Arrow: see jobs/decode/rows.py for what they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute

from driftless.facts.epochs import TopicLog
from driftless.table import Table
from jobs.decode.arrow_records import RecordParser, header, rows_of
from jobs.decode.arrow_values import Form, UnusualError, Values, forms_of
from jobs.decode.rows import FIXED, is_plain

# Its stubs know fewer arguments than the functions take.
pc: Any = pyarrow.compute

LARGE = 2_048
"""Bytes of a value. What is larger is decoded in the JVM, which gives the wanted columns alone: with those that nobody
wants, a slice of such records would fill the memory."""

_SEQUENCE = r'^\["(?P<ended>\d{1,18})","'
"""Of a record's header: where in the source's log the transaction before its own ended, and where it is itself."""
_NONE_ENDED = "[null,"

_KINDS: tuple[pa.DataType, ...] = (pa.int32(), pa.int64(), pa.string(), pa.int64(), pa.int64(), pa.bool_())
"""Of FIXED."""


def plain_rows(
    table: Table, log: TopicLog, unavailable: str, since: Mapping[str, int] | None = None
) -> PlainRows | None:
    """None where a column is of a type that only Spark's expressions decode. What else is given is as of `rows_sql`."""
    forms = forms_of({column.name: column for column in table.columns})
    return None if forms is None else PlainRows(table, log, forms, unavailable, since or {})


class PlainRows:
    """The rows of one table. Has no state, so any thread may use it."""

    headers = True

    def __init__(
        self, table: Table, log: TopicLog, forms: dict[str, Form], unavailable: str, since: Mapping[str, int]
    ) -> None:
        self._forms = forms
        self._texts = frozenset(column.name for column in table.columns if is_plain(column))
        keys = {name: forms[name] for name in table.key}
        self._parser = RecordParser(table, log, forms, keys, unavailable, since)
        cells = [(f"c{number}", pa.string()) for number in range(len(forms))]
        self.schema = pa.schema([*zip(FIXED, _KINDS, strict=True), *cells])

    def rows(self, records: pa.Table) -> pa.Table | None:
        """What `rows_sql` makes of records, given as the Kafka source's columns; None where one of them is unusual."""
        return rows_of(records, self._batch, self.schema)

    def _batch(self, records: pa.RecordBatch) -> pa.RecordBatch:
        if (pc.max(pc.binary_length(records["value"])).as_py() or 0) > LARGE:
            raise UnusualError
        found = self._parser.parse(records)
        fixed = {
            "partition": records["partition"],
            "offset": records["offset"],
            "key": found.keys,
            "version": found.versions,
            "prev_commit_lsn": _prev_commit_lsns(records["headers"]),
            "gone": found.gone,
        }
        cells = [self._cell(name, form, found.columns[name]) for name, form in self._forms.items()]
        return pa.RecordBatch.from_arrays([*(fixed[name] for name in FIXED), *cells], schema=self.schema)

    def _cell(self, name: str, form: Form, values: Values) -> Values:
        text = form.text(values)
        return text if name in self._texts else form.as_json(text)


def _prev_commit_lsns(headers: Values) -> Values:
    """As `rows_sql` does."""
    read = pc.fill_null(pc.equal(header(headers, "op"), b"r"), False)
    if pc.all(read).as_py():
        return pa.repeat(-1, len(read))
    sequences = header(headers, "seq").cast(pa.string())
    ended = pc.struct_field(pc.extract_regex(sequences, _SEQUENCE), "ended").cast(pa.int64())
    known = pc.or_(pc.or_(read, ended.is_valid()), pc.fill_null(pc.starts_with(sequences, _NONE_ENDED), True))
    if not pc.all(known).as_py():
        raise UnusualError
    return pc.if_else(read, -1, ended.fill_null(0))
