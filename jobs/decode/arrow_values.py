"""Values of a table's topic by Arrow: JSON texts taken apart, and each value as `to_jsonb` shows it.

Only types whose values nearly always have one form are here. What Spark's expressions make of a value is said in
jobs/decode/values.py; this gives the same, or raises UnusualError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.json

from driftless.table import Column
from driftless.types import rule_of
from jobs.decode.values import DAYS, MICROS, Scale

# Their stubs know fewer arguments than the functions take.
pc: Any = pyarrow.compute
read_json: Any = pyarrow.json.read_json

Values = Any
"""An Arrow array."""

_ZONED = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"
_COMMON = {'"': '\\"', "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
ESCAPES = {**{chr(code): f"\\u{code:04X}" for code in range(32)}, **_COMMON}
"""How Spark spells what JSON does not allow as it is, but for the backslash itself."""
_ESCAPED = r'["\\\x00-\x1f]'
_RARE = r"[\x00-\x07\x0b\x0e-\x1f]"


class UnusualError(Exception):
    """A value that need not be the same by Arrow as by Spark's expressions."""


@dataclass(frozen=True)
class Form:
    """`kind`: Arrow's type for the JSON in the log. `text`: of values of that type, as a document shows them.

    `json`: the text is JSON as it stands; otherwise it is JSON with quotation marks around it. `finished`: Spark's
    expressions give it as JSON text too, and not as a value that `to_json` writes.
    """

    kind: pa.DataType
    text: Callable[[Values], Values]
    json: bool = False
    finished: bool = False

    def as_json(self, texts: Values) -> Values:
        return texts if self.json else quoted(texts)


def form_of(column: Column) -> Form | None:
    """None where only Spark's expressions know the type."""
    rule = rule_of(column)
    return None if rule is None or column.array else _FORMS.get((rule.log, rule.form))


def forms_of(columns: Mapping[str, Column]) -> dict[str, Form] | None:
    """None where one of them is of a type that only Spark's expressions know."""
    forms = {name: form for name, column in columns.items() if (form := form_of(column)) is not None}
    return forms if len(forms) == len(columns) else None


def parsed(texts: Values, forms: Mapping[str, Form]) -> dict[str, Values]:
    """The members of one JSON object each.

    Each is put into another object, on a line of its own: what is more, or less, or another thing than one object is
    then no JSON, and Arrow does not take a null between two lines for a row, which ends the process.
    """
    lines = pc.binary_join_element_wise('{"r":', texts, "}\n", "")
    if lines.null_count:
        raise UnusualError
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
        raise UnusualError
    return dict(zip(forms, found["r"].combine_chunks().flatten(), strict=True))


def quoted(texts: Values) -> Values:
    """Texts as JSON strings, with the escapes that Spark's `to_json` uses."""
    if pc.any(pc.match_substring_regex(texts, _ESCAPED)).as_py():
        rare = pc.any(pc.match_substring_regex(texts, _RARE)).as_py()
        texts = pc.replace_substring(texts, "\\", "\\\\")
        for character, spelt in (ESCAPES if rare else _COMMON).items():
            texts = pc.replace_substring(texts, character, spelt)
    return pc.binary_join_element_wise('"', texts, '"', "")


def _same(texts: Values) -> Values:
    return texts


def _as_text(values: Values) -> Values:
    return values.cast(pa.string())


def _finite(numbers: Values) -> Values:
    """Of texts that are numbers, but for words as `NaN`."""
    if pc.any(pc.invert(pc.match_substring_regex(numbers, "^-?[0-9]"))).as_py():
        raise UnusualError
    return numbers


def _on_one_line(texts: Values) -> Values:
    return pc.replace_substring_regex(texts, "[\n\r]", " ")


def _hexadecimal(texts: Values) -> Values:
    return pc.binary_join_element_wise("\\x", texts, "")


def _timestamps(micros: Values) -> Values:
    _check_common_era(micros, MICROS)
    text = pc.replace_substring(micros.cast(pa.timestamp("us")).cast(pa.string()), " ", "T")
    return _without_zeros(text)


def _dates(days: Values) -> Values:
    _check_common_era(days, DAYS)
    return days.cast(pa.int32()).cast(pa.date32()).cast(pa.string())


def _zoned(texts: Values) -> Values:
    plain = pc.match_substring_regex(texts, _ZONED)
    if pc.any(pc.or_(pc.invert(plain), pc.starts_with(texts, "0000"))).as_py():
        raise UnusualError
    bare = pc.utf8_rtrim(texts, "Z")
    bare = pc.if_else(pc.match_substring(bare, "."), _without_zeros(bare), bare)
    return pc.binary_join_element_wise(bare, "+00:00", "")


def _without_zeros(texts: Values) -> Values:
    """Of numbers that have a point."""
    return pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")


def _check_common_era(values: Values, scale: Scale) -> None:
    span = pc.min_max(values)
    lowest, highest = span["min"].as_py(), span["max"].as_py()
    if lowest is not None and (lowest < scale.year_1 or highest >= scale.year_10000):
        raise UnusualError


_FORMS = {
    ("bigint", "same"): Form(pa.int64(), _as_text, json=True),
    ("boolean", "same"): Form(pa.bool_(), _as_text, json=True),
    ("string", "same"): Form(pa.string(), _same),
    ("string", "numeric"): Form(pa.string(), _finite, json=True, finished=True),
    ("string", "float"): Form(pa.string(), _finite, json=True, finished=True),
    ("string", "json"): Form(pa.string(), _on_one_line, json=True, finished=True),
    ("string", "bytea"): Form(pa.string(), _hexadecimal),
    ("bigint", "timestamp"): Form(pa.int64(), _timestamps),
    ("bigint", "date"): Form(pa.int64(), _dates),
    ("string", "timestamptz"): Form(pa.string(), _zoned),
}
"""By what a rule of driftless/types.py says: the JSON type in the log, and the form."""
