"""One document of each view as the source has it now: what `plan` shows beside the changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from connectors.pipeline.views import view_source
from connectors.postgres.client import Postgres, captured_tables
from connectors.postgres.relations import Relation
from driftless import exact
from driftless.config.models import Config
from driftless.errors import SourceError, SourceUnavailable
from driftless.facts.streams import AnalysedStream
from driftless.views.resolve import resolve
from driftless.views.sample import bare, lacking, select_one, shape, shown
from driftless.views.tree import View

SECONDS = 5.0
"""How long a view may take: a plan is looked at by somebody who waits, and the database has other work."""


@dataclass(frozen=True)
class Sample:
    """`document`: with types in place of values, unless those were asked for and read. `note`: what it cannot show.

    As text it is laid out for people.
    """

    document: dict[str, Any]
    note: str = ""

    def __str__(self) -> str:
        return exact.write(self.document, indent=2) + (f"\n  {self.note}" if self.note else "")


def samples(
    config: Config,
    source: Postgres,
    views: Collection[str],
    streams: Mapping[str, AnalysedStream] | None = None,
    *,
    values: bool,
    seconds: float = SECONDS,
) -> dict[str, Sample]:
    """View -> a sample, of those that are named. `streams`: as Spark has analysed them.

    Without `values` none leaves the database: only whether there are rows is asked. A view that cannot be read, or not
    in that time, is no error.
    """
    tables = {name: table for name, table in captured_tables(source, config).items() if table is not None}
    computed = {name: stream.table for name, stream in (streams or {}).items()}
    facts, relations = view_source(config, source, tables, streams=computed), source.relations()
    trees = {name: resolve(name, view, facts)[0] for name, view in config.views.items() if name in views}
    return {
        name: _sample(view, source, relations, values=values, seconds=seconds)
        for name, view in trees.items()
        if view is not None
    }


def _sample(view: View, source: Postgres, relations: Mapping[str, Relation], *, values: bool, seconds: float) -> Sample:
    by_type = shape(view)
    if view.stream:
        return Sample(by_type, f"no sample: it is of what the stream {view.stream} computes")
    if closed := [name for name in view.tables if not _readable(view, relations[name])]:
        return Sample(by_type, f"no sample: the role may not read {', '.join(closed)} yet")
    try:
        text = source.first_document(select_one(view) if values else select_one(bare(view), cut=0), seconds)
    except SourceUnavailable:
        raise
    except SourceError as exc:
        return Sample(by_type, f"no sample: {exc}")
    if text is None:
        return Sample(by_type, f"no row to show yet{'' if view.where is None else ': none passes `where`'}")
    document = exact.read(text)
    if values:
        return Sample(shown(view.root, document))
    none = ", ".join(lacking(view.root, document))
    return Sample(by_type, f"none in the row that was read: {none}" if none else "")


def _readable(view: View, relation: Relation) -> bool:
    read = {column.name for column in view.tables[relation.full_name].columns}
    return relation.usable_schema and read.isdisjoint(relation.unreadable)
