"""What the stores would make of documents, where a column that came or went has left a mapping out of step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftless.config.models import Config


def notes(config: Config, source: Any, streams: Mapping[str, Any]) -> list[Any]:
    """Findings of connectors/pipeline/check.py that stop nothing. Asks the source, and no store. `streams`: as Spark
    has analysed them.
    """
    import sinks
    from connectors.pipeline.check import Finding
    from connectors.pipeline.views import view_source
    from connectors.postgres.client import captured_tables
    from driftless.views.resolve import resolve
    from driftless.views.sample import shape

    tables = {name: table for name, table in captured_tables(source, config).items() if table is not None}
    computed = {name: stream.table for name, stream in streams.items()}
    facts, found = view_source(config, source, tables, streams=computed), []
    for name, follower in config.followers.items():
        if follower.view not in config.views:
            continue
        tree, _ = resolve(follower.view, config.views[follower.view], facts)
        if tree is None:
            continue
        model = sinks.config_model(follower.kind).model_validate(dict(follower.sink))
        for field, what in model.notes(shape(tree)):
            found.append(Finding(config.at(("followers", name, follower.kind, field), what), fatal=False))
    return found
