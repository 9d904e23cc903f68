"""Which tables somebody would follow first: by their relations and their size, not by the alphabet.

Only names, foreign keys and the estimates of the catalogue are looked at. No row is read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log2, log10

from connectors.postgres.relations import ForeignKey
from driftless.table import Column, Table

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_FRAMEWORKS = {
    "Rails": "schema_migrations ar_internal_metadata delayed_jobs good_jobs good_job_batches good_job_executions "
    "good_job_processes good_job_settings que_jobs que_lockers solid_cache_entries solid_cable_messages",
    "Django": "django_migrations django_session django_content_type django_admin_log django_celery_results_taskresult "
    "django_celery_beat_periodictask auth_permission auth_group_permissions auth_user_user_permissions",
    "Alembic": "alembic_version",
    "Flyway": "flyway_schema_history schema_version",
    "Liquibase": "databasechangelog databasechangeloglock",
    "Laravel": "failed_jobs job_batches cache_locks password_reset_tokens password_resets telescope_entries "
    "telescope_entries_tags telescope_monitoring",
    "Knex": "knex_migrations knex_migrations_lock",
    "Prisma": "_prisma_migrations",
    "Sequelize": "sequelizemeta",
    "Entity Framework": "__efmigrationshistory",
    "goose": "goose_db_version",
    "Hibernate": "hibernate_sequence hibernate_sequences",
    "Oban": "oban_jobs oban_peers",
    "Celery": "celery_taskmeta celery_tasksetmeta",
}
_OWNER = {name: framework for framework, names in _FRAMEWORKS.items() for name in names.split()}
_PREFIXES = {"solid_queue_": "Rails", "django_celery_": "Django", "qrtz_": "Quartz"}
_MINOR = {"log", "logs", "history", "histories", "session", "sessions", "audit", "audits", "example", "examples"}
_MINOR |= {"backup", "backups", "bak", "tmp", "temp", "old", "archive", "archived", "queue", "queues", "raw", "cache"}
_MINOR |= {"redirect", "redirects", "statistics", "stats", "staging", "deprecated", "migration", "migrations", "test"}
_MINOR |= {"documentation", "subscribe", "draft", "drafts", "token", "tokens", "preference", "preferences", "setting"}
_NAMES = {"name", "title", "label", "subject", "headline", "email", "username", "login", "first", "display"}
_TEXT = ("text", "varchar", "bpchar", "citext")
_TIMES = ("timestamp", "timestamptz", "date")
_NUMBERS = ("int2", "int4", "int8")
_POSITIONS = {"position", "pos", "sort", "order", "ordering", "rank", "seq", "sequence", "ordinal", "idx", "index"}
ENOUGH = 10
"""Tables that refer to one: of more than so many, as of users, nothing follows."""


def framework_of(table: str) -> str:
    """The framework that keeps a table of this name for itself; empty where none does."""
    name = table.lower()
    return _OWNER.get(name) or next((owner for start, owner in _PREFIXES.items() if name.startswith(start)), "")


def is_minor(table: Table) -> bool:
    """Whether its name, or its schema's, says that it is a log, a session, an example or the like."""
    words = (word.lower() for part in (table.schema, table.name) for word in _WORDS.findall(part))
    return not _MINOR.isdisjoint(words)


def only_joins(table: Table, keys: Sequence[ForeignKey]) -> bool:
    """Whether a table says no more than which rows of two tables belong together.

    `keys`: its foreign keys. Beside them it may have an `id` of its own, times at which a row came or changed, and a
    position, as the frameworks make them.
    """
    if len(keys) != 2:
        return False
    held = {column for key in keys for column in key.columns}
    more = [column for column in table.columns if column.name not in held]
    own = set(table.key) if len(table.key) == 1 and table.key[0] not in held else set()
    if not own and not set(table.key) <= held:
        return False
    return all(column.name in own or _is_by_the_way(column) for column in more)


def position_of(table: Table, keys: Sequence[ForeignKey]) -> str | None:
    """The column of a table that only joins by which its rows are in order, if there is one."""
    held = {*table.key, *(column for key in keys for column in key.columns)}
    return next((c.name for c in table.columns if c.name not in held and _is_position(c)), None)


def _is_by_the_way(column: Column) -> bool:
    return (column.type in _TIMES and not column.array) or _is_position(column)


def _is_position(column: Column) -> bool:
    words = {word.lower() for word in _WORDS.findall(column.name)}
    return column.type in _NUMBERS and not column.array and not _POSITIONS.isdisjoint(words)


@dataclass(frozen=True)
class Worth:
    """`order`: full names, those first that somebody would follow first. `first`: those that are documents of their
    own: no table that only joins, and none that is a log or an example.
    """

    order: tuple[str, ...] = ()
    first: frozenset[str] = field(default_factory=frozenset)


def weigh(
    tables: Iterable[Table], foreign_keys: Sequence[ForeignKey], rows: Mapping[str, int], parts: Collection[str]
) -> Worth:
    """`rows`: about how many each table has. `parts`: tables whose rows belong to those that they refer to."""
    by_name = {table.full_name: table for table in tables}
    out: dict[str, list[ForeignKey]] = {name: [] for name in by_name}
    into: dict[str, set[str]] = {name: set() for name in by_name}
    minor = {name for name, table in by_name.items() if is_minor(table)}
    for key in foreign_keys:
        if key.table in out and key.to in into and key.table != key.to:
            out[key.table].append(key)
            if key.table not in minor:
                into[key.to].add(key.table)
    joins = {name for name, table in by_name.items() if only_joins(table, out[name]) and not into[name]}

    def weight(name: str) -> float:
        table = by_name[name]
        made = 2 * log2(1 + min(len(into[name]), ENOUGH)) + log2(1 + len({key.to for key in out[name]}))
        made += log10(1 + max(0, rows.get(name, 0))) / 2
        made += 1.0 if any(map(_is_name, table.columns)) else 0.0
        return made - (2.0 if name in parts else 0.0) - (6.0 if name in minor or name in joins else 0.0)

    order = sorted(by_name, key=lambda name: (-weight(name), name))
    # What is alone, with nothing that it refers to, is as good as any other where all are.
    return Worth(tuple(order), frozenset(name for name in order if name not in minor and name not in joins))


def _is_name(column: Column) -> bool:
    """Whether people know a row by this column."""
    words = {word.lower() for word in _WORDS.findall(column.name)}
    return column.type in _TEXT and not column.array and not _NAMES.isdisjoint(words)
