"""Documents of a table's topic, decoded by Arrow: see jobs/decode/documents.py for what they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute

from driftless.facts.epochs import TopicLog
from driftless.sink import WRITES
from driftless.table import Table
from jobs.decode.arrow_records import ParsedRecords, RecordParser, rows_of
from jobs.decode.arrow_values import ESCAPES, Form, Values, forms_of
from jobs.decode.values import column_of

# Its stubs know fewer arguments than the functions take.
pc: Any = pyarrow.compute

PLACED_WRITES = pa.schema([*WRITES, pa.field("partition", pa.int32()), pa.field("offset", pa.int64())])
"""Writes, and where the records that they were are."""


def plain_documents(
    table: Table,
    fields: Mapping[str, str],
    log: TopicLog,
    *,
    unavailable: str = "",
    since: Mapping[str, int] | None = None,
) -> PlainDocuments | None:
    """None where a column is of a type that only Spark's expressions decode. What is given is as of `writes_sql`."""
    forms = forms_of({name: column_of(table, name) for name in fields.values()})
    keys = forms_of({name: column_of(table, name) for name in table.key})
    if forms is None or keys is None:
        return None
    return PlainDocuments(fields, forms, RecordParser(table, log, forms, keys, unavailable, since or {}))


class PlainDocuments:
    """What `writes_sql` says, without a `where`. Has no state, so any thread may use it."""

    schema = PLACED_WRITES

    def __init__(self, fields: Mapping[str, str], forms: Mapping[str, Form], parser: RecordParser) -> None:
        # `writes_sql` puts what is JSON text first, and then what `to_json` writes.
        self._fields = sorted(fields.items(), key=lambda field: not forms[field[1]].finished)
        self._forms = forms
        self._parser = parser

    @property
    def headers(self) -> bool:
        return self._parser.headers

    def rows(self, records: pa.Table) -> pa.Table | None:
        return rows_of(records, self._batch, self.schema)

    def _batch(self, records: pa.RecordBatch) -> pa.RecordBatch:
        found = self._parser.parse(records)
        columns = [found.keys, found.versions, self._documents(found), records["partition"], records["offset"]]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _documents(self, found: ParsedRecords) -> Values:
        parts, before = list[Any](), "{"
        for name, column in self._fields:
            form, values = self._forms[column], found.columns[column]
            parts += [f"{before}{_string(name)}:", form.as_json(form.text(values)).fill_null("null")]
            before = ","
        documents = pc.binary_join_element_wise(*parts, "}", "")
        return pc.if_else(found.gone, pa.scalar(None, pa.string()), documents)


def _string(name: str) -> str:
    """A name as JSON, as Spark writes it."""
    escaped = "".join(ESCAPES.get(character, character) for character in name.replace("\\", "\\\\"))
    return f'"{escaped}"'
