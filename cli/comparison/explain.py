"""Why one document is as it is: what each stage holds of one key, and where they first differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute

from connectors.pipeline.token import emit_marker
from connectors.postgres.client import Postgres
from connectors.postgres.source_snapshot import document as source_document
from driftless import exact
from driftless.config.models import Config
from driftless.control.quarantine import QuarantineLog
from driftless.control.topic import Control
from driftless.control.wait import Positions
from driftless.errors import ConfigError, SinkError, SyncError
from driftless.facts.epochs import FollowedTable
from driftless.facts.generation import Generation, readers_generation
from driftless.facts.state import State
from driftless.lsn import format_lsn
from driftless.verify.canonical import canonical
from driftless.version import split_version
from driftless.views.sql import select
from driftless.views.tree import View, one_table
from jobs.follow.job_spec import arrow_documents, make_job
from jobs.spark.arrow import ArrowRows
from jobs.spark.public import ClientConsumer
from jobs.spark.source import LogSource, kafka_options

pc: Any = pyarrow.compute
LOOKS = 4
WAIT_SECONDS = 10.0
"""So long what is committed now may take to arrive: else a change that is on its way would look like drift."""


@dataclass(frozen=True)
class Stage:
    """What one stage holds of the key. `document`: JSON text, None where it has none. `version`: of what it holds.

    `where`: its place in words. `known`: it could be read. `compared`: it has to be as the stage before it. `note`: why
    not, or what else is to be said. `of_follower`: what readers of a follower see; each is compared with the log.
    """

    name: str
    where: str
    version: int | None = None
    document: str | None = None
    known: bool = True
    compared: bool = True
    note: str = ""
    of_follower: bool = False

    def same(self, other: Stage) -> bool:
        """Whether it holds the same document, by exact value."""
        if self.document is None or other.document is None:
            return self.document is other.document
        return canonical(self.document) == canonical(other.document)


@dataclass
class Explanation:
    """`lsn`: all that is committed up to it has arrived, unless `late` says who has not got there. `changing`: it was
    another one whenever it was looked at.
    """

    follower: str
    key: str
    lsn: int
    late: list[str] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    changing: bool = False

    @property
    def first_different(self) -> tuple[Stage, Stage] | None:
        """The first stage that does not hold what the one before it holds, and that one."""
        chain = [stage for stage in self.stages if stage.known and stage.compared]
        followers = [stage for stage in chain if stage.of_follower]
        above = [stage for stage in chain if not stage.of_follower]
        for before, after in pairwise(above):
            if not after.same(before):
                return before, after
        return next(((above[-1], one) for one in followers if above and not one.same(above[-1])), None)

    @property
    def fields(self) -> list[str]:
        """The members of the document that differ there; empty where one of the two has none."""
        found = self.first_different
        if found is None:
            return []
        read = [exact.read_object(stage.document or "null") for stage in found]
        if None in read:
            return []
        one, other = (part or {} for part in read)
        return sorted(n for n in one.keys() | other.keys() if exact.write(one.get(n)) != exact.write(other.get(n)))

    @property
    def verdict(self) -> str:
        """A sentence for the operator."""
        found = self.first_different
        if found is None:
            there = any(stage.document is not None for stage in self.stages if stage.compared)
            return "every stage holds the same" if there else "no stage holds a document of this key"
        before, after = found
        what = "has no document" if after.document is None else "has a document that should not be there"
        if after.document is not None and before.document is not None:
            what = f"differs in {', '.join(self.fields)}" if self.fields else "differs"
        late = "; what is committed has not all arrived yet, so it may be on its way" if self.late else ""
        late += "; it changed whenever it was looked at, so look again" if self.changing else ""
        note = f" ({after.note})" if after.note else ""
        return f"{after.name} {what}{note}, and {before.name} is the last that is right{late}"

    def to_json(self, *, values: bool) -> dict[str, Any]:
        """`values`: with the documents."""
        found = self.first_different
        return {
            "follower": self.follower,
            "key": self.key,
            "lsn": format_lsn(self.lsn),
            "late": self.late,
            "changing": self.changing,
            "first_different": None if found is None else found[1].name,
            "fields": self.fields,
            "verdict": self.verdict,
            "stages": [
                {
                    "name": stage.name,
                    "where": stage.where,
                    "version": stage.version,
                    "offset": None if stage.version is None else split_version(stage.version)[1],
                    "epoch": None if stage.version is None else split_version(stage.version)[0],
                    "present": stage.document is not None if stage.known else None,
                    "compared": stage.compared,
                    "note": stage.note,
                    **({"document": stage.document and exact.read(stage.document)} if values else {}),
                }
                for stage in self.stages
            ],
        }


def explain(config: Config, control: Control, follower: str, key: str) -> Explanation:
    """Look at every stage, and at all followers of the same view. Reads the whole log of the table, or of the view.

    Stages are looked at one after another. So where they differ they are looked at again, until twice they are the same
    or a document that changes all the time has been looked at often enough.
    """
    if readers_generation(control.read(), follower) is None:
        raise ConfigError(f"the follower `{follower}` has not been applied yet", hint="run `driftless apply` first")
    before = _looked(config, control, follower, key)
    for _ in range(LOOKS):
        if before.first_different is None:
            return before
        after = _looked(config, control, follower, key)
        if after.stages == before.stages:
            return after
        before = after
    before.changing = True
    return before


def _looked(config: Config, control: Control, follower: str, key: str) -> Explanation:
    found = Explanation(follower, key, 0)
    with Postgres(config.source.dsn) as source, Positions(control) as positions:
        found.lsn = source.lsn()
        found.late = positions.wait(
            [follower], found.lsn, WAIT_SECONDS, lambda: emit_marker(source, config.name), start=WAIT_SECONDS
        )
    state, view = control.read(), config.followers[follower].view
    generation = readers_generation(state, follower)
    if generation is None:
        raise SinkError(f"{follower} was removed", hint="`driftless apply` makes it again")
    found.stages += _source_stages(config, state, generation, key)
    found.stages += _log_stages(config, control, state, follower, generation, key)
    for name, entry in config.followers.items():
        if entry.view == view and (seen := readers_generation(state, name)) is not None:
            found.stages.append(_follower_stage(config, control, state, name, seen, key))
    return found


def _tree(state: State, generation: Generation) -> View | None:
    """The view as the source is asked for it; None for a stream, which no table holds."""
    if generation.stream:
        return None
    build = generation.followed.build(state)
    if build is None:
        return one_table(generation.view, generation.table, generation.fields, generation.where)
    return None if build.view.stream else build.view


def _source_stages(config: Config, state: State, generation: Generation, key: str) -> Iterator[Stage]:
    view = _tree(state, generation)
    if view is None:
        yield Stage("source", "no table has it", known=False, note="a stream computes it: `driftless verify` proves it")
        return
    text = source_document(config.source.dsn, select(view), key)
    yield Stage("source", f"the view over {view.root.table} and what it shows", document=text)


def _log_stages(
    config: Config, control: Control, state: State, follower: str, generation: Generation, key: str
) -> Iterator[Stage]:
    """The log that the follower reads; before it, of a view of several tables, the root's own."""
    job = make_job(config, follower, generation, state, control.kafka)
    build = generation.followed.build(state)
    table = None if build is None else build.view.tables.get(build.view.root.table)
    # By another unique key the log does not find the row.
    if build is not None and table is not None and not build.view.stream and table.key == generation.table.key:
        log = FollowedTable(table.full_name, build.epochs[table.full_name]).topic(state)
        rows = arrow_documents(config, state, table, {column.name: column.name for column in table.columns}, log)
        source = LogSource(log.topic, kafka_options(control.kafka, "why"), (), (), rows, control.kafka)
        note = "the root's row alone, with the columns that the view reads"
        yield _newest(source, log.floor, "table-log", key, note=note, compared=False)
    if generation.followed.ours:
        yield _newest(job.source, job.log.floor, "view-log" if not generation.stream else "stream-log", key)
        return
    source, note = job.source, ""
    if generation.where is not None:
        rows = arrow_documents(config, state, generation.table, generation.fields, job.log)
        source = replace(source, arrow=rows)
        note = f"the view shows rows where {generation.where}"
    yield _newest(source, job.log.floor, "table-log", key, note=note, compared=generation.where is None)


def _newest(
    source: LogSource, floor: dict[int, int], name: str, key: str, *, note: str = "", compared: bool = True
) -> Stage:
    """The newest record of a key."""
    assert source.kafka is not None
    decoder = source.arrow
    if decoder is None:
        why = "a column's type is decoded by Spark alone: `driftless verify --values` shows it"
        return Stage(name, source.topic, known=False, note=why)
    newest: dict[str, Any] | None = None
    unusual = False
    for some in _decoded(source, decoder, floor):
        if some is None:
            unusual = True
            continue
        for row in some.filter(pc.equal(some["key"], key)).to_pylist():
            newest = row if newest is None or row["version"] > newest["version"] else newest
    said = [note, "some records are unusual, and were left out: `driftless verify` reads them"] if unusual else [note]
    told = "; ".join(filter(None, said))
    if newest is None:
        return Stage(name, source.topic, known=not unusual, compared=compared, note=told)
    place = f"{source.topic}, partition {newest['partition']}, offset {newest['offset']}"
    # Among records that were left out there may be a newer one.
    held = newest["version"], newest["document"]
    return Stage(name, place, *held, known=not unusual, compared=compared, note=told)


def _decoded(source: LogSource, decoder: ArrowRows, floor: dict[int, int]) -> Iterator[pa.Table | None]:
    """Every record from the floor to the end as it is now; None for some that only Spark decodes."""
    assert source.kafka is not None
    end = source.kafka.committed_ends(source.topic, len(floor))
    begin = {p: min(offset, end[p]) for p, offset in floor.items()}
    for poll in ClientConsumer(source).polls(begin, end):
        if poll.records is not None and len(poll.records):
            yield decoder.rows(poll.records)


def _follower_stage(
    config: Config, control: Control, state: State, follower: str, generation: Generation, key: str
) -> Stage:
    """What readers see of it, with its version."""
    name = f"follower {follower}"
    held = QuarantineLog(control.kafka, config.name).read(follower, generation.number)
    note = next((f"quarantined: {one.reason}" for one in held if one.key == key), "")
    try:
        with closing(make_job(config, follower, generation, state, control.kafka).spec.open()) as sink:
            rows: Sequence[dict[str, Any]] = sink.read(generation.number, [key]).to_pylist()
    except SyncError as exc:
        return Stage(name, generation.kind, known=False, note=str(exc), of_follower=True)
    where = f"{generation.kind}, generation {generation.number}"
    if not rows:
        return Stage(name, where, note=note, of_follower=True)
    return Stage(name, where, rows[0]["version"], rows[0]["document"], note=note, of_follower=True)
