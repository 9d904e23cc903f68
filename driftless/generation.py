"""What a generation of a follower is built from, so that a change of it is noticed before anything is written."""

from __future__ import annotations

import hashlib
import json

from driftless.config import Config
from driftless.table import Table
from driftless.types import refusal
from driftless.where import parse


def view_fields(config: Config, view: str, table: Table) -> dict[str, str]:
    """Name in the document -> column, with what the view leaves open taken from the table as it is now."""
    return config.views[view].fields(tuple(column.name for column in table.columns if refusal(column) is None))


def generation_definition(config: Config, follower: str, table: Table) -> dict[str, object]:
    """The fact that is registered for a generation. Where it is reached does not belong to it: a store may move."""
    entry = config.followers[follower]
    fields = view_fields(config, entry.view, table)
    where = config.views[entry.view].where
    read = [*fields.values(), *(sorted(parse(where).columns) if where else ())]
    types = {name: [column.type, column.array] for name in read if (column := table.column(name))}
    sink = {key: value for key, value in entry.sink.items() if key not in ("url", "retry_seconds", "request_seconds")}
    built_from = {
        "view": entry.view,
        "root": table.full_name,
        "key": list(table.key),
        "kind": entry.kind,
        "fields": fields,
        "types": types,
        "sink": sink,
        **({"where": where} if where else {}),
    }
    digest = hashlib.sha256(json.dumps(built_from, sort_keys=True).encode()).hexdigest()[:16]
    return {"view": entry.view, "kind": entry.kind, "fields": fields, "fingerprint": digest}
