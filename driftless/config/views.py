"""A view as sync.yaml declares it: the root's columns, and relations to any depth.

What can be told from the file alone is checked here; what needs the tables, in driftless/views/resolve.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from driftless.config.base import Model
from driftless.config.view_fields import Columns, Computed, KeyColumns, Through, sorted_by, without
from driftless.table import join_name
from driftless.where.clause import parse


class _Shown(Model):
    """What a root and a relation have in common."""

    def fields(self, columns: tuple[str, ...]) -> dict[str, str]:
        """Name in the document -> column, given the columns that the table has."""
        given: Columns | None = getattr(self, "columns", None)
        if (value := getattr(self, "value", None)) is not None:
            return {value: value}
        if getattr(self, "aggregate", None) is not None:
            return {}
        if given is None:
            return {name: name for name in columns}
        if isinstance(given, dict):
            return dict(given)
        return {name: name for name in given}


AGGREGATES = ("count", "sum", "min", "max", "avg")
_GRAMMAR = "([grammar](where.md#what-may-be-computed))"
_COMPUTED = f"What is computed of a row, by its name in the document: an expression over columns {_GRAMMAR}."


class _Related(_Shown):
    """What relations have in common."""

    @model_validator(mode="after")
    def _a_value_alone(self) -> Self:
        if getattr(self, "value", None) is not None:
            for other in ("columns", "computed", "between", "one", "many"):
                if getattr(self, other, None):
                    raise ValueError(f"has `value` and `{other}`: a value has no members")
        return self

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        by, through, to = (getattr(self, name) for name in ("by", "through", "to"))
        if getattr(self, "ids", None) is not None:
            without(self, "ids", ("by", "through", "to", "ancestors", "order_by", "first", *AGGREGATES))
        elif getattr(self, "ancestors", None) is not None and by is not None:
            without(self, "ancestors", ("through", "to", "where", "order_by", "limit", "first", *AGGREGATES))
        elif through is None or isinstance(through, str):
            if by is None:
                raise ValueError(f"`by` is missing, such as `by: {type(self).model_fields['by'].examples[0]}`")  # type: ignore[index]
            if (through is None) != (to is None):
                has, lacks = ("through", "to") if to is None else ("to", "through")
                raise ValueError(f"has `{has}` without `{lacks}`: many to many takes both")
        elif through == () or (by is None) == (to is None):
            raise ValueError(
                "has a list of tables in `through`, so `to` or `by` says how the last one leads to `table`"
            )
        if getattr(self, "to_references", None) is not None and to is None:
            raise ValueError("has `to_references` without `to`: it says which key `to` holds")
        if through is None and getattr(self, "between", None) is not None:
            raise ValueError("has `between` without `through`: it shows columns of the table between")
        return self


class OneConfig(_Related):
    """At most one row, shown as an object; `null` where there is none."""

    table: str = Field(description="The table that the row is in.", examples=["public.customers"])
    by: KeyColumns | None = Field(
        default=None,
        description="The column or columns of the row above that hold the key of this table; with `through` as in "
        "`many`.",
        examples=["customer_id"],
    )
    references: KeyColumns | None = Field(
        default=None,
        description="The unique key of this table that `by` holds. The primary key if left out.",
        examples=["id", "[tenant, number]"],
    )
    through: Through | None = Field(
        default=None,
        description="The tables on the way, as in `many`. Each leads to one row.",
        examples=["[{table: public.staff, to: staff_id}]"],
    )
    to: KeyColumns | None = Field(
        default=None,
        description="The column or columns of the last table between that hold the key of `table`.",
        examples=["store_id"],
    )
    to_references: KeyColumns | None = Field(
        default=None,
        description="The unique key of `table` that `to` holds. The primary key if left out.",
        examples=["number"],
    )
    columns: Columns | None = Field(
        default=None,
        description="Columns to show: a list, or a mapping {name in the document: column}. All if left out.",
        examples=["[name, tier]"],
    )
    computed: Computed = Field(
        default_factory=dict,
        description=_COMPUTED,
        examples=["{called: first || ' ' || last}"],
    )
    value: str | None = Field(
        default=None,
        description="The one column to show, as it is: the name in the document then has a value, not an object.",
        examples=["name"],
    )
    where: str | None = Field(
        default=None,
        description="Which rows are shown: `null` stands for any other ([where](where.md)). All if left out.",
        examples=["deleted_at IS NULL"],
    )
    prefix: str | None = Field(
        default=None,
        description="Show its members in the row above, each with this before its name, in place of an object of its "
        "own; all of them `null` where there is no row. It may be empty.",
        examples=["customer_"],
    )
    one: dict[str, OneConfig] = Field(
        default_factory=dict,
        description="Rows that this one refers to, by the names that they have in it.",
        examples=["{region: {table: public.regions, by: region_id}}"],
    )
    many: dict[str, ManyConfig] = Field(
        default_factory=dict,
        description="Rows that refer to this one, by the names that their lists have in it.",
        examples=["{phones: {table: public.phones, by: customer_id}}"],
    )


class ManyConfig(_Related):
    """All rows that refer to the row above, as a list of objects; `[]` where there are none."""

    table: str = Field(description="The table that the rows are in.", examples=["public.order_lines"])
    by: KeyColumns | None = Field(
        default=None,
        description="The column or columns, of this table or of the one table of `through`, that hold the key of the "
        "row above. Of this table, where `through` lists tables: those that hold the key of the last one.",
        examples=["order_id"],
    )
    references: KeyColumns | None = Field(
        default=None,
        description="The unique key of the row above that `by` holds. Its primary key if left out.",
        examples=["number", "[tenant, number]"],
    )
    through: Through | None = Field(
        default=None,
        description="The table between, where many belong to many; or a list of tables, each a step of the way to "
        "`table` ([chains](views.md#many-to-many-through)). One element of the list for each way to a row.",
        examples=["public.product_categories", "[{table: public.orders, by: customer_id}]"],
    )
    to: KeyColumns | None = Field(
        default=None,
        description="The column or columns of `through` that hold the key of `table`.",
        examples=["category_id"],
    )
    to_references: KeyColumns | None = Field(
        default=None,
        description="The unique key of `table` that `to` holds. The primary key if left out.",
        examples=["slug"],
    )
    ids: str | None = Field(
        default=None,
        description="In place of `by`: the column of the row above that is an array of keys of this table. The list is "
        "in the order of the array.",
        examples=["tag_ids"],
    )
    ancestors: KeyColumns | None = Field(
        default=None,
        description="The columns of this table that hold its own key, as that of a parent. `by` is then of the row "
        "above, and the list has all rows from the topmost one down to that whose key `by` holds.",
        examples=["parent_id"],
    )
    between: Columns | None = Field(
        default=None,
        description="Columns of the last table between to show in each element, as in `columns`. None if left out.",
        examples=["[added_at]"],
    )
    columns: Columns | None = Field(
        default=None,
        description="Columns to show: a list, or a mapping {name in the document: column}. All if left out.",
        examples=["[line, qty, unit_price]"],
    )
    computed: Computed = Field(
        default_factory=dict,
        description=_COMPUTED,
        examples=["{amount: qty * unit_price}"],
    )
    value: str | None = Field(
        default=None,
        description="The one column to show, as it is: the list is then one of values, not of objects.",
        examples=["name"],
    )
    where: str | None = Field(
        default=None,
        description="Which rows of this table are in the list ([where](where.md)). All if left out.",
        examples=["deleted_at IS NULL"],
    )
    order_by: Annotated[tuple[str, ...], AfterValidator(sorted_by)] = Field(
        default=(),
        description="Columns of this table by which the list is in order, each with `desc` behind it for the greatest "
        "first. `between.` before it names one of the last table between. Rows that are alike in them, and all if left "
        "out, are in the order of their key.",
        examples=["[line]", "[placed_at desc]", "[between.position]"],
    )
    limit: int | None = Field(
        default=None,
        ge=1,
        description="How many rows are in the list at most: the first ones by `order_by`. All if left out.",
        examples=["10"],
    )
    first: bool = Field(
        default=False,
        description="Show the first row by `order_by` alone, as an object; `null` where there is none.",
        examples=["true"],
    )
    count: bool = Field(
        default=False,
        description="Show how many rows there are, in place of a list; 0 where there are none.",
        examples=["true"],
    )
    sum: str | None = Field(
        default=None,
        description="Show the sum of this over the rows, in place of a list: a column, or what is computed "
        f"{_GRAMMAR}. Exact, with the digits that Postgres gives it; `null` where there is nothing to add.",
        examples=["qty * unit_price"],
    )
    min: str | None = Field(
        default=None,
        description="The same with the least value.",
        examples=["price"],
    )
    max: str | None = Field(
        default=None,
        description="The same with the greatest value.",
        examples=["placed_at"],
    )
    avg: str | None = Field(
        default=None,
        description="The same with the average, with as many digits as Postgres gives it.",
        examples=["stars"],
    )
    one: dict[str, OneConfig] = Field(
        default_factory=dict,
        description="Rows that each of these refers to, by the names that they have in it.",
        examples=["{product: {table: public.products, by: product_id, columns: [title, price]}}"],
    )
    many: dict[str, ManyConfig] = Field(
        default_factory=dict,
        description="Rows that refer to each of these, by the names that their lists have in it.",
        examples=["{parcels: {table: public.parcels, by: line_id}}"],
    )

    @model_validator(mode="after")
    def _first_or_some(self) -> ManyConfig:
        if self.first and self.limit is not None:
            raise ValueError("has `first` and `limit`: the first one alone is no list")
        return self

    @model_validator(mode="after")
    def _one_aggregate(self) -> ManyConfig:
        has = [name for name in AGGREGATES if getattr(self, name)]
        if len(has) > 1:
            raise ValueError(f"has `{has[0]}` and `{has[1]}`: give each a name of its own in `many`")
        for other in (
            ("columns", "computed", "between", "value", "order_by", "limit", "first", "one", "many") if has else ()
        ):
            if getattr(self, other):
                raise ValueError(f"has `{has[0]}` and `{other}`: what is one value over all rows shows no row")
        return self

    @property
    def aggregate(self) -> tuple[str, str] | None:
        """(function, what it is of), which is empty for `count`."""
        name = next((name for name in AGGREGATES if getattr(self, name)), None)
        return None if name is None else (name, "" if name == "count" else getattr(self, name))


class ViewConfig(_Shown):
    """What a document is: one for each row of `root`."""

    root: str = Field(
        description="The table that gives one document a row; or a stream, then it is one for each of its documents.",
        examples=["public.products", "page_minute"],
    )
    key: KeyColumns | None = Field(
        default=None,
        description="The unique key of the root by which documents are found, in place of the primary one. A row whose "
        "key changes leaves the one place and comes to the other; one whose key is null has no document.",
        examples=["slug"],
    )
    columns: Columns | None = Field(
        default=None,
        description="Columns to show: a list, or a mapping {name in the document: column}. All if left out.",
        examples=["[id, title]", "{id: id, called: name}"],
    )
    computed: Computed = Field(
        default_factory=dict,
        description=_COMPUTED,
        examples=["{type: \"'book'\", title_key: lower(title)}"],
    )
    where: str | None = Field(
        default=None,
        description="Which rows of the root have a document ([where](where.md)). All if left out.",
        examples=["stock > 0"],
    )
    one: dict[str, OneConfig] = Field(
        default_factory=dict,
        description="Rows that the root's row refers to, by the names that they have in the document "
        "([views](views.md)).",
        examples=["{customer: {table: public.customers, by: customer_id, columns: [name, tier]}}"],
    )
    many: dict[str, ManyConfig] = Field(
        default_factory=dict,
        description="Rows that refer to the root's row, by the names that their lists have in the document.",
        examples=["{lines: {table: public.order_lines, by: order_id, order_by: [line]}}"],
    )
    atomic: bool = Field(
        default=False,
        description="For a view of one table: never show a state from inside of a transaction. A view of several "
        "tables never does.",
        examples=["true"],
    )
    shards: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Into how many parts the rows of a view of several tables are split. The documents are the same.",
        examples=["4"],
    )

    @model_validator(mode="after")
    def _whole_with_key(self) -> ViewConfig:
        if self.key is not None and self.shards > 1:
            raise ValueError("has `key` and `shards`: a row could come from one shard to another")
        return self

    @property
    def stream(self) -> str:
        """The stream whose documents are its root; empty where that is a table, whose name has a schema."""
        return "" if "." in self.root else self.root

    @property
    def root_table(self) -> str:
        """The full name of its root among tables: that of a stream has no schema before the point."""
        return join_name("", self.root) if self.stream else self.root

    @property
    def joined(self) -> bool:
        """Whether its documents are built into a log of their own: it takes several tables, whole transactions, or what
        a stream has computed, what is computed here, or has a key of its own.
        """
        if self.one or self.many or self.atomic or self.stream or self.computed or self.key:
            return True
        return self.where is not None and parse(self.where).computes


Relation = OneConfig | ManyConfig
Expression = tuple[tuple[str, ...], str, str]
"""Where it stands below the view, the full name of its table, and the text."""


def relations(above: ViewConfig | Relation) -> Iterable[tuple[str, str, Relation]]:
    """(`one` or `many`, name, relation) of each relation right below."""
    yield from (("one", name, relation) for name, relation in above.one.items())
    yield from (("many", name, relation) for name, relation in above.many.items())


def conditions(above: ViewConfig | Relation, table: str, at: tuple[str, ...] = ()) -> Iterator[Expression]:
    """Each `where` of a view, its own and those of its relations at any depth. `table`: what `above` is of."""
    if above.where is not None:
        yield (*at, "where"), table, above.where
    for kind, name, relation in relations(above):
        yield from conditions(relation, relation.table, (*at, kind, name))
