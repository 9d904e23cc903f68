"""Rows of a table's topic, decoded by Arrow from what Spark reads, where all of a slice is of the plainest kind.

What a row is, Spark's expressions say (jobs/rows.py). They cost a JVM that has just started 35 µs a record and a warm
one 15, where merely reading costs 18 and 8, and Arrow's reader of JSON 1 (docs/benchmarks.md). So large slices of
tables of common types are decoded here, into the same rows. What is unusual in them, a mistake for one, is not judged
here: nothing of such a slice is taken, and it is read again with the expressions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.json

from driftless.table import Column, Table
from driftless.types import rule_of
from jobs.decode import DAYS, MICROS, Scale
from jobs.rows import FIXED, is_plain

# Their stubs know fewer arguments than the functions take.
pc: Any = pyarrow.compute
read_json: Any = pyarrow.json.read_json

_ESCAPED = r'["\\\x00-\x1f\x7f]'
"""What JSON has more than one spelling of."""
_ZONED = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"

_KINDS: tuple[pa.DataType, ...] = (pa.int32(), pa.int64(), pa.string(), pa.int64(), pa.int64(), pa.bool_())
"""Of FIXED."""
_Values = Any
"""An Arrow array."""


class _UnusualError(Exception):
    """A value that need not be the same here as by Spark's expressions."""


@dataclass(frozen=True)
class _Form:
    """`kind`: Arrow's type for the JSON in the log. `text`: of values of that type, as a document shows them.

    `json`: the text is JSON as it stands; otherwise it is JSON with quotation marks around it.
    """

    kind: pa.DataType
    text: Callable[[_Values], _Values]
    json: bool = False

    def as_json(self, texts: _Values) -> _Values:
        return texts if self.json else _quoted(texts)


def plain_rows(table: Table, unavailable: str) -> PlainRows | None:
    """None where a column is of a type that only Spark's expressions decode. `unavailable`: as of `rows_sql`."""
    forms = {column.name: form for column in table.columns if (form := _form(column)) is not None}
    return PlainRows(table, forms, unavailable) if len(forms) == len(table.columns) else None


class PlainRows:
    """The rows of one table. Has no state, so any thread may use it."""

    def __init__(self, table: Table, forms: dict[str, _Form], unavailable: str) -> None:
        self._forms = forms
        self._texts = frozenset(column.name for column in table.columns if is_plain(column))
        self._key = {name: forms[name] for name in table.key}
        self._unavailable = unavailable if table.needs_full_identity else ""
        cells = [(f"c{number}", pa.string()) for number in range(len(forms))]
        self._schema = pa.schema([*zip(FIXED, _KINDS, strict=True), *cells])

    def rows(self, records: pa.Table) -> pa.Table | None:
        """What `rows_sql` makes of the records that `records_sql` gives; None where one of them is unusual."""
        try:
            batches = [self._batch(batch) for batch in records.to_batches() if batch.num_rows]
            return pa.Table.from_batches(batches, self._schema)
        except (_UnusualError, pa.ArrowException):
            return None

    def _batch(self, records: pa.RecordBatch) -> pa.RecordBatch:
        values, gone = records["value"].cast(pa.string()), records["gone"]  # the cast looks whether it is UTF-8
        if pc.any(pc.and_(values.is_null(), pc.invert(gone))).as_py():  # a large one
            raise _UnusualError
        if self._unavailable and pc.any(pc.match_substring(values, self._unavailable)).as_py():
            raise _UnusualError
        rows = _parsed(values.fill_null("{}"), self._forms)
        cells = [self._cell(name, form, rows[name]) for name, form in self._forms.items()]
        keys = self._keys(records["key"].cast(pa.string()))
        fixed = [keys if name == "key" else records[name] for name in FIXED]
        return pa.RecordBatch.from_arrays([*fixed, *cells], schema=self._schema)

    def _cell(self, name: str, form: _Form, values: _Values) -> _Values:
        text = form.text(values)
        return text if name in self._texts else form.as_json(text)

    def _keys(self, keys: _Values) -> _Values:
        """As `key_sql` does: the one value's text, or several values as an array."""
        rows = _parsed(keys, self._key)
        texts = {name: form.text(rows[name]) for name, form in self._key.items()}
        if any(text.null_count for text in texts.values()):
            raise _UnusualError
        if len(texts) == 1:
            return next(iter(texts.values()))
        parts = [self._key[name].as_json(text) for name, text in texts.items()]
        return pc.binary_join_element_wise("[", pc.binary_join_element_wise(*parts, ","), "]", "")


def _parsed(texts: _Values, forms: dict[str, _Form]) -> dict[str, _Values]:
    """The members of one JSON object each.

    Each is put into another object, on a line of its own: what is more, or less, or another thing than one object is
    then no JSON, and Arrow does not take a null between two lines for a row, which ends the process.
    """
    lines = pc.binary_join_element_wise('{"r":', texts, "}\n", "")
    if lines.null_count:
        raise _UnusualError
    data = lines.buffers()[2].slice(0, pc.sum(pc.binary_length(lines)).as_py())
    row = pa.struct([(name, form.kind) for name, form in forms.items()])
    found = read_json(
        pa.BufferReader(data),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=data.size),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([("r", row)]), unexpected_field_behavior="ignore"
        ),
    )
    if found.num_rows != len(texts) or found["r"].null_count:
        raise _UnusualError
    return dict(zip(forms, found["r"].combine_chunks().flatten(), strict=True))


def _quoted(texts: _Values) -> _Values:
    if pc.any(pc.match_substring_regex(texts, _ESCAPED)).as_py():
        raise _UnusualError
    return pc.binary_join_element_wise('"', texts, '"', "")


# -- the forms, which are some of those in driftless/types.py ----------------------------------------------------------


def _same(texts: _Values) -> _Values:
    return texts


def _as_text(values: _Values) -> _Values:
    return values.cast(pa.string())


def _finite(numbers: _Values) -> _Values:
    if pc.any(pc.match_substring_regex(numbers, "^[^-0-9]|^$")).as_py():
        raise _UnusualError
    return numbers


def _on_one_line(texts: _Values) -> _Values:
    return pc.replace_substring_regex(texts, "[\n\r]", " ")


def _timestamps(micros: _Values) -> _Values:
    _check_common_era(micros, MICROS)
    text = pc.replace_substring(micros.cast(pa.timestamp("us")).cast(pa.string()), " ", "T")
    return _without_zeros(text)


def _dates(days: _Values) -> _Values:
    _check_common_era(days, DAYS)
    return days.cast(pa.int32()).cast(pa.date32()).cast(pa.string())


def _zoned(texts: _Values) -> _Values:
    plain = pc.match_substring_regex(texts, _ZONED)
    if pc.any(pc.or_(pc.invert(plain), pc.starts_with(texts, "0000"))).as_py():
        raise _UnusualError
    bare = pc.utf8_rtrim(texts, "Z")
    bare = pc.if_else(pc.match_substring(bare, "."), _without_zeros(bare), bare)
    return pc.binary_join_element_wise(bare, "+00:00", "")


def _without_zeros(texts: _Values) -> _Values:
    """Of numbers that have a point."""
    return pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")


def _check_common_era(values: _Values, scale: Scale) -> None:
    span = pc.min_max(values)
    lowest, highest = span["min"].as_py(), span["max"].as_py()
    if lowest is not None and (lowest < scale.year_1 or highest >= scale.year_10000):
        raise _UnusualError


_FORMS = {
    ("bigint", "same"): _Form(pa.int64(), _as_text, json=True),
    ("boolean", "same"): _Form(pa.bool_(), _as_text, json=True),
    ("string", "same"): _Form(pa.string(), _same),
    ("string", "numeric"): _Form(pa.string(), _finite, json=True),
    ("string", "json"): _Form(pa.string(), _on_one_line, json=True),
    ("bigint", "timestamp"): _Form(pa.int64(), _timestamps),
    ("bigint", "date"): _Form(pa.int64(), _dates),
    ("string", "timestamptz"): _Form(pa.string(), _zoned),
}
"""By what a rule says: the JSON type in the log, and the form."""


def _form(column: Column) -> _Form | None:
    rule = rule_of(column)
    return None if rule is None or column.array else _FORMS.get((rule.log, rule.form))
