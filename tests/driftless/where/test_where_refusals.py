"""What a `where` may not say is refused with its place. No server is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftless.facts.generation import define
from driftless.table import Column, Table
from driftless.where.clause import WhereRefused, parse
from tests.driftless.config.test_config import GOOD, load_text, problems

TABLE = Table(
    "public",
    "orders",
    (
        Column("id", "int8"),
        Column("total", "int4"),
        Column("paid", "bool"),
        Column("status", "text"),
        Column("day", "date"),
        Column("mood", "mood", "e"),
        Column("rate", "float4"),
        Column("amount", "numeric"),
        Column("at", "timestamptz"),
        Column("opens", "time"),
        Column("tags", "text", array=True),
        Column("sums", "numeric", array=True),
        Column("info", "jsonb"),
        Column("Qty", "int4"),
        Column("code", "bpchar"),
        Column("token", "uuid"),
        Column("price", "box"),
    ),
    ("id",),
)
SIGNS = "there is = <> < <= > >= IN BETWEEN LIKE IS AND OR NOT + - * / % || -> ->>"
FUNCTIONS = "here, but lower, upper, length, coalesce, nullif, replace"
NO_TERM = "a column, a literal or what is computed of them is expected here"
PLAIN = "literals are written 'text', 12.5, TRUE or FALSE"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("status = 'x' and now() > at", f"column 18: there is no function now {FUNCTIONS}"),
        ("sum(total) > 1", "column 1: sum is over rows: write it in a relation of `many`, as `sum: ...`"),
        ("concat(status, 'x') = 'y'", "column 1: write a || b, and coalesce(a, '') for what may be null"),
        ("initcap(status) = 'x'", f"column 1: there is no function initcap {FUNCTIONS}"),
        ('"lower"(status) = 1', f'column 1: there is no function "lower" {FUNCTIONS}'),
        ("o.total = 1", "column 1: name the column alone, without o before it"),
        ('"o".total = 1', 'column 1: name the column alone, without "o" before it'),
        ("status = E'x'", f"column 10: {PLAIN}"),
        ("status = $$x$$", f"column 10: {PLAIN}"),
        ("status = N'x'", f"column 10: {PLAIN}"),
        ("status = U&'x'", f"column 10: {PLAIN}"),
        ("total = 0x1F", f"column 9: {PLAIN}"),
        ("total = $1", f"column 9: {PLAIN}"),
        ("total = :x", f"column 9: : is not admitted; {SIGNS}"),
        ("total = ?", f"column 9: ? is not admitted; {SIGNS}"),
        ("status = 'x' 'y'", f"column 10: {NO_TERM}"),
        ("day = DATE '2024-01-01'", "column 7: DATE before a literal is not admitted; write the literal alone"),
        ("day = '2024-01-01'::date", f"column 19: :: is not admitted; {SIGNS}"),
        ("status ~ 'x'", f"column 8: ~ is not admitted; {SIGNS}"),
        ("status ~~ 'x'", f"column 8: ~~ is not admitted; {SIGNS}"),
        ("total == 5", "column 7: write ="),
        ("total = .5", "column 9: write the number with a digit before the point"),
        ("total = 1e", "column 9: this is no plain number; write 12 or 0.5"),
        ("total = 1_000", "column 10: _000 is not expected here"),
        ("total = 1;", f"column 10: ; is not admitted; {SIGNS}"),
        ("total = 1 AND", "column 11: something is missing next to AND"),
        ("total =", "column 7: something is missing next to ="),
        ("(total = 1", "column 10: a parenthesis is not closed behind this"),
        ("total = 1)", "column 10: ) is not expected here"),
        ("total = 1 total", "column 11: total is not expected here"),
        ("status = 'x", "column 10: this is never closed"),
        ('status = "x', "column 10: this is never closed"),
        ("status = 'it''s' /* no", "column 18: this is never closed"),
        ("total = NULL", "column 9: nothing equals NULL; write IS NULL or IS NOT NULL"),
        ("total IN (1, NULL)", "column 14: nothing equals NULL; write IS NULL or IS NOT NULL"),
        ("paid IS NOT UNKNOWN", "column 13: write IS NULL or IS NOT NULL"),
        ("total IS 5", "column 10: IS is for NULL, TRUE and FALSE"),
        ("user = 'x'", 'column 1: the keyword user is not admitted here; a column of that name is written "user"'),
        ("status ILIKE 'x'", "column 8: the keyword ILIKE is not admitted here; "),
        ("status LIKE 'x' ESCAPE '!'", "column 17: ESCAPE before a literal is not admitted; write the literal alone"),
        ("status LIKE 5", "column 13: a pattern is text"),
        ("status LIKE 'x\\'", "column 13: the pattern ends with a single backslash"),
        ("status LIKE status", "column 13: a literal is expected here"),
        ("total IN (select 1)", "column 11: the keyword select is not admitted here; "),
        ("total IN (1, status)", "column 14: a literal is expected here"),
        ("total IN ()", "column 1: this is not in the grammar of `where`"),
        ("total IN 5", "column 1: this is not in the grammar of `where`"),
        ("total BETWEEN 1 AND id", "column 21: a literal is expected here"),
        ("(total, id) = (1, 2)", f"column 2: {NO_TERM}"),
        ("total = (paid IS NULL)", f"column 10: {NO_TERM}"),
        ("total / id > 1", "column 9: this can be 0, which ends the statement in Postgres: write nullif(..., 0)"),
        ("total % 0 = 1", "column 9: this can be 0, which ends the statement in Postgres: write nullif(..., 0)"),
        ("total / nullif(id, 1) > 1", "column 9: this can be 0, which ends the statement in Postgres"),
        ("info -> status = '1'", "column 1: a path begins at a column and has names in quotes, or numbers"),
        ("'x' -> 'a' = '1'", "column 1: a path begins at a column and has names in quotes, or numbers"),
        ("status <> ANY(tags)", "column 15: before ANY stands ="),
        ("5 IS NULL", "column 1: a column is expected here"),
        ("coalesce(total, NULL) = 1", "column 17: nothing equals NULL; write IS NULL or IS NOT NULL"),
        ("total + 1", "column 1: this is not in the grammar of `where`"),
        ("5 = 5", "column 1: compare a column with a literal or with another column"),
        ("paid and TRUE", "column 10: a literal alone is no condition; compare a column with it"),
        ("'x'", "column 1: a literal alone is no condition; compare a column with it"),
        ("like = 5", "column 6: something is missing next to ="),
        ("is = 5", 'column 1: a column that is called so is written "is"'),
        ("  ", "column 1: is empty"),
        ("-- nothing", "column 1: is empty"),
        ("(" * 2000 + "paid" + ")" * 2000, "column 1: has too many parentheses within each other"),
        ("paid or " * 3000 + "paid", "column 1: is longer than 20000 characters"),
    ],
)
def test_what_is_not_in_the_grammar_is_refused_at_its_place(text: str, problem: str) -> None:
    with pytest.raises(WhereRefused) as caught:
        parse(text)
    assert caught.value.problems[0].startswith(problem)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("total = 1 and stats = 'x'", "column 15: public.orders has no column stats; did you mean `status`?"),
        ("qty > 1", 'column 1: public.orders has no column qty; did you mean `"Qty"`, in quotes?'),
        ("secret = 'x'", "column 1: secret is excluded under source.tables, so the log does not have it"),
        ("price IS NULL", "column 1: price has the type box, which the log carries as a shape of its own"),
        ("total", "column 1: total is int4, no condition by itself: compare it, or write IS NOT NULL"),
        ("total = '5'", "column 9: total is int4, so the number stands without quotes"),
        ("total = 'x'", "column 9: total is int4, and this is no number"),
        ("total = 'NaN'", "column 9: total is int4, and this is no number"),
        ("total = TRUE", "column 9: total is int4, and this is no number"),
        ("status = 5", "column 10: status is text, so the literal stands in quotes"),
        ("paid = 1", "column 8: paid is bool, so compare it with TRUE or FALSE, or write it alone"),
        ("paid > FALSE", "column 1: paid is bool, which has no order in the log: there is = and <> and IN, but no >"),
        ("mood < 'ok'", "column 1: mood is mood, which has no order in the log: there is = and <> and IN, but no <"),
        ("mood IN ('ok', 'hapy')", "column 16: mood has no such value; did you mean `happy`?"),
        ("mood LIKE 'o%'", "column 1: mood is mood, and LIKE is for text and varchar"),
        ("code LIKE 'o%'", "column 1: code is bpchar, and LIKE is for text and varchar"),
        ("info = '1'", "column 1: info is jsonb, which can only be tested with IS NULL and IS NOT NULL"),
        ("tags = '{}'", "column 1: tags is text[], which can only be tested with IS NULL and IS NOT NULL"),
        ("sums IS NULL", "column 1: sums is numeric[]: one that holds a NaN is null in the log"),
        ("total = status", "column 9: total is int4 and status is text: only columns of one kind can be compared"),
        ("total < amount", "column 9: total is int4 and amount is numeric: only columns of one kind can be compared"),
        ("day > '2024-2-3'", "column 7: day is date, and its literals are written '2024-02-29'"),
        ("day > '2024-02-30'", "column 7: day is date, and there is no such day or time"),
        ("day > '2024-02-29 10:00'", "column 7: day is date, and its literals are written '2024-02-29'"),
        ("day > 'today'", "column 7: day is date, and its literals are written '2024-02-29'"),
        ("opens > '25:00'", "column 9: opens is time, and there is no such time"),
        (
            "at > '2024-01-01 10:00'",
            "column 6: at is timestamptz, and its literals are written '2024-02-29 10:30:00+00', ",
        ),
        ("at > '0001-01-01 00:00+05'", "column 6: at is timestamptz, and there is no such day or time"),
        ("token = 'x'", "column 9: token is uuid, and this is no uuid: 32 hexadecimal digits, as Postgres shows them"),
        ("amount > 1e200000", "column 10: amount is numeric, and this number has more digits than a numeric"),
        ("rate > 1e400", "column 8: rate is float4, and this number is beyond double precision"),
        ("rate IN (0.5)", "column 1: rate is float4, to which IN rounds its literals and = does not: "),
        ("lower(total) = 'x'", "column 7: this is int4, and lower takes text"),
        ("total + status = 1", "column 9: this is text, and + takes whole numbers and numeric"),
        ("total + rate > 1", "column 9: this is float4, and + takes whole numbers and numeric"),
        ("day || 'x' = 'y'", "column 1: this is date, and || takes text and numbers"),
        ("total || id = 'y'", "column 1: one side of || is text"),
        ("status -> 'a' IS NULL", "column 1: this is text, and paths are read in jsonb alone"),
        ("info -> 'a' = '1'", "column 1: jsonb has no order in the log: compare a text in it, by ->>"),
        ("info ->> 'a' > 1", "column 16: this stands beside text, so the literal stands in quotes"),
        ("coalesce(total, status) = 1", "column 17: this is text, beside int4: coalesce gives values of one kind"),
        ("case when paid then 1 else 'x' end > 0", "column 28: this stands beside numeric, and this is no number"),
        ("'a' = ANY(status)", "column 11: status is text, and ANY is for a column that is an array"),
        ("1 = ANY(tags)", "column 1: this stands beside text, so the literal stands in quotes"),
        ("1 = ANY(sums)", "column 9: sums is numeric[], whose elements cannot be compared in the log"),
        ("lower(stats) = 'x'", "column 7: public.orders has no column stats; did you mean `status`?"),
        ("length(price) > 1", "column 8: price has the type box, which the log carries as a shape of its own"),
        ("nullif(paid, 1)", "column 14: this stands beside bool, so compare it with TRUE or FALSE"),
        ("rate > '0.5'", "column 8: rate is float4, so the number stands without quotes"),
    ],
)
def test_what_does_not_fit_the_table_is_refused_at_its_place(text: str, problem: str) -> None:
    found = parse(text).refusals(TABLE, excluded=("secret",), labels={"mood": ["sad", "ok", "happy"]})
    assert len(found) == 1
    assert found[0].startswith(problem)


def test_all_mistakes_are_told_at_once_with_line_and_column() -> None:
    with pytest.raises(WhereRefused) as caught:
        parse("paid\n and initcap(status) = 'x'\n and total == 5")
    assert caught.value.problems == (
        f"line 2, column 6: there is no function initcap {FUNCTIONS}",
        "line 3, column 12: write =",
    )
    assert parse("total = 'x'\nor stats = 1 or mood = 'x'").refusals(TABLE, labels={"mood": []}) == [
        "line 1, column 9: total is int4, and this is no number",
        "line 2, column 4: public.orders has no column stats; did you mean `status`?",
        "line 2, column 24: mood has no such value",
    ]


def test_no_message_shows_a_literal() -> None:
    for text in (
        "initcap(status) = 'hunter2'",
        "status = hunter('hunter2'",
        "status = 'hunter2' 'hunter2'",
        "'hunter2'",
    ):
        with pytest.raises(WhereRefused) as caught:
            parse(text)
        assert "hunter2" not in str(caught.value)
    for text in ("total = 'hunter2'", "mood = 'hunter2'", "token = 'hunter2'", "day = 'hunter2'"):
        (found,) = parse(text).refusals(TABLE, labels={"mood": ["ok"]})
        assert "hunter2" not in found


def test_the_file_s_line_comes_with_it_beside_other_mistakes(tmp_path: Path) -> None:
    text = GOOD.replace("{root: products}", "{root: products, where: \"initcap(title) = 'x'\"}").replace(
        "index:", "indx:"
    )
    assert problems(tmp_path, text) == [
        "sync.yaml:10: views.product.where: column 1: there is no function initcap "
        "here, but lower, upper, length, coalesce, nullif, replace",
        "sync.yaml:15: followers.product-search.opensearch.indx: unknown field; did you mean `index`?",
    ]
    assert problems(tmp_path, GOOD.replace("{root: products}", "{root: products, where: true}")) == [
        "sync.yaml:10: views.product.where: is a number or a truth value to YAML, where text is wanted: "
        "write it in quotes"
    ]


def test_a_where_is_any_yaml_string_and_belongs_to_the_definition(tmp_path: Path) -> None:
    def definition(where: str) -> object:
        config = load_text(tmp_path, GOOD.replace("{root: products}", f"{{root: products{where}}}"))
        table = Table("public", "products", (Column("id", "int8"), Column("total", "int4")), ("id",))
        return define(config, "product-search", table)

    same = [definition(", where: total > 1"), definition(', where: "total > 1"')]
    others = [definition(""), definition(", where: total > 2")]
    assert same[0] == same[1]
    assert len({str(found) for found in (*same, *others)}) == 3
    folded = GOOD.replace("{root: products}", "\n    root: products\n    where: >\n      total > 1\n      and id < 5")
    where = load_text(tmp_path, folded).views["product"].where
    assert where is not None
    assert parse(where).columns == {"total", "id"}
