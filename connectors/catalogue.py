"""What the catalogue says against what is registered of a table: DDL, and what it does to rows, is not in the log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from connectors.postgres import Postgres, Storage, captured_tables
from driftless import names
from driftless.config import Config
from driftless.control import State
from driftless.table import Column, Table
from driftless.types import refusal

Facts = dict[str, dict[str, Any] | None]


def table_facts(source: Postgres, pipeline: str, table: Table) -> Facts:
    """What is registered of a table, as it reads back from JSON, where tuples are lists."""
    name = table.full_name
    facts: Facts = {f"table/{name}": table.to_json(), f"storage/{name}": asdict(source.storage(table))}
    facts[f"carried/{name}"] = {"by": source.carried(names.publication(pipeline)).get(name)}
    plain: Facts = json.loads(json.dumps(facts))
    return plain


def why_anew(source: Postgres, pipeline: str, table: Table, facts: Facts) -> str:
    """Why the log no longer says what the table holds, which was registered as `facts`; empty where it does.

    Another key, another type, a rewrite, a column that comes with values or under another name, a publication that did
    not carry it all the time.
    """
    fact = facts.get(f"table/{table.full_name}")
    if fact is None:
        return ""
    registered = Table.from_json(fact)
    if reason := _rewritten(source, table, registered, facts.get(f"storage/{table.full_name}")):
        return reason
    carried = source.carried(names.publication(pipeline)).get(table.full_name)
    if reason := not_carried(facts.get(f"carried/{table.full_name}"), carried):
        return reason
    added = [name for name in _added(registered, table) if source.any_value(table.full_name, name)]
    return f"{', '.join(added)} came with values that the log does not have" if added else ""


def changes(config: Config, source: Postgres, state: State) -> Iterator[tuple[str, str]]:
    """Every registered table that is no longer as it was registered, and in what; reads no row."""
    for name, table in captured_tables(source, config).items():
        fact = state.get(f"table/{name}")
        if fact is None:
            continue
        if table is None:
            yield name, "it is gone"
            continue
        registered = Table.from_json(fact)
        if reason := _rewritten(source, table, registered, state.get(f"storage/{name}")):
            yield name, reason
        elif added := _added(registered, table):
            yield name, f"it has a new column: {', '.join(added)}"
        elif dropped := _added(table, registered):
            yield name, f"it has no column {', '.join(dropped)} any more"


def _rewritten(source: Postgres, table: Table, registered: Table, storage: dict[str, Any] | None) -> str:
    if table.needs_full_identity and table.replica_identity != "f":
        return "its replica identity is not full: large values that an UPDATE left alone are missing"
    if registered.key != table.key:
        return f"its key was ({', '.join(registered.key)}) and is ({', '.join(table.key)})"
    old, new = _columns(registered), _columns(table)
    if changed := sorted(name for name in old.keys() & new.keys() if old[name] != new[name]):
        return f"the type of {', '.join(changed)} changed"
    return "" if storage is None else source.storage(table).changed(Storage(**storage))


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
