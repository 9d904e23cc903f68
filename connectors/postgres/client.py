"""The one door to the source database: what it is, what its tables are, where its log stands."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict

from connectors.postgres import columns, ddl, queries
from connectors.postgres.relations import ForeignKey, Relation
from connectors.postgres.replication import (
    ask_walsender,
    names_another_process,
    reached,
    replication_refusal,
    shares_sessions,
)
from connectors.postgres.server import FILTERS_SINCE, Partition, ServerFacts, Slot, Storage
from driftless import names
from driftless.config.address import DSN_FORM, dsn_problem, is_refusal, misread
from driftless.config.models import Config
from driftless.errors import POSTGRES_LOG, ConfigError, NoDocument, SourceError, SourceUnavailable
from driftless.lsn import parse_lsn
from driftless.table import Table, join_name, quoted, quoted_column, split_name
from driftless.views.sql import SETTINGS


class Postgres:
    """A connection to the source. Messages never carry the DSN's password."""

    def __init__(self, dsn: str, *, patience: float = 10) -> None:
        """`patience`: seconds for which a connection is waited for."""
        if problem := dsn_problem(dsn):
            raise ConfigError(f"the DSN of the source cannot be read: {problem}", hint=DSN_FORM)
        try:
            given = conninfo_to_dict(dsn)
        except psycopg.ProgrammingError as exc:
            raise ConfigError(f"the DSN of the source cannot be read: {misread(str(exc))}", hint=DSN_FORM) from None
        self._dsn = dsn
        self.address = f"{given.get('host', 'localhost')}:{given.get('port', 5432)}"
        self._connection = self._connect(patience)
        self.parameters = reached(self._connection)
        """As libpq names them, of the server that was reached: a DSN may name several servers, or leave it to a
        service file or to the environment.
        """

    def _connect(self, patience: float) -> psycopg.Connection:
        seconds = max(2, round(patience))
        try:
            connection = psycopg.connect(
                self._dsn,
                autocommit=True,
                connect_timeout=seconds,
                application_name="driftless",
                client_encoding="UTF8",
            )
        except psycopg.OperationalError as exc:
            reason = " ".join(str(exc).split())
            if is_refusal(reason):
                hint = "check the role, the password and the database of source.dsn, and pg_hba.conf of the server"
                raise ConfigError(f"Postgres at {self.address} refuses the role: {reason}", hint=hint) from None
            what = f"Postgres at {self.address} cannot be reached: {reason}"
            raise SourceUnavailable(what, hint="check source.dsn; `driftless up` starts a local server") from None
        if connection.info.parameter_status("server_encoding") == "SQL_ASCII":
            what = f"the database {connection.info.dbname} has the encoding SQL_ASCII: nothing says what its texts are"
            connection.close()
            hint = "restore a dump of it into a database with `encoding 'UTF8' template template0`"
            raise ConfigError(what, hint=hint)
        return connection

    def __enter__(self) -> Postgres:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def execute(self, *statements: str) -> None:
        """Run statements of a plan, beside whoever works there."""
        with _answers(self.address):
            ddl.execute_with_lock_timeout(self._connection, *statements)

    def _row(self, query: str, *parameters: object) -> tuple[object, ...] | None:
        with _answers(self.address):
            return self._connection.execute(query.encode(), parameters).fetchone()

    def rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """What a statement gives. Raises SourceError with the server's message."""
        with _answers(self.address):
            cursor = self._connection.execute(query.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What is done here until the block ends is committed then, or not at all."""
        with _answers(self.address), self._connection.transaction():
            yield

    def server(self) -> ServerFacts:
        row = self._row(
            "select current_setting('server_version_num')::int, "
            "(select system_identifier::text from pg_control_system()), "
            f"case when pg_is_in_recovery() then (select timeline_id from pg_control_checkpoint()) "
            f"else {queries.TIMELINE} end, "
            "current_setting('wal_level'), "
            "(select rolreplication or rolsuper from pg_roles where rolname = session_user), current_database(), "
            "current_user::text, session_user::text, pg_is_in_recovery()"
        )
        assert row is not None
        return ServerFacts(*row)  # type: ignore[arg-type]

    def replication_refusal(self) -> str:
        """Why the server opens no connection by which its log is read; empty where it does. It is tried."""
        return replication_refusal(self._dsn)

    def is_behind_another(self) -> bool:
        """Whether something stands between that names processes of its own, as a pooler or a service's gateway does."""
        with _answers(self.address):
            return names_another_process(self._connection)

    def is_pooled(self) -> bool:
        """Whether a pooler stands between that gives other clients our sessions."""
        with _answers(self.address):
            return self.is_behind_another() and shares_sessions(self._dsn, self._connection)

    def table(self, full_name: str, exclude: Iterable[str] = ()) -> Table | None:
        """The table as the catalogue has it, less the excluded columns; None where there is none of that name."""
        return self.tables({full_name: exclude}).get(full_name)

    def tables(self, wanted: Mapping[str, Iterable[str]]) -> dict[str, Table]:
        """Those tables that exist, in a few statements for all: full name -> excluded columns."""
        with _answers(self.address):
            return columns.tables(self._connection, wanted)

    def catalogue_mark(self) -> str:
        """Another text after any DDL that `tables` or `storages` would show."""
        return str(self.rows(queries.MARK)[0][0])

    def unique_keys(self, full_name: str) -> list[tuple[str, ...]]:
        """The columns of each unique key of a table, the primary one first."""
        return self.all_unique_keys().get(join_name(*split_name(full_name)), [])

    def all_unique_keys(self) -> dict[str, list[tuple[str, ...]]]:
        """The same of every table of the database that has any."""
        found: dict[str, list[tuple[str, ...]]] = {}
        with _answers(self.address):
            for schema, name, columns_ in self._connection.execute(queries.UNIQUE.encode()).fetchall():
                found.setdefault(join_name(schema, name), []).append(tuple(columns_))
        return found

    def foreign_keys(self) -> list[ForeignKey]:
        """All of the database, those of one table in the order of its columns."""
        with _answers(self.address):
            rows = self._connection.execute(queries.FOREIGN.encode()).fetchall()
        keys = (ForeignKey(join_name(*r[:2]), tuple(r[2]), join_name(*r[3:5]), tuple(r[5])) for r in rows)
        return list(dict.fromkeys(keys))

    def storage(self, table: Table) -> Storage:
        """Where a table that exists is kept now."""
        return self.storages([table])[table.full_name]

    def storages(self, tables: Iterable[Table]) -> dict[str, Storage]:
        """The same of several, in one statement. A table that is gone is left out."""
        by_name = {table.full_name: table for table in tables}
        with _answers(self.address):
            wanted = columns.as_arrays(by_name)
            rows = self._connection.execute(queries.STORAGE.encode(), wanted).fetchall()
        partitions = self.partitions(table for table in by_name.values() if table.partitioned)
        truncations = self._truncations(partitions)
        found = {}
        for schema, name, node, numbered, trigger, labels in rows:
            table = by_name[join_name(schema, name)]
            shown = {column.name: numbered[column.name] for column in table.columns}
            enums = [column.name for column in table.columns if column.kind == "e" and not column.array]
            found[table.full_name] = Storage(
                int(node),
                {name: changed for name, (changed, _) in shown.items()},
                {name: number for name, (_, number) in shown.items()},
                {name: (labels or {}).get(name, []) for name in enums},
                str(trigger or ""),
                {p.oid: (p.full_name, p.mark, p.is_born) for p in partitions.get(table.full_name, ())},
                truncations.get(table.full_name, 0),
            )
        return found

    def partitions(self, tables: Iterable[Table]) -> dict[str, list[Partition]]:
        """Of each table that is partitioned, its partitions of any depth."""
        parted = {table.full_name: list[Partition]() for table in tables if table.partitioned}
        if parted:
            with _answers(self.address):
                rows = self._connection.execute(queries.PARTITIONS.encode(), columns.as_arrays(parted)).fetchall()
            for schema, name, *facts in rows:
                parted[join_name(schema, name)].append(Partition(*facts))
        return parted

    def _truncations(self, tables: Collection[str]) -> dict[str, int]:
        """How often a partition of each was truncated alone."""
        if not tables or not self.rows("select to_regclass(%s) is not null", names.TRUNCATED_PARTITIONS)[0][0]:
            return {}
        counted = f"select count(*) from {names.TRUNCATED_PARTITIONS} where parent = to_regclass(%s)"
        return {table: int(self.rows(counted, quoted(table))[0][0]) for table in tables}

    def any_value(self, full_name: str, column: str) -> bool:
        """Whether any row has a value in a column."""
        row = self._row(f"select exists (select from {quoted(full_name)} where {quoted_column(column)} is not null)")
        return row is not None and bool(row[0])

    def first_document(self, statement: str, seconds: float) -> str | None:
        """The first document of a statement. Raises SourceError, without any value, where that takes longer."""
        limits = f"set transaction read only; set local statement_timeout = {seconds * 1000:.0f}; set local jit = off; "
        with _answers(self.address):
            try:
                with self._connection.transaction():
                    self._connection.execute((limits + SETTINGS).encode())
                    found = self._connection.execute(f"select document::text from ({statement}) x".encode()).fetchone()
            except psycopg.errors.QueryCanceled:
                raise SourceError(f"reading it took over {seconds:g} s", hint="an index on `by` helps") from None
            except psycopg.Error as exc:
                if self._connection.closed or isinstance(exc, psycopg.errors.InsufficientPrivilege):
                    raise
                raise NoDocument(f"Postgres answers with the error {exc.sqlstate}") from None
        return None if found is None else str(found[0])

    def role(self) -> str:
        """Whom we are to the server, as an identifier."""
        return quoted_column(self.server().role)

    def may_create(self) -> bool:
        """Whether our role may make a schema."""
        row = self._row("select has_database_privilege(current_database(), 'create')")
        return row is not None and bool(row[0])

    def may_use(self, full_name: str, *rights: str) -> bool | None:
        """Whether our role has all of these rights on a table, SELECT where none is named; None where there is none."""
        row = self._row(
            "select has_schema_privilege(n.oid, 'usage') "
            "and (select bool_and(has_table_privilege(c.oid, wanted)) from unnest(%s::text[]) wanted) "
            "from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = %s and c.relname = %s",
            list(rights) or ["select"],
            *split_name(full_name),
        )
        return None if row is None else bool(row[0])

    def signal(self, full_name: str, signal: str, kind: str, data: str) -> None:
        """Ask Debezium for something, by the table of signals."""
        with _answers(self.address):
            statement = f"insert into {quoted(full_name)} values (%s, %s, %s)"
            self._connection.execute(statement.encode(), (signal, kind, data))

    def triggered(self, trigger: str = names.TRUNCATE_TRIGGER) -> set[str]:
        """The tables on which a trigger of ours is enabled: by default the one that tells the log of a TRUNCATE."""
        query = (
            "select n.nspname::text, c.relname::text from pg_trigger t join pg_class c on c.oid = t.tgrelid "
            "join pg_namespace n on n.oid = c.relnamespace where t.tgname = %s and t.tgenabled = 'A'"
        )
        with _answers(self.address):
            rows = self._connection.execute(query.encode(), (trigger,)).fetchall()
        return {join_name(*row) for row in rows}

    def early_dates(self, full_name: str, columns: Iterable[str]) -> list[str]:
        """Which of these date columns hold days before the Gregorian calendar began."""
        dates = list(columns)
        early = (f"bool_or({c} < '1582-10-15' and {c} <> '-infinity')" for c in map(quoted_column, dates))
        row = self._row(f"select {', '.join(early)} from {quoted(full_name)}") if dates else None
        return [name for name, found in zip(dates, row or (), strict=False) if found]

    def publications(self, full_name: str) -> set[str]:
        """The publications that carry a table."""
        schema, name = split_name(full_name)
        with _answers(self.address):
            query = b"select pubname::text from pg_publication_tables where schemaname = %s and tablename = %s"
            return {row[0] for row in self._connection.execute(query, (schema, name)).fetchall()}

    def labels(self, full_name: str, column: str) -> list[str]:
        """The values of a column's enum, in their order."""
        schema, name = split_name(full_name)
        query = (
            "select e.enumlabel::text from pg_enum e join pg_attribute a on a.atttypid = e.enumtypid "
            "join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace "
            "where n.nspname = %s and c.relname = %s and a.attname = %s order by e.enumsortorder"
        )
        with _answers(self.address):
            return [row[0] for row in self._connection.execute(query.encode(), (schema, name, column)).fetchall()]

    def encoding(self) -> str:
        return str((self._row("select getdatabaseencoding()::text") or ("",))[0])

    def relations(self) -> dict[str, Relation]:
        """Everything in the database that an operator could take for a table, by full name."""
        with _answers(self.address):
            rows = self._connection.execute(queries.RELATIONS.encode()).fetchall()
        relations = [Relation(*row) for row in rows]
        return {relation.full_name: relation for relation in relations}

    def closed_functions(self) -> list[str]:
        """Functions that a marker needs and our role may not call; open to everybody unless somebody closed them."""
        with _answers(self.address):
            query = b"select oid::regprocedure::text from pg_proc where proname = 'pg_logical_emit_message' "
            rows = self._connection.execute(query + b"and not has_function_privilege(oid, 'execute')").fetchall()
        return [row[0] for row in rows]

    def parents(self) -> dict[str, list[str]]:
        """Tables from which others inherit, each with those; not those that are partitioned."""
        return {join_name(schema, name): children for schema, name, children in self.rows(queries.PARENTS)}

    def publication(self, name: str) -> set[str] | None:
        """The tables that were put into a publication, or None. Of one for all tables, all."""
        found = self._row("select puballtables from pg_publication where pubname = %s", name)
        if found is None:
            return None
        all_ = "select schemaname::text, tablename::text from pg_publication_tables where pubname = %s"
        return {join_name(*row) for row in self.rows(all_ if found[0] else queries.PUT, name)}

    def publishes_by_root(self, publication: str) -> bool:
        """Whether it carries the rows of partitions under the name of the table that they belong to."""
        return bool(self.rows("select pubviaroot from pg_publication where pubname = %s", publication)[0][0])

    def carried(self, publication: str) -> dict[str, str]:
        """Table -> how a publication carries it. An entry that was dropped and made again is another one; so is one of
        a publication that leaves out rows, columns or kinds of changes.
        """
        query = queries.CARRIED
        if self.server().version < FILTERS_SINCE:
            query = query.replace("r.prqual", "null").replace("r.prattrs", "null")
        with _answers(self.address):
            rows = self._connection.execute(query.encode(), (publication,)).fetchall()
        return {join_name(schema, name): how for schema, name, how in rows}

    def slot(self, name: str) -> Slot | None:
        row = self._row(
            "select slot_name::text, confirmed_flush_lsn::text, active_pid, safe_wal_size, "
            "coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint, wal_status, "
            # Both since Postgres 17.
            "coalesce(to_jsonb(s) ->> 'invalidation_reason', ''), coalesce(to_jsonb(s) ->> 'failover', '') = 'true' "
            "from pg_replication_slots s where slot_name = %s",
            name,
        )
        if row is None:
            return None
        confirmed = None if row[1] is None else parse_lsn(str(row[1]))
        reader, left, status = cast(int | None, row[2]), cast(int | None, row[3]), cast(str | None, row[5])
        return Slot(str(row[0]), confirmed, reader, int(str(row[4])), status, str(row[6]), bool(row[7]), left)

    def read_since(self, slot: str) -> str | None:
        """When whoever reads a slot now has connected; None where nobody does, or the role may not see who does."""
        row = self._row(
            "select to_char(r.backend_start at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') "
            "from pg_replication_slots s join pg_stat_replication r on r.pid = s.active_pid where s.slot_name = %s",
            slot,
        )
        return None if row is None or row[0] is None else str(row[0])

    def walsender(self, command: str) -> list[tuple[Any, ...]]:
        """What a command of the replication protocol gives."""
        with _answers(self.address):
            return ask_walsender(self._dsn, command)

    def drop_slot(self, name: str) -> None:
        self._row("select pg_drop_replication_slot(%s)", name)

    def lsn(self) -> int:
        """The end of the log that is written: every commit that anybody has seen is before it."""
        return parse_lsn(str(self.rows("select pg_current_wal_insert_lsn()::text")[0][0]))

    def clock(self) -> float:
        """Seconds since 1970 by the source's clock, which markers carry."""
        return float(str(self.rows("select extract(epoch from clock_timestamp())::float8")[0][0]))

    def identity(self) -> dict[str, object]:
        """What the pipeline's log rests on: another server, or another history of this one, has another identity."""
        server = self.server()
        return {
            "system_identifier": server.system_identifier,
            "timeline": server.timeline,
            "database": server.database,
        }


def captured_tables(source: Postgres, config: Config) -> dict[str, Table | None]:
    """Every table of the configuration as the catalogue has it."""
    found = source.tables({name: table.exclude for name, table in config.source.tables.items()})
    return {name: found.get(name) for name in config.source.tables}


@contextmanager
def _answers(address: str) -> Iterator[None]:
    try:
        yield
    except psycopg.OperationalError as exc:
        raise SourceUnavailable(f"Postgres at {address}: {' '.join(str(exc).split())}") from None
    except psycopg.errors.InsufficientPrivilege as exc:
        hint = "give the role that right, or set source.admin_dsn for `apply`"
        raise SourceError(f"Postgres at {address}: {exc.diag.message_primary}", hint=hint) from None
    except psycopg.Error as exc:
        raise SourceError(f"Postgres at {address}: {exc.diag.message_primary or exc}", hint=POSTGRES_LOG) from None
