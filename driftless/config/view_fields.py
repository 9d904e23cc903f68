"""Fields of a view and its relations: lists of columns, keys, what is computed, and the way to another table."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator

from driftless.config.base import Model


def _shape(columns: object) -> str:
    return "mapping" if isinstance(columns, dict) else "list"


def _listed(columns: tuple[str, ...]) -> tuple[str, ...]:
    if columns == ("*",):
        raise ValueError("to show all columns, leave `columns` out")
    if not columns:
        raise ValueError("no column is listed: list some, or leave `columns` out to show all")
    return _once(columns)


def _once(columns: tuple[str, ...]) -> tuple[str, ...]:
    if twice := [name for name, count in Counter(columns).items() if count > 1]:
        raise ValueError(f"lists {', '.join(f'`{name}`' for name in twice)} twice")
    return columns


def _renamed(columns: dict[str, str]) -> dict[str, str]:
    if not columns:
        raise ValueError("no column is named: name some, or leave `columns` out to show all")
    return columns


def _named(computed: dict[str, str]) -> dict[str, str]:
    if "" in computed:
        raise ValueError("has something without a name")
    return computed


def _one_or_several(columns: object) -> object:
    if isinstance(columns, str):
        return (columns,)
    if not (isinstance(columns, list) and columns and all(isinstance(name, str) for name in columns)):
        raise ValueError("write a column, or a list of several: `customer_id`, `[tenant, customer_id]`")
    return columns


def sorted_by(columns: tuple[str, ...]) -> tuple[str, ...]:
    _once(tuple(direction(name)[0] for name in columns))
    return columns


def direction(written: str) -> tuple[str, bool]:
    """(column, whether the greatest comes first) of an entry of `order_by`."""
    name, _, word = written.rpartition(" ")
    return (
        (name.strip(), word.lower() == "desc") if name.strip() and word.lower() in ("asc", "desc") else (written, False)
    )


Columns = Annotated[
    Annotated[tuple[str, ...], AfterValidator(_listed), Tag("list")]
    | Annotated[dict[str, str], AfterValidator(_renamed), Tag("mapping")],
    Discriminator(_shape),
]
Computed = Annotated[dict[str, str], AfterValidator(_named)]
KeyColumns = Annotated[
    tuple[str, ...],
    BeforeValidator(_one_or_several),
    AfterValidator(_once),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array"}]}),
]


class BetweenConfig(Model):
    """A table on the way to the one that is shown."""

    table: str = Field(description="The table.", examples=["public.orders"])
    by: KeyColumns | None = Field(
        default=None,
        description="Its column or columns that hold the key of the row before it on the way.",
        examples=["customer_id"],
    )
    to: KeyColumns | None = Field(
        default=None,
        description="In place of `by`, the columns of the row before it that hold its key.",
        examples=["seller_id"],
    )
    references: KeyColumns | None = Field(
        default=None,
        description="The unique key that they hold. The primary key if left out.",
        examples=["number"],
    )

    @model_validator(mode="after")
    def _one_way(self) -> BetweenConfig:
        if (self.by is None) == (self.to is None):
            raise ValueError("has `by` or `to`: which of the two rows holds the key of the other")
        return self


def _named_or_listed(through: object) -> str:
    return "list" if isinstance(through, list) else "name"


Through = Annotated[
    Annotated[str, Tag("name")] | Annotated[tuple[BetweenConfig, ...], Tag("list")],
    Discriminator(_named_or_listed),
]


def without(relation: Model, field: str, others: tuple[str, ...]) -> None:
    """Raise ValueError where the relation has one of the other fields too."""
    for other in others:
        if getattr(relation, other, None):
            raise ValueError(f"has `{field}` and `{other}`: they do not go together")
