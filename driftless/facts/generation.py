"""Generations: what each build of a follower is made from, recorded so that it can be followed whatever changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from driftless.config.models import Config, FollowerConfig
from driftless.facts.builds import FollowedView
from driftless.facts.epochs import FollowedTable
from driftless.facts.followed_log import FollowedLog
from driftless.facts.state import State
from driftless.facts.streams import FollowedStream, newest_stream_build
from driftless.table import Table
from driftless.types import refusal
from driftless.where.clause import parse


def view_fields(config: Config, view: str, table: Table) -> dict[str, str]:
    """Name in the document -> column, with what the view leaves open taken from the table as it is now; of a stream
    all, under their own names.
    """
    if view in config.streams:
        return {column.name: column.name for column in table.columns}
    return config.views[view].fields(tuple(column.name for column in table.columns if refusal(column) is None))


def followed_table(config: Config, follower: str, state: State) -> Table | None:
    """What a follower's documents are made of, as it is registered: its view's root, or the columns of its stream. None
    where that was not applied yet.
    """
    root, stream = config.table_of(follower), config.stream_of(follower)
    if stream is not None:
        build = newest_stream_build(state, stream)
        return None if build is None else build.table
    fact = state.get(f"table/{root}")
    return None if fact is None else Table.from_json(fact)


@dataclass(frozen=True)
class Generation:
    """One build of a follower. Everything that following it needs but for the store's address and secrets.

    `table`: as it was when the generation was begun, with the columns that it shows. `epoch`: of the table's log, at
    whose floor it begins. `build`: of a view of several tables, whose topic it follows; 0 where it follows the table's
    own. `stream`: the same of a stream. `auto_promote`: promoted as soon as it is built and checked. `promoted_at`,
    `retired_at`: seconds since 1970, by the broker's clock, at which readers began and ceased to see it.
    """

    number: int
    view: str
    table: Table
    kind: str
    fields: dict[str, str]
    sink: dict[str, Any]
    where: str | None
    fingerprint: str
    epoch: int = 1
    build: int = 0
    stream: int = 0
    auto_promote: bool = True
    promoted_at: float | None = None
    retired_at: float | None = None

    def to_json(self) -> dict[str, object]:
        """Under the names that facts have: `by_itself` is `auto_promote`."""
        facts = {**asdict(self), "table": self.table.to_json(), "by_itself": self.auto_promote}
        del facts["number"], facts["auto_promote"]
        if not self.stream:  # as versions without streams read it
            del facts["stream"]
        return facts

    @classmethod
    def from_json(cls, number: int, facts: Mapping[str, Any]) -> Generation:
        fields = {"by_itself": True, **facts}
        auto_promote, table = fields.pop("by_itself"), Table.from_json(fields.pop("table"))
        return cls(number=number, table=table, auto_promote=auto_promote, **fields)

    def same_definition(self, wanted: Generation) -> bool:
        """Whether it holds what another would: built of the same, from the same place of the same log."""
        return (self.fingerprint, self.followed) == (wanted.fingerprint, wanted.followed)

    @property
    def followed(self) -> FollowedLog:
        """The log that it follows. Nobody else asks which kind it is."""
        if self.stream:
            return FollowedStream(self.view, self.stream)
        if self.build:
            return FollowedView(self.view, self.build)
        return FollowedTable(self.table.full_name, self.epoch)

    def settings(self, entry: FollowerConfig) -> dict[str, Any]:
        """The sink's configuration: what this generation was begun with, reached as sync.yaml says now."""
        return {**self.sink, **{key: value for key, value in entry.sink.items() if key in entry.access}}


def define(
    config: Config,
    follower: str,
    table: Table,
    *,
    log: FollowedLog | None = None,
    number: int = 1,
    auto_promote: bool = True,
) -> Generation:
    """The generation that the configuration and the table ask for.

    `log`: what it follows, with its fingerprint where that is ours; the table's own from its first epoch if left out.
    """
    log = log or FollowedTable(table.full_name)
    entry = config.followers[follower]
    fields = view_fields(config, entry.view, table)
    view = None if entry.view in config.streams else config.views[entry.view]
    where = None if view is None else view.where
    table = table if view is None or view.key is None else replace(table, key=view.key)
    shown = {*fields.values(), *table.key, *(parse(where).columns if where else ())}
    table = table.part(shown)
    sink = {key: value for key, value in entry.sink.items() if key not in entry.access}
    built_from = {
        "view": entry.view,
        "root": table.full_name,
        "key": list(table.key),
        "kind": entry.kind,
        "fields": fields,
        "types": {column.name: [column.type, column.array] for column in table.columns},
        "sink": sink,
        **({"where": where} if where else {}),
        **({"built": log.fingerprint} if log.fingerprint else {}),
    }
    digest = hashlib.sha256(json.dumps(built_from, sort_keys=True).encode()).hexdigest()[:16]
    place = log.to_json()
    return Generation(
        number, entry.view, table, entry.kind, fields, sink, where, digest, auto_promote=auto_promote, **place
    )


def generations(state: State, follower: str) -> dict[int, Generation]:
    """Every generation of a follower that there is, by number, oldest first."""
    facts = state.by_prefix(f"generation/{follower}")
    return {n: Generation.from_json(n, facts[str(n)].value) for n in sorted(map(int, facts))}


def newest(state: State, follower: str) -> Generation | None:
    """The generation that was begun last."""
    known = generations(state, follower)
    return known[max(known)] if known else None


def readers_generation(state: State, follower: str) -> Generation | None:
    """The one that readers see, else the one that was begun last; None where there is none."""
    known = generations(state, follower)
    live = [n for n in known if (state.get(f"follower/{follower}/{n}") or {}).get("live")]
    return known[live[0] if live else max(known)] if known else None


def label(follower: str, number: int) -> str:
    """What to call a generation before an operator."""
    return follower if number == 1 else f"{follower} (generation {number})"


def renewed(generation: Generation, state: State, follower: str) -> Generation:
    """The same once more, from where its log now begins."""
    fresh = replace(
        generation, number=next_number(state, follower), auto_promote=True, promoted_at=None, retired_at=None
    )
    return replace(fresh, **generation.followed.newest(state).to_json())


def next_number(state: State, follower: str) -> int:
    """A number that no generation of this follower ever had: an old one's leftovers must not meet a new one's."""
    last = state.get(f"last/{follower}") or {"number": 0}
    return max([int(str(last["number"])), *generations(state, follower)]) + 1


def begin_facts(follower: str, generation: Generation) -> dict[str, dict[str, object] | None]:
    """What to write into the control topic to begin a generation; whoever runs the follower then builds it."""
    return {
        f"generation/{follower}/{generation.number}": generation.to_json(),
        f"last/{follower}": {"number": generation.number},
    }


def end_keys(follower: str, number: int) -> list[str]:
    """The facts to forget with a generation that has been dropped."""
    return [f"generation/{follower}/{number}", f"follower/{follower}/{number}"]
