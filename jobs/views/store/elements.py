"""The elements of arrays by which rows are found: a table of them for each list, beside the rows that have them."""

from __future__ import annotations

from collections.abc import Iterator

from driftless.views.tree import Join
from jobs.views.store.dirty_roots import differ
from jobs.views.store.layout import Layout, LayoutNode


def tables(layout: Layout) -> Iterator[str]:
    """To be made with the store's file. `row`: of the row that has the array. `k`: what equals the row below."""
    for part in _lists(layout):
        yield f"CREATE TABLE {_name(part)} (row INTEGER, place INTEGER, k)"


def filled(layout: Layout) -> Iterator[str]:
    """Over all rows, once they are there; then by what they are looked up."""
    for part in _lists(layout):
        elements = _elements(layout, part, f"{part.hops[0].upper.name} t")
        yield f"INSERT INTO {_name(part)} {elements} WHERE t.gone IS NULL"
        yield f"CREATE INDEX {_name(part)}_row ON {_name(part)} (row, place)"
        yield f"CREATE INDEX {_name(part)}_k ON {_name(part)} (k)"


def changed(layout: Layout) -> Iterator[str]:
    """Once changed rows are stored, with what was stored of them beside, as jobs/views/store/intake.py has it."""
    for part in _lists(layout):
        upper, array = part.hops[0].upper, part.array
        rows = (
            f"new_{upper.name} n LEFT JOIN old_{upper.name} o ON o.key = n.key "
            f"CROSS JOIN {upper.name} t ON t.{upper.identity} = n.key"
        )
        where = f"WHERE {differ([array])}"
        yield f"DELETE FROM {_name(part)} WHERE row IN (SELECT t.id FROM {rows} {where})"
        yield f"INSERT INTO {_name(part)} {_elements(layout, part, rows)} {where} AND t.gone IS NULL"


def _elements(layout: Layout, part: LayoutNode, rows: str) -> str:
    (form,) = layout.view.forms(_join(part))
    value = "CAST(e.value AS INTEGER)" if form == "int8" else "e.value"
    return f"SELECT t.id, e.key, {value} FROM {rows} CROSS JOIN json_each(t.{part.array}) e"


def _join(part: LayoutNode) -> Join:
    assert part.above is not None
    (join,) = part.node.joins(part.above.node)
    return join


def _lists(layout: Layout) -> Iterator[LayoutNode]:
    yield from (part for part in layout.parts if part.node.elements)


def _name(part: LayoutNode) -> str:
    return part.hops[0].lower.name
