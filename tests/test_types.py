"""Which columns are carried, and which are refused because the log would change or lose their values."""

from __future__ import annotations

import pytest

from driftless.table import Column
from driftless.types import RULES, refusal


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_type_with_a_rule_is_carried(name: str) -> None:
    assert refusal(Column("c", name)) is None


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(Column("c", "name"), id="name: changes leave it out, a snapshot has it"),
        pytest.param(Column("c", "time", array=True), id="time[]: cut to milliseconds, and 24:00 becomes 00:00"),
        pytest.param(Column("c", "mood", kind="e", array=True), id="enum[]: null where one element is null"),
        pytest.param(Column("c", "int4", array=True, dimensions=2), id="int[][]: nulls for its rows"),
        pytest.param(Column("c", "int4", generated=True), id="generated: not in the log"),
        pytest.param(Column("c", "interval"), id="interval: no rule yet"),
    ],
)
def test_what_debezium_was_seen_to_lose_is_refused(column: Column) -> None:
    assert refusal(column) is not None


def test_an_enum_is_carried_by_itself() -> None:
    assert refusal(Column("c", "mood", kind="e")) is None
