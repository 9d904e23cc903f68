"""From the text that Postgres prints for a value to the JSON that `to_jsonb` gives for it, as Spark SQL.

Composites travel as such a text. Their parts are nested in each other, so the expression is built by walking the type.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from driftless.table import Column
from driftless.types import text_form
from jobs.decode.spark_sql import SEVERAL, refuse

_names = count()

# Greedy without going back: a long value must not exhaust the stack of the regex engine.
_ELEMENT = r'(?s)("[^"\\]*+(?:\\.[^"\\]*+)*+"|[^,"]*+),'
_PART = r'(?s)("[^"\\]*+(?:(?:""|\\\\)[^"\\]*+)*+"|[^,"]*+),'
_ELSEWHERE = r":\d\d(\.\d+)?[+-](?!00(?![:\d]))"


def literal(text: str) -> str:
    """A string of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def utc(sql: str) -> str:
    """A text with times in it, which is right only where the worker of Connect lives in UTC; anything else stops."""
    wrong = "raise_error('a time in a range or composite is not in UTC: start the Connect worker with TZ=UTC')"
    return f"CASE WHEN {sql} RLIKE {literal(_ELSEWHERE)} THEN {wrong} ELSE {sql} END"


def json_of_text(column: Column, sql: str) -> str:
    """JSON text of a value that is not null, given Postgres' text of it."""
    if column.array:
        return bound(sql, lambda text: _array(column, text))
    return _scalar(column, sql)


def bound(sql: str, body: Callable[[str], str]) -> str:
    """The body with a name for the value, so that Spark computes it once."""
    name = f"v{next(_names)}"
    return f"element_at(transform(array({sql}), {name} -> {body(name)}), 1)"


def _scalar(column: Column, sql: str) -> str:
    if column.kind == "c":
        parts = f"regexp_extract_all(concat(substring({sql}, 2, length({sql}) - 2), ','), {literal(_PART)}, 1)"
        return bound(parts, lambda texts: _composite(column, texts))
    match text_form(column):
        case "number":
            return sql
        case "special number":
            return f"CASE WHEN {sql} RLIKE '[NI]' THEN concat('\"', {sql}, '\"') ELSE {sql} END"
        case "bool":
            return f"if({sql} = 't', 'true', 'false')"
        case "json":
            return f"translate({sql}, '\\n\\r', '  ')"
        case "timestamp":
            return _string(f"regexp_replace({sql}, '^([0-9-]+) ', '$1T')")
        case "timestamptz":
            return _string(f"regexp_replace({utc(sql)}, '^([0-9-]+) ([0-9:.]+)[+]00', '$1T$2+00:00')")
        case "zoned text":
            return _string(utc(sql))
        case "text":
            return _string(sql)
    raise ValueError(f"{column.type} cannot be read from a text")


def _string(sql: str) -> str:
    # to_json writes objects and arrays only: cut the brackets of an array of one.
    return f"regexp_replace(to_json(array({sql})), '^.|.$', '')"


def _composite(column: Column, texts: str) -> str:
    """An absent part is null, a quoted one has its quotes and backslashes doubled."""
    members = []
    for number, part in enumerate(column.fields, start=1):
        raw = f"element_at({texts}, {number})"
        value = bound(_unquoted(raw, r'(?s)(["\\])\1'), _part(part))
        shown = f"CASE WHEN {raw} = '' THEN 'null' ELSE {value} END"
        members.append(f"{_string(literal(part.name))}, ':', {shown}")
    return "concat('{', " + ", ',', ".join(members) + ", '}')" if members else "'{}'"


def _part(part: Column) -> Callable[[str], str]:
    return lambda text: json_of_text(part, text)


def _array(column: Column, text: str) -> str:
    """Elements in braces, maybe behind their bounds (`[0:1]={4,5}`), which `to_jsonb` does not show."""
    inner = f"regexp_replace({text}, '(?s)^[^{{]*[{{]|[}}]$', '')"
    elements = f"regexp_extract_all(concat({inner}, ','), {literal(_ELEMENT)}, 1)"
    name = f"v{next(_names)}"
    value = bound(_unquoted(name, r"(?s)\\(.)"), lambda element: _scalar(column, element))
    shown = f"transform({elements}, {name} -> CASE WHEN {name} = 'NULL' THEN 'null' ELSE {value} END)"
    several = refuse(column.name, SEVERAL)
    return (
        f"CASE WHEN {inner} = '' THEN '[]' WHEN {inner} LIKE '{{%' THEN {several} "
        f"ELSE concat('[', array_join({shown}, ','), ']') END"
    )


def _unquoted(sql: str, escape: str) -> str:
    inner = f"substring({sql}, 2, length({sql}) - 2)"
    return f"CASE WHEN startswith({sql}, '\"') THEN regexp_replace({inner}, {literal(escape)}, '$1') ELSE {sql} END"
