"""The less common types, decoded: left what was seen in Debezium's records, right what Postgres answered."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from driftless.table import Column
from jobs.decode.documents import writes_sql
from tests.jobs.both_ways import both_ways
from tests.jobs.decode.test_decode import ID, LOG, decode, table

PAIR = (Column("n", "int4"), Column("a b", "text"))
NESTED = Column(
    "v",
    "nested",
    kind="c",
    own=True,
    fields=(
        Column("id", "int8"),
        Column("p", "pair", kind="c", own=True, fields=PAIR),
        Column("tags", "text", array=True),
        Column("pairs", "pair", kind="c", own=True, fields=PAIR, array=True),
        Column("at", "timestamptz"),
        Column("t", "timestamp"),
        Column("amount", "numeric"),
        Column("ok", "bool"),
        Column("doc", "jsonb"),
        Column("raw", "bytea"),
    ),
)


def one(spark: SparkSession, column: Column, log: object) -> Any:
    value = json.dumps({"id": 1, "v": log}).encode()
    return decode(spark, table(ID, column), [(b'{"id":1}', value, 0, 0)])[0][2]["v"]  # type: ignore[index]


def hexed(text: str) -> str:
    return text.encode().hex()


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        ("P0Y0M0DT0H0M0S", "00:00:00"),
        ("P1Y2M3DT4H5M6.789S", "1 year 2 mons 3 days 04:05:06.789"),
        ("P-1Y0M0DT0H0M0S", "-1 years"),
        ("P0Y1M-3DT0H0M0S", "1 mon -3 days"),
        ("P0Y0M0DT0H0M-0.000001S", "-00:00:00.000001"),
        ("P0Y0M0DT25H0M0S", "25:00:00"),
        ("P0Y-1M2DT-3H0M0S", "-1 mons +2 days -03:00:00"),
        ("P0Y0M-1DT3H0M0S", "-1 days +03:00:00"),
        ("P-1Y-1M1DT0H0M0S", "-1 years -1 mons +1 day"),
        ("P0Y0M0DT1193046H0M0S", "1193046:00:00"),
    ],
)
def test_an_interval(spark: SparkSession, log: str, shown: str) -> None:
    assert one(spark, Column("v", "interval"), log) == shown


@pytest.mark.parametrize(
    ("x", "shown"),
    [
        ("0.0", "0"),
        ("-0.0", "-0"),
        ("1.0", "1"),
        ("0.1", "0.1"),
        ("1.0E15", "1e+15"),
        ("1.23456789012345E14", "123456789012345"),
        ("-1.0E-5", "-1e-05"),
        ("1.0E-4", "0.0001"),
        ("1.5E300", "1.5e+300"),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        ("Infinity", "Infinity"),
        ("0.30000000000000004", "0.30000000000000004"),
        ("1.2345678901234567E-4", "0.00012345678901234567"),
    ],
)
def test_a_number_inside_of_a_shape(spark: SparkSession, x: str, shown: str) -> None:
    assert one(spark, Column("v", "point"), {"x": x, "y": "1.5"}) == f"({shown},1.5)"


@pytest.mark.parametrize(
    ("column", "log", "shown"),
    [
        (Column("v", "line"), {"a": "-0.5", "b": "1.0", "c": "1.0E20"}, "{-0.5,1,1e+20}"),
        (Column("v", "circle"), {"center": {"x": "1.0", "y": "2.0"}, "radius": "3.5"}, "<(1,2),3.5>"),
        (Column("v", "bit", length=1), True, "1"),
        (Column("v", "bit", length=5), "", "00000"),
        (Column("v", "bit", length=5), "Cg==", "01010"),
        (Column("v", "bit", length=16), "AYA=", "1000000000000001"),
        (Column("v", "bit", length=70), "AAAAAAAAAAAg", "1" + "0" * 69),
        (Column("v", "bit", length=70), "AQ==", "0" * 69 + "1"),
        (Column("v", "timetz"), "04:30:00.12Z", "04:30:00.12+00"),
        (Column("v", "money"), "-92233720368547758.08", Decimal("-92233720368547758.08")),
        (Column("v", "numeric", length=-1), "-12300." + "0" * 2046, Decimal(-12300)),
        (Column("v", "numeric", length=-1), "NAN", "NaN"),
        (Column("v", "oid"), 4294967295, "4294967295"),
        (Column("v", "pg_lsn"), hexed("16/B374D848"), "16/B374D848"),
        (Column("v", "tsquery"), hexed("'ü' & !'b'"), "'ü' & !'b'"),
        (Column("v", "tsquery"), "", ""),
        (Column("v", "hstore", own=True), '{"a":"1","b":null}', {"a": "1", "b": None}),
        (Column("v", "json"), '{"a": 1, "a": 2.50}', {"a": Decimal("2.5")}),
        (Column("v", "json"), '{"a": {"b": 1, "\\"b\\" :": {"c": 1, "c": 2}}}', {"a": {"b": 1, '"b" :': {"c": 2}}}),
        (Column("v", "json"), '{"a": 1e400, "b" : {"a": 0.10}}', {"a": Decimal("1e400"), "b": {"a": Decimal("0.1")}}),
        (Column("v", "json", array=True), ['{"a": 1, "a": 2}', None], [{"a": 2}, None]),
        (Column("v", "tstzrange"), '["2024-01-01 08:00:00.5+00",)', '["2024-01-01 08:00:00.5+00",)'),
        (Column("v", "pair", kind="c", own=True, fields=PAIR), hexed("(,)"), {"n": None, "a b": None}),
        (Column("v", "pair", kind="c", own=True, fields=PAIR), hexed('(3,"")'), {"n": 3, "a b": ""}),
        (
            Column("v", "pair", kind="c", own=True, fields=PAIR),
            hexed('(2,"it\'s ""q"" \\\\ (a,b) ☃\n")'),
            {"n": 2, "a b": 'it\'s "q" \\ (a,b) ☃\n'},
        ),
        (NESTED, hexed("(,,,,,,,,,)"), dict.fromkeys(part.name for part in NESTED.fields)),
        *(
            (Column("v", name), None, None)
            for name in ("interval", "point", "pg_lsn", "money", "json", "oid", "timetz")
        ),
        (NESTED, None, None),
    ],
)
def test_a_value_is_shown_as_to_jsonb_shows_it(spark: SparkSession, column: Column, log: object, shown: object) -> None:
    assert one(spark, column, log) == shown


@pytest.mark.parametrize("kind", ["tstzrange", "tstzmultirange"])
@pytest.mark.parametrize("zone", ["+05:30", "-03", "+00:19:32"])
def test_a_range_of_another_zone_stops(spark: SparkSession, kind: str, zone: str) -> None:
    text = f'["2024-01-01 08:00:00.5{zone}",)'
    with pytest.raises(PySparkException, match="start the Connect worker with TZ=UTC"):
        one(spark, Column("v", kind), text if kind == "tstzrange" else hexed(f"{{{text}}}"))


def test_what_is_no_hex_stops_instead_of_becoming_null(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="carried by a wrong rule"):
        one(spark, Column("v", "ean13", own=True), "978-0-393-04002-9")


DEEP = "[" * 1200 + "]" * 1200


@pytest.mark.parametrize(
    "text",
    [DEEP, '{"n":' + "9" * 1200 + "}", '{"n":1e999999,"a":1,"a":2}', '{"a":"\\u0000"}', '{"a":"\\ud800","a":2}'],
    ids=["deep", "digits", "huge", "zero", "half a pair"],
)
def test_json_that_spark_cannot_take_apart_is_carried_as_it_is(spark: SparkSession, text: str) -> None:
    t = table(ID, Column("v", "json"))
    parse, shape = writes_sql(t, {"v": "v"}, LOG)
    value = json.dumps({"id": 1, "v": text}).encode()
    writes = both_ways(spark, parse, shape, [(b'{"id":1}', value, None, 0, 0)])
    assert writes["document"].to_pylist() == [f'{{"v":{text}}}']


@pytest.mark.parametrize(
    ("kind", "element"),
    [("text", "[Ljava.lang.String;@67650887"), ("uuid", "[Ljava.util.UUID;@1f"), ("jsonb", "[[Ljava.lang.String;@1")],
)
def test_an_array_that_debezium_makes_up_is_refused_with_its_column(
    spark: SparkSession, kind: str, element: str
) -> None:
    with pytest.raises(PySparkException, match="this value is not carried: column v: an array of several dimensions"):
        one(spark, Column("v", kind, array=True), [element, element])


@pytest.mark.parametrize("kind", ["int4", "bool", "float8", "date", "timestamp", "timestamptz", "bytea", "citext"])
def test_an_array_of_which_debezium_leaves_nulls_is_refused(spark: SparkSession, kind: str) -> None:
    with pytest.raises(PySparkException, match="column v: an array of several dimensions, or of nothing but nulls"):
        one(spark, Column("v", kind, array=True, own=kind == "citext"), [None, None])
    assert one(spark, Column("v", kind, array=True, own=kind == "citext"), []) == []
    assert one(spark, Column("v", kind, array=True, own=kind == "citext"), None) is None


def test_a_text_that_only_looks_like_a_bracket_is_a_text(spark: SparkSession) -> None:
    texts = ["[L", "[Ljava", "x[Ljava.lang.String;@1", None, "[1,2)"]
    assert one(spark, Column("v", "text", array=True), texts) == texts


def test_a_record_without_a_column_that_it_must_have_stops(spark: SparkSession) -> None:
    """What came later may be missing from what was written before; what was there from the start may not."""
    t = table(ID, Column("a", "text"), Column("größe", "int4"), Column("old", "text"))
    parse, shape = writes_sql(t, {c.name: c.name for c in t.columns}, LOG, since={"id": 0, "a": 0, "größe": 100})
    whole = {"id": 1, "a": None, "größe": None, "old": None}
    early, late = [("lsn", b"100")], [("lsn", b"101")]

    def read(lacking: str, headers: list[tuple[str, bytes]] | None) -> list[object]:
        row = {name: value for name, value in whole.items() if name != lacking}
        value = json.dumps(row, ensure_ascii=False).encode()
        records = [(b'{"id":1}', value, headers, 1, 7), (b'{"id":2}', None, headers, 1, 8)]
        return both_ways(spark, parse, shape, records)["document"].to_pylist()

    text = json.dumps(whole, separators=(",", ":"), ensure_ascii=False)
    for lacking, headers in (("", late), ("old", late), ("größe", early), ("größe", None)):
        assert read(lacking, headers) == [text, None]
    for lacking in ("a", "größe"):
        said = f"shop.public.t/1/7: the row has no column {lacking}, which was renamed or dropped"
        with pytest.raises(PySparkException, match=said):
            read(lacking, late)
