"""Since when every record of a table's log has a column: one that lacks it is older, or the column is gone.

Debezium writes a column that is null as null. So a record without one is of a row as it was before the column came, or
after it was renamed or dropped, and then the value is not null but lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from driftless.facts.state import State

Facts = dict[str, dict[str, object] | None]


def known_since(state: State, table: str, epoch: int) -> dict[str, int]:
    """Column -> the position of the source from which each record of a table's epoch has it; 0 for all of its records.

    Nothing is known of a column that is not there, as where an older version of driftless registered the table.
    """
    for number in range(epoch, 0, -1):
        fact = state.get(_key(table, number))
        if fact is not None:
            return {column: int(str(lsn)) for column, lsn in fact.items()}
    return {}


def since_the_start(table: str, epoch: int, columns: Iterable[str]) -> Facts:
    """What to register of an epoch that begins with all rows as they are: each record has all columns."""
    return {_key(table, epoch): dict.fromkeys(columns, 0)}


def since_now(table: str, epoch: int, known: Mapping[str, int], columns: Iterable[str], lsn: int) -> Facts:
    """The same where columns came later, and no row was read again. `lsn`: of the source, when they were there."""
    return {_key(table, epoch): {**dict.fromkeys(columns, lsn), **known}}


def forget(table: str, epochs: int) -> Facts:
    """What to write where a table is taken out that had so many epochs."""
    return dict.fromkeys(_key(table, number) for number in range(1, epochs + 1))


def _key(table: str, epoch: int) -> str:
    return f"since/{epoch}/{table}"
