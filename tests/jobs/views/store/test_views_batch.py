"""Three opinions on a view's documents: plain loops over the rows, one SELECT of Spark's, and the row store."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from driftless.version import make_version
from jobs.views.store.sqlite import SqliteRows
from tests.conftest import fresh_database
from tests.jobs.views.store.test_views_property import resolved
from tests.jobs.views.store.views_batch import SETTINGS, rows_of, select
from tests.jobs.views.store.views_cases import VALUES, Row, Spec
from tests.jobs.views.store.views_maker import Maker
from tests.support.compare import parse, same
from tests.support.seeds import seeds

pytestmark = pytest.mark.server

CASES = int(os.environ.get("DRIFTLESS_VIEWS_CASES") or 6)
_RAW = {
    "date": "case {0} when 'infinity' then -622191234 when '-infinity' then -625821272 else {0} - date 'epoch' end",
    "timestamptz": "case when not isfinite({0}) then {0}::text else case when extract(year from {0}) > 9999 then '+' "
    "when {0} < '0001-01-01 00:00:00+00' then '-' else '' end || case when {0} < '0001-01-01 00:00:00+00' "
    "then lpad((-extract(year from {0}) - 1)::text, 4, '0') when {0} > '9999-12-31 23:59:59+00' "
    "then extract(year from {0})::text "
    "else lpad(extract(year from {0})::text, 4, '0') end || "
    "to_char({0}, '-MM-DD\"T\"HH24:MI:SS.US') || 'Z' end",
}
_WORDS = {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}


@pytest.fixture(scope="module")
def values(postgres: str) -> dict[str, list[tuple[str, Any]]]:
    """Type -> its values: the JSON text that Postgres gives, and what Debezium writes."""
    found: dict[str, list[tuple[str, Any]]] = {}
    with fresh_database(postgres) as dsn, psycopg.connect(dsn) as connection:
        connection.execute("set timezone = 'UTC'")
        for type_, texts in VALUES.items():
            raw = _RAW.get(type_, "to_jsonb({0})").format("v")
            query = f"select to_jsonb(v)::text, {raw} from unnest(%s::{type_}[]) with ordinality as u(v, n) order by n"
            rows = connection.execute(query.encode(), (texts,)).fetchall()
            found[type_] = [(text, _as_debezium(type_, text, written)) for text, written in rows]
    return found


def _as_debezium(type_: str, text: str, written: Any) -> Any:
    match type_:
        case "numeric":
            return _WORDS.get(text.strip('"'), text)
        case "float8":
            return text.strip('"')
        case "jsonb":
            return text
        case "bytea":
            return json.loads(text)[2:]
    return written


def _rows(spec: Spec, values: dict[str, list[tuple[str, Any]]], rng: random.Random) -> Iterator[tuple[Row, Row]]:
    """(JSON texts, what Debezium writes) of rows that meet in no unique key."""
    taken: set[tuple[str, ...]] = set()
    for _ in range(rng.randint(5, 25)):
        picked = {
            name: ("null", None) if name not in spec.key and rng.random() < 0.15 else rng.choice(values[type_])
            for name, type_ in spec.columns.items()
        }
        keys = [
            (str(number), *(str(parse(picked[name][0]) if picked[name][0] != "1.0" else 1) for name in key))
            for number, key in enumerate([spec.key, *spec.unique])
        ]
        keys = [
            (*key[:1], *(part.rstrip("0").rstrip(".") if "." in part else part for part in key[1:])) for key in keys
        ]
        if taken.isdisjoint(keys):
            taken.update(keys)
            yield {n: text for n, (text, _) in picked.items()}, {n: raw for n, (_, raw) in picked.items()}


@pytest.mark.parametrize("seed", seeds(__name__, CASES))
def test_the_row_store_gives_the_documents_of_a_select(
    seed: int, spark: SparkSession, values: dict[str, list[tuple[str, Any]]], tmp_path: Path
) -> None:
    rng = random.Random(seed)
    case = Maker(rng, plain=True).case()
    print(f"DRIFTLESS_TEST_SEED={seed}\n{json.dumps(case.view, indent=1)}")
    view = resolved(case)
    parsed: dict[str, dict[str, Row]] = {name: {} for name in case.tables}
    stored, names = [], {}
    for number, (name, spec) in enumerate(case.tables.items()):
        records = []
        for texts, raw in _rows(spec, values, rng):
            key = _key(spec, texts)
            parsed[name][key] = {column: parse(text) for column, text in texts.items()}
            records.append((json.dumps({c: raw[c] for c in spec.key}).encode(), json.dumps(raw).encode()))
            if name in view.tables:
                shown = [None if texts[c.name] == "null" else texts[c.name] for c in view.tables[name].columns]
                stored.append((name, [(key, make_version(1, 1), 0, *shown)]))
        if name in view.tables:
            names[name] = f"rows_{number}"
            frame = spark.createDataFrame(records, "key binary, value binary")
            frame.selectExpr(*rows_of(view.tables[name])).createOrReplaceTempView(names[name])
    wanted = case.documents(parsed)
    store = SqliteRows.create(tmp_path / "rows.db", view)
    store.apply(stored, {})
    by_the_store = dict(store.assemble(10_000).writes)
    store.close()
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    by_spark = {row["key"]: row["document"] for row in spark.sql(select(view, names)).toArrow().to_pylist()}
    for documents in (by_the_store, by_spark):
        assert documents.keys() == wanted.keys()
        for key, document in wanted.items():
            found = parse(str(documents[key]))
            assert same(found, document), f"{key}\nis    {found}\nnot   {document}"


def _key(spec: Spec, texts: Row) -> str:
    found = [texts[name] for name in spec.key]
    if len(found) > 1:
        return "[" + ",".join(found) + "]"
    words = found[0].startswith('"') and spec.columns[spec.key[0]] != "numeric"
    return str(json.loads(found[0]) if words else found[0])
