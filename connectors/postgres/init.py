"""Look at a database that was not made for driftless, and propose what of it to follow."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from connectors.postgres.client import Postgres
from connectors.postgres.relations import (
    ForeignKey,
    Owners,
    Relation,
    column_meetings,
    kinds_query,
    meetings,
    owner_columns,
    owners,
    relation_obstacles,
    right_obstacles,
    table_obstacles,
    topic_meetings,
)
from connectors.postgres.worth import framework_of
from driftless.errors import ConfigError
from driftless.suggest import did_you_mean
from driftless.table import Column, Table
from driftless.types import refusal

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_]+")
_SECRET = {"password", "passwd", "passphrase", "pwd", "pw", "pass", "secret", "secrets", "token", "tokens", "salt"}
_SECRET |= {"hash", "otp", "totp", "credential", "credentials", "ssn", "cvv", "cvc", "iban", "passport"}
# In small letters alone, words stand together.
_SECRET |= {"passwordhash", "hashedpassword", "accesstoken", "refreshtoken", "apikey", "privatekey", "creditcard"}
_SECRET_PAIRS = {("api", "key"), ("private", "key"), ("access", "key"), ("encryption", "key"), ("signing", "key")}
_SECRET_PAIRS |= {("credit", "card"), ("card", "number"), ("social", "security"), ("tax", "id"), ("security", "code")}


@dataclass(frozen=True)
class Proposed:
    """A table to capture. `secret`: columns to exclude by their names; `refused`: columns that cannot be carried."""

    table: Table
    secret: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def captured(self) -> Table:
        """The table as the log will have it."""
        return replace(self.table, columns=tuple(c for c in self.table.columns if c.name not in self.secret))

    @property
    def shown(self) -> tuple[Column, ...]:
        """The columns of its documents."""
        return tuple(c for c in self.captured.columns if c.name not in self.refused)


@dataclass(frozen=True)
class Proposal:
    """`left_out`: full name -> every reason, as the rest of a sentence that begins with the name.

    `foreign_keys`: from one proposed table to another or itself. `unique`: the unique keys of the tables that have any.
    `rows`: about how many each table has. `owners`: pairs of columns that name the owner of a row.
    """

    database: str
    tables: tuple[Proposed, ...]
    left_out: dict[str, list[str]]
    foreign_keys: tuple[ForeignKey, ...] = ()
    unique: Mapping[str, Sequence[tuple[str, ...]]] = field(default_factory=dict)
    encoding: str = "UTF8"
    rows: Mapping[str, int] = field(default_factory=dict)
    owners: tuple[Owners, ...] = ()

    def only(self, names: Collection[str]) -> Proposal:
        """The same of some of the tables, with nothing left out."""
        tables = tuple(p for p in self.tables if p.table.full_name in names)
        keys = tuple(key for key in self.foreign_keys if key.table in names and key.to in names)
        owners = tuple(each for each in self.owners if each.table in names)
        return replace(self, tables=tables, left_out={}, foreign_keys=keys, owners=owners)


def propose(source: Postgres, pipeline: str, schemas: Sequence[str] = ()) -> Proposal:
    """Every table that `check` will accept under this name of a pipeline, and the reasons for the rest."""
    relations = source.relations()
    known = {relation.schema for relation in relations.values()}
    if unknown := [schema for schema in schemas if schema not in known]:
        raise ConfigError(
            *(f"--schema: there is no table in a schema {s}{did_you_mean(s, known)}" for s in unknown),
            hint="without --schema, `driftless init` takes the tables of all schemas",
        )
    left_out: dict[str, list[str]] = {}
    tables: dict[str, Proposed] = {}
    looked_at = {
        name: relation
        for name, relation in relations.items()
        if not relation.is_partition and (not schemas or relation.schema in schemas)
    }
    found = source.tables(dict.fromkeys(looked_at, ()))
    for name, relation in looked_at.items():
        table = found.get(name)
        proposed = None if table is None else _proposed(table)
        reasons = list(_reasons(relation, proposed))
        if reasons:
            left_out[name] = reasons
        elif proposed is not None:
            tables[name] = proposed
    for find in (_one_for_debezium, _one_for_kafka):
        for name, reason in list(find(pipeline, tables, relations)):
            left_out.setdefault(name, []).append(reason)
            tables.pop(name, None)
    unique = source.all_unique_keys()
    foreign_keys = tuple(key for key in source.foreign_keys() if key.table in tables and key.to in tables)
    return Proposal(
        source.server().database,
        tuple(tables.values()),
        dict(sorted(left_out.items())),
        foreign_keys,
        {name: unique.get(name, []) for name in dict.fromkeys(n for key in foreign_keys for n in (key.table, key.to))},
        source.encoding(),
        {name: relations[name].rows for name in tables},
        tuple(_owners(source, tables.values())),
    )


def _owners(source: Postgres, tables: Iterable[Proposed]) -> Iterator[Owners]:
    for proposed in tables:
        for kind, key in owner_columns(proposed.captured):
            kinds = [str(name) for (name,) in source.rows(kinds_query(proposed.table, kind))]
            if (found := owners(proposed.table, kind, key, kinds)) is not None:
                yield found


def _proposed(table: Table) -> Proposed:
    refused = {c.name: reason for c in table.columns if (reason := refusal(c)) is not None and c.name not in table.key}
    secret = tuple(c.name for c in table.columns if looks_secret(c.name) and c.name not in table.key)
    return Proposed(table, secret, refused)


def _reasons(relation: Relation, proposed: Proposed | None) -> Iterator[str]:
    if relation.extension is not None:
        yield f"belongs to the extension {relation.extension}"
        return
    if framework := framework_of(relation.name):
        yield f"is what {framework} keeps for itself: name it under source.tables if you want it"
        return
    yield from relation_obstacles(relation)
    if proposed is None:
        return
    yield from right_obstacles(relation, proposed.secret)
    yield from table_obstacles(proposed.table)
    for column in proposed.table.key:
        if looks_secret(column):
            yield f"has a secret for a key, by the name of its column {column}: a key cannot be left out"


def _one_for_debezium(
    _pipeline: str, tables: dict[str, Proposed], relations: dict[str, Relation]
) -> Iterator[tuple[str, str]]:
    whole = {name: proposed.table for name, proposed in tables.items()}
    yield from meetings(whole, relations)
    yield from column_meetings(whole, {name: proposed.secret for name, proposed in tables.items()})


def _one_for_kafka(
    pipeline: str, tables: dict[str, Proposed], _relations: dict[str, Relation]
) -> Iterator[tuple[str, str]]:
    yield from topic_meetings(pipeline, tables)


def looks_secret(column: str) -> bool:
    """Whether a column's name says that its values should not leave the database. Words, not parts of words."""
    words = [word.lower() for word in _WORDS.findall(column)]
    return not _SECRET.isdisjoint(words) or not _SECRET_PAIRS.isdisjoint(pairwise(words))
