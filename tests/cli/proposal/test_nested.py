"""Which nested views `init` proposes for which tables, and that they are accepted whatever names there are."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.proposal.syncfile import write_sync
from connectors.postgres.init import Proposal, Proposed
from connectors.postgres.relations import ForeignKey
from driftless.table import Column, Table
from driftless.views.resolve import CapturedTables
from tests.cli.proposal.proposals import loaded, trees, uncommented


def _table(name: str, columns: str, key: str = "id") -> Proposed:
    made = (column.split(":") for column in columns.split())
    return Proposed(Table("public", name, tuple(Column(n, type_) for n, type_ in made), tuple(key.split())))


def _keys(*written: str) -> tuple[ForeignKey, ...]:
    """`orders.customer_id customers.id`."""
    pairs = (tuple(end.split(".") for end in key.split()) for key in written)
    return tuple(
        ForeignKey(f"public.{a}", tuple(b.split(",")), f"public.{c}", tuple(d.split(","))) for (a, b), (c, d) in pairs
    )


def _proposal(tables: list[Proposed], keys: tuple[ForeignKey, ...], encoding: str = "UTF8") -> Proposal:
    unique = {p.table.full_name: [p.table.key] for p in tables}
    for key in keys:
        unique[key.to].append(key.referenced)
    return Proposal("shop", tuple(tables), {}, keys, unique, encoding)


@pytest.mark.parametrize(
    ("tables", "keys", "roots"),
    [
        (
            [_table("categories", "id:int4"), _table("products", "id:int4 category_id:int4")],
            _keys("products.category_id categories.id"),
            {"products": ["category"]},
        ),
        (
            [_table("invoices", "id:int4"), _table("invoice_items", "id:int4 invoice_id:int4")],
            _keys("invoice_items.invoice_id invoices.id"),
            {"invoices": ["items"]},
        ),
        (
            [_table("students", "id:int4"), _table("taken", "s:int4 c:int4", "s c"), _table("courses", "id:int4")],
            _keys("taken.s students.id", "taken.c courses.id"),
            {"courses": ["students"]},
        ),
        (
            [
                _table("sales", "id:int4 shop_id:int4 customer_id:int4 amount:numeric"),
                _table("shops", "id:int4"),
                _table("customers", "id:int4"),
            ],
            _keys("sales.shop_id shops.id", "sales.customer_id customers.id"),
            {"sales": ["shop", "customer"]},
        ),
        (
            [_table("users", "id:int4"), _table("user_profiles", "user_id:int4 text:text", "user_id")],
            _keys("user_profiles.user_id users.id"),
            {"users": ["profile"]},
        ),
        (
            [_table("a", "id:int4 b_id:int4"), _table("b", "id:int4 a_id:int4")],
            _keys("a.b_id b.id", "b.a_id a.id"),
            {"a": ["b", "bs"], "b": ["a", "as"]},
        ),
    ],
    ids=["a lookup", "header and items", "many to many", "a star", "one to one", "a cycle"],
)
def test_the_roots_that_are_proposed(
    tables: list[Proposed], keys: tuple[ForeignKey, ...], roots: dict[str, list[str]], tmp_path: Path
) -> None:
    config = loaded(tmp_path, uncommented(write_sync("shop", _proposal(tables, keys))))
    found = {n.removesuffix("_nested"): [*v.one, *v.many] for n, v in config.views.items() if v.joined}
    assert found == roots


def test_of_what_all_refers_to_a_table_only_its_parts_are_in_its_lists(tmp_path: Path) -> None:
    tables = [_table("users", "id:int4 team_id:int4"), _table("teams", "id:int4")]
    tables += [_table(name, "id:int4 user_id:int4") for name in ("user_mails", *(f"t{number}" for number in range(20)))]
    keys = _keys("users.team_id teams.id", *(f"{p.table.name}.user_id users.id" for p in tables[2:]))
    config = loaded(tmp_path, uncommented(write_sync("shop", _proposal(tables, keys))))
    users, others = config.views["users_nested"], [view for view in config.views.values() if view.joined]
    assert ([*users.one], [*users.many]) == (["team"], ["mails"])
    assert len(others) == 16


def test_rows_that_are_marked_as_deleted_are_in_no_document(tmp_path: Path) -> None:
    """By a moment of that name: a flag, or a column that is called otherwise, says nothing."""
    tables = [
        _table("orders", "id:int4 deleted_at:timestamptz"),
        _table("order_lines", "id:int4 order_id:int4 deleted_on:date"),
        _table("notes", "id:int4 order_id:int4 deleted_at:bool removed_at:date"),
    ]
    keys = _keys("order_lines.order_id orders.id", "notes.order_id orders.id")
    config = loaded(tmp_path, uncommented(write_sync("shop", _proposal(tables, keys))))
    wanted = {"orders": "deleted_at IS NULL", "order_lines": "deleted_on IS NULL", "notes": None}
    assert {name: config.views[name].where for name in wanted} == wanted
    nested = config.views["orders_nested"]
    assert (nested.where, nested.many["lines"].where) == ("deleted_at IS NULL", "deleted_on IS NULL")
    assert nested.many["notes"].where is None


def test_lists_in_the_order_of_texts_need_utf8(tmp_path: Path) -> None:
    tables = [_table("a", "id:int4 b:int4"), _table("b", "id:int4"), _table("c", "id:text a:int4")]
    keys = _keys("a.b b.id", "c.a a.id")
    for encoding, shown in {"UTF8": ["b_row", "cs"], "LATIN1": ["b_row"]}.items():
        config = loaded(tmp_path, uncommented(write_sync("shop", _proposal(tables, keys, encoding))))
        assert [*config.views["a_nested"].one, *config.views["a_nested"].many] == shown


NAMES = ["a", "A b", "a_id", "b_id", "b", "a.b", "c", "c_row", "_id", "null", "${X}", "it's", "Größe", "id"]
TYPES = ["int4", "int8", "numeric", "text", "uuid", "float8", "box", "jsonb"]


@st.composite
def proposals(draw: st.DrawFn) -> Proposal:
    """Any tables with any foreign keys, most of which Postgres would not have; none of them may do harm."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True))
    tables = []
    for name in names:
        columns = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=True))
        types = {column: draw(st.sampled_from(TYPES)) for column in columns}
        types[columns[0]] = draw(st.sampled_from(TYPES[:5]))
        key = [columns[0], *(c for c in columns[1:3] if types[c] in TYPES[:5] and draw(st.booleans()))]
        secret = tuple(c for c in columns if c not in key and draw(st.integers(0, 5)) == 0)
        made = tuple(Column(column, type_) for column, type_ in types.items())
        refused = {c: "is of no use" for c, type_ in types.items() if type_ == "box" and c not in secret}
        tables.append(Proposed(Table("public", name, made, tuple(key)), secret, refused))
    keys = []
    for _ in range(draw(st.integers(0, 8))):
        of, to = draw(st.sampled_from(tables)), draw(st.sampled_from(tables))
        referenced = draw(st.permutations(to.table.key)) if draw(st.booleans()) else to.table.columns[-1:]
        referenced = [c if isinstance(c, str) else c.name for c in referenced]
        held = [draw(st.sampled_from(of.table.columns)).name for _ in referenced]
        keys.append(ForeignKey(of.table.full_name, tuple(held), to.table.full_name, tuple(referenced)))
    return _proposal(tables, tuple(dict.fromkeys(keys)), draw(st.sampled_from(["UTF8", "LATIN1"])))


@given(proposals())
@settings(deadline=None)
def test_whatever_the_tables_are_called_all_proposals_are_accepted(proposal: Proposal) -> None:
    text = write_sync("shop", proposal)
    with TemporaryDirectory() as folder:
        config = loaded(Path(folder), uncommented(text))
    tables = {p.table.full_name: p.captured for p in proposal.tables}
    excluded = {p.table.full_name: p.secret for p in proposal.tables}
    for tree in trees(config, CapturedTables(tables, lambda name: proposal.unique[name], excluded)):
        assert proposal.encoding == "UTF8" or not tree.sorts_text
        for node, _ in tree.nodes():
            assert not {*node.fields.values()} & {*excluded[node.table]}
            assert len({*node.fields, *(below.name for below in node.relations)}) == len(node.fields) + len(
                node.relations
            )
