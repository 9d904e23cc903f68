"""Rows of a table's topic, decoded by Arrow from records as they are, where all of them are of the plainest kind.

What a row is, Spark's expressions say (jobs/decode/rows.py). They cost a JVM that has just started 35 µs a record and
a warm one 15, and Arrow's reader of JSON 1 (docs/benchmarks.md). So large slices of tables of common types are decoded
here, into the same rows. What is unusual in them, a mistake for one, is not judged here: nothing of such records is
taken, and they are read again with the expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.json

from driftless.facts.epochs import TopicLog
from driftless.table import Column, Table
from driftless.types import rule_of
from driftless.version import OFFSET_BITS
from jobs.decode.rows import FIXED, is_plain
from jobs.decode.values import DAYS, MICROS, Scale, member

# Their stubs know fewer arguments than the functions take.
pc: Any = pyarrow.compute
read_json: Any = pyarrow.json.read_json

LARGE = 2_048
"""Bytes of a value. What is larger is decoded in the JVM, which gives the wanted columns alone: with those that nobody
wants, a slice of such records would fill the memory."""
_ESCAPED = r'["\\\x00-\x1f\x7f]'
"""What JSON has more than one spelling of."""
_ZONED = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"

_SEQUENCE = r'^\["(?P<ended>\d{1,18})","'
"""Of a record's header: where in the source's log the transaction before its own ended, and where it is itself."""
_NONE_ENDED = "[null,"

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


def plain_rows(
    table: Table, log: TopicLog, unavailable: str, since: Mapping[str, int] | None = None
) -> PlainRows | None:
    """None where a column is of a type that only Spark's expressions decode. What else is given is as of `rows_sql`."""
    forms = {column.name: form for column in table.columns if (form := _form(column)) is not None}
    return PlainRows(table, log, forms, unavailable, since or {}) if len(forms) == len(table.columns) else None


class PlainRows:
    """The rows of one table. Has no state, so any thread may use it."""

    headers = True

    def __init__(
        self, table: Table, log: TopicLog, forms: dict[str, _Form], unavailable: str, since: Mapping[str, int]
    ) -> None:
        self._since = {name: known for name, known in since.items() if name in forms}
        self._log = log
        self._forms = forms
        self._texts = frozenset(column.name for column in table.columns if is_plain(column))
        self._key = {name: forms[name] for name in table.key}
        self._unavailable = unavailable if table.needs_full_identity else ""
        cells = [(f"c{number}", pa.string()) for number in range(len(forms))]
        self.schema = pa.schema([*zip(FIXED, _KINDS, strict=True), *cells])

    def rows(self, records: pa.Table) -> pa.Table | None:
        """What `rows_sql` makes of records, given as the Kafka source's columns; None where one of them is unusual."""
        try:
            batches = [self._batch(batch) for batch in records.to_batches() if batch.num_rows]
            return pa.Table.from_batches(batches, self.schema)
        except (_UnusualError, pa.ArrowException):
            return None

    def _batch(self, records: pa.RecordBatch) -> pa.RecordBatch:
        if (pc.max(pc.binary_length(records["value"])).as_py() or 0) > LARGE:
            raise _UnusualError
        values = records["value"].cast(pa.string())  # looks whether it is UTF-8
        if self._unavailable and pc.any(pc.match_substring(values, self._unavailable)).as_py():
            raise _UnusualError
        rows = _parsed(values.fill_null("{}"), self._forms)
        for name, known in self._since.items():
            _check_present(name, known, rows[name], values, records["headers"])
        cells = [self._cell(name, form, rows[name]) for name, form in self._forms.items()]
        fixed = {
            "partition": records["partition"],
            "offset": records["offset"],
            "key": self._keys(records["key"].cast(pa.string())),
            "version": versions(self._log, records["partition"].to_numpy(), records["offset"].to_numpy()),
            "gate": _gates(records["headers"]),
            "gone": values.is_null(),
        }
        return pa.RecordBatch.from_arrays([*(fixed[name] for name in FIXED), *cells], schema=self.schema)

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


def _check_present(name: str, known: int, cells: _Values, values: _Values, headers: _Values) -> None:
    """As `faults_sql` does."""
    if cells.null_count == values.null_count:  # of deletes alone
        return
    nulls = pc.and_(cells.is_null(), values.is_valid())
    absent = pc.and_(nulls, pc.invert(pc.fill_null(pc.match_substring(values, member(name)), True)))
    if known and pc.any(absent).as_py():
        changed = pc.fill_null(_header(headers, "lsn").cast(pa.string()).cast(pa.int64()), 0)
        absent = pc.and_(absent, pc.greater(changed, known))
    if pc.any(absent).as_py():
        raise _UnusualError


def versions(log: TopicLog, partitions: Any, offsets: Any) -> _Values:
    """As `version_sql` does, of numpy's arrays."""
    epochs = np.full(len(offsets), log.newest.number)
    for number, ends in reversed(log.ends):
        epochs[offsets < np.array([ends.get(p, 0) for p in range(log.partitions)])[partitions]] = number
    return pa.array(epochs << OFFSET_BITS | offsets)


def _gates(headers: _Values) -> _Values:
    """As `rows_sql` does."""
    read = pc.fill_null(pc.equal(_header(headers, "op"), b"r"), False)
    if pc.all(read).as_py():
        return pa.repeat(-1, len(read))
    sequences = _header(headers, "seq").cast(pa.string())
    ended = pc.struct_field(pc.extract_regex(sequences, _SEQUENCE), "ended").cast(pa.int64())
    known = pc.or_(pc.or_(read, ended.is_valid()), pc.fill_null(pc.starts_with(sequences, _NONE_ENDED), True))
    if not pc.all(known).as_py():
        raise _UnusualError
    return pc.if_else(read, -1, ended.fill_null(0))


def _header(headers: _Values, name: str) -> _Values:
    """The header of that name of each record; null where there is none."""
    of, one = pc.list_parent_indices(headers), headers.flatten()
    named = pc.equal(one.field("key"), name)
    rows, values = of.filter(named).to_numpy(), one.field("value").filter(named)
    if (np.diff(rows) == 0).any():
        raise _UnusualError
    places = np.full(len(headers), -1)
    places[rows] = np.arange(len(rows))
    return values.take(pa.array(places, mask=places < 0))


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
