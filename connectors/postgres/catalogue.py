"""What the catalogue says against what is registered of a table: DDL, and what it does to rows, is not in the log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from connectors.postgres.client import Postgres, captured_tables
from connectors.postgres.server import Partition, Storage
from driftless import names
from driftless.config.models import Config
from driftless.facts.state import State
from driftless.table import Column, Table, quoted_column
from driftless.types import refusal

Facts = dict[str, dict[str, Any] | None]


@dataclass(frozen=True)
class CatalogueFacts:
    """What the catalogue says beside the columns: where tables are kept, and how the publication carries them."""

    storages: Mapping[str, Storage]
    carried: Mapping[str, str]

    def facts(self, table: Table) -> Facts:
        """What is registered of a table, as it reads back from JSON, where tuples are lists."""
        name = table.full_name
        facts: Facts = {f"table/{name}": table.to_json(), f"storage/{name}": self.storages[name].to_json()}
        facts[f"carried/{name}"] = {"by": self.carried.get(name)}
        plain: Facts = json.loads(json.dumps(facts))
        return plain


def look_up(source: Postgres, pipeline: str, tables: Iterable[Table]) -> CatalogueFacts:
    """As it is now, of tables that exist."""
    return CatalogueFacts(source.storages(tables), source.carried(names.publication(pipeline)))


def table_facts(source: Postgres, pipeline: str, table: Table) -> Facts:
    """What is registered of a table, as it is now."""
    return look_up(source, pipeline, [table]).facts(table)


def why_resnapshot(source: Postgres, found: CatalogueFacts, table: Table, facts: Facts) -> str:
    """Why the log no longer says what the table holds, which was registered as `facts`; empty where it does.

    Another key, another type, a rewrite, a column that comes with values or under another name, a publication that did
    not carry it all the time.
    """
    fact = facts.get(f"table/{table.full_name}")
    if fact is None:
        return ""
    registered = Table.from_json(fact)
    name = table.full_name
    if reason := _rewritten(found.storages.get(name), table, registered, facts.get(f"storage/{name}")):
        return reason
    if reason := not_carried(facts.get(f"carried/{name}"), found.carried.get(name)):
        return reason
    added = [name for name in _added(registered, table) if source.any_value(table.full_name, name)]
    return f"{', '.join(added)} came with values that the log does not have" if added else ""


@dataclass(frozen=True)
class CatalogueLook:
    """The captured tables as the catalogue has them now; None for one that is gone."""

    tables: Mapping[str, Table | None]
    storages: Mapping[str, Storage]
    partitions: Mapping[str, Sequence[Partition]]

    @classmethod
    def of(cls, config: Config, source: Postgres) -> CatalogueLook:
        tables = captured_tables(source, config)
        there = [table for table in tables.values() if table is not None]
        return cls(tables, source.storages(there), source.partitions(there))

    def changes(self, state: State) -> Iterator[tuple[str, str]]:
        """Every registered table that is no longer as it was registered, and in what."""
        for name, table in self.tables.items():
            fact = state.get(f"table/{name}")
            if fact is None:
                continue
            if table is None:
                yield name, "it is gone"
                continue
            registered = Table.from_json(fact)
            if reason := _rewritten(self.storages.get(name), table, registered, state.get(f"storage/{name}")):
                yield name, reason
            elif said := columns_said(registered, table) or self._of_partitions(table):
                yield name, said

    def _of_partitions(self, table: Table) -> str:
        """What is to be done about a partition, or cannot be; empty where there is nothing."""
        partitions = self.partitions.get(table.full_name, ())
        unready = [p.full_name for p in partitions if p.holds_rows and (not p.tells or identity(table, p.identity))]
        if unready:
            return f"its partition {unready[0]} is new, and not ready yet"
        return next((obstacle for p in partitions if (obstacle := p.obstacle())), "")

    def new_partitions(self, state: State) -> Facts:
        """What is to be registered of tables that got partitions, all of whose rows are in the log: so that it is seen
        when these go, however soon.
        """
        found: Facts = {}
        for name in self.partitions:
            storage = self.storages[name]
            fact: dict[str, Any] | None = state.get(f"storage/{name}")
            if fact is not None and not storage.changed(Storage(**fact)):
                known = fact.get("partitions", {})
                if more := {oid: what for oid, what in storage.partitions.items() if oid not in known}:
                    found[f"storage/{name}"] = {**fact, "partitions": {**known, **more}}
        return found


def identity(table: Table, found: str) -> tuple[str, str] | None:
    """The replica identity that a table, or a partition of it, is to have in place of the one found, and why; None
    where that one does.
    """
    if table.needs_full_identity and found != "f":
        return "full", ", so that large values an UPDATE did not touch stay in the log"
    if found in ("d", "f") or (found == "i" and not table.partitioned):
        return None
    if table.key_index:
        why = ": it has no primary key, and is keyed by this unique index"
        return f"using index {quoted_column(table.key_index)}", why
    return "full", ": as it is, Postgres would refuse its updates, or the log would not hold its key"


def columns_said(before: Table, after: Table) -> str:
    """Which columns came and which are gone; empty where none did. One each of the same type may be one column."""
    if before.columns == after.columns:
        return ""
    added, gone = _added(before, after), _added(after, before)
    said = [f"it has a new column: {', '.join(added)}"] if added else []
    said += [f"it has no column {', '.join(gone)} any more"] if gone else []
    renamed = renamings(before, after)
    said += [f"{old} may have been renamed to {new}" for old, new in renamed.items()]
    return "; ".join(said)


def renamings(before: Table, after: Table) -> dict[str, str]:
    """Old name -> new name, where exactly one column is gone, exactly one came, and both have one type."""
    added, gone = _added(before, after), _added(after, before)
    if len(added) != 1 or len(gone) != 1:
        return {}
    old, new = _columns(before)[gone[0]], _columns(after)[added[0]]
    return {old.name: new.name} if replace(old, name=new.name) == new else {}


def gone_columns(state: State, tables: Mapping[str, Table]) -> dict[tuple[str, str], str]:
    """(table, column) -> what is to be said of a column that was registered and is not there any more."""
    found = {}
    for name, table in tables.items():
        fact = state.get(f"table/{name}")
        registered = table if fact is None else Table.from_json(fact)
        added, renamed = _added(registered, table), renamings(registered, table)
        for column in _added(table, registered):
            if column in renamed:
                said = f" any more; the column {renamed[column]} is new: was it renamed?"
            else:
                said = f" any more; new are: {', '.join(added)}" if added else " any more: take it out"
            found[name, column] = said
    return found


def _rewritten(now: Storage | None, table: Table, registered: Table, storage: dict[str, Any] | None) -> str:
    if table.needs_full_identity and table.replica_identity != "f":
        return "its replica identity is not full: large values that an UPDATE left alone are missing"
    if registered.key != table.key:
        return f"its key was ({', '.join(registered.key)}) and is ({', '.join(table.key)})"
    old, new = _columns(registered), _columns(table)
    if changed := sorted(name for name in old.keys() & new.keys() if old[name] != new[name]):
        return f"the type of {', '.join(changed)} changed"
    return "" if storage is None or now is None else now.changed(Storage(**storage))


LEAVING = "leaving"
"""Marks a table that `apply` takes out, before it takes it out of the publication."""


def not_carried(registered: dict[str, Any] | None, carried: str | None) -> str:
    """Why changes of a table may be missing: the publication does not carry it as it did when it was registered."""
    known = None if registered is None else registered["by"]
    if registered is None or known is None or known == carried:
        return ""
    if carried is None and registered.get(LEAVING):
        return ""  # a run that was started with it in sync.yaml has nothing to say about that
    if carried is None:
        return "it is not in the publication any more, so its changes are missing from the log"
    return "its entry in the publication is another one: what changed in between is missing from the log"


def _added(before: Table, after: Table) -> list[str]:
    """Columns that documents can show, and that were not there before."""
    old, new = _columns(before), _columns(after)
    return sorted(name for name in new.keys() - old.keys() if refusal(new[name]) is None)


def _columns(table: Table) -> dict[str, Column]:
    return {column.name: replace(column, toastable=False) for column in table.columns}
