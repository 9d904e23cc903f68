"""The row store in one SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path

from driftless.errors import SyncError
from driftless.views.shard import shard_of
from driftless.views.tree import View
from jobs.views.store import dirty_roots as marks
from jobs.views.store import intake, schema
from jobs.views.store.contract import LAST_ROOT, Partition, Row, RowsLost, Slice
from jobs.views.store.layout import Layout
from jobs.views.store.rows_file import explained, lost, not_kept, remove, sqlite_file
from jobs.views.values.functions import register
from jobs.views.values.sqlite_values import document_hash

BEFORE_PUBLISHING = "FULL"
"""How a slice is written: so that it is on the disk."""
FORMAT = 2
"""Of the file. Another one is not read: the store is made again."""
_WAIT = 2.0
"""Seconds for which a file that another process has open is waited for: one that ends just now."""
SLICE_SIZE = 32 << 20
"""Characters of the documents of one slice, but for the last: bounds what is held of them at once."""
_SHARE = 4
"""One in so many roots of a slice is of a large fan-out while there are others: it goes on, and holds up no other."""
# A hash of null: some document, but nobody knows which.
_UNKNOWN = "INSERT OR REPLACE INTO published SELECT id, NULL FROM slice"
# A root that waits keeps its place, and what it waits for is the newest.
_MARK = f"""
INSERT INTO dirty SELECT id, fan > {marks.HOT}, :number, :number FROM reached WHERE true
ON CONFLICT (id) DO UPDATE SET last = excluded.last, large = min(large, excluded.large)
"""
_MARK_ALL = """
INSERT INTO dirty SELECT id, 0, :number, :number FROM {} WHERE gone IS NULL
ON CONFLICT (id) DO UPDATE SET last = excluded.last
"""
_TAKE = """
INSERT INTO taken SELECT id FROM (SELECT id FROM dirty WHERE large = :large ORDER BY since, id LIMIT :limit)
WHERE true ON CONFLICT DO NOTHING
"""
_OLDEST_TAKEN = """
SELECT cut FROM cuts WHERE number >= (SELECT min(since) FROM taken s CROSS JOIN dirty d ON d.id = s.id)
ORDER BY number LIMIT 1
"""


class SqliteRows:
    """A RowStore in a file that this process alone may use.

    Every method is one transaction: after a crash anywhere the file holds what it held before or after the call. What
    cannot be read any more is RowsLost, at the opening (after a check of the whole file, where it was not closed in
    good order) or later; nothing is ever repaired here, since the log has everything.
    """

    def __init__(self, path: Path, view: View, shard: int = 0) -> None:
        """Open what `create` made for the same view; raises RowsLost."""
        self._path = path
        self._layout = Layout(view, shard)
        self._shard = shard
        self._here = intake.Shard(view.shards, shard)
        self._given: Slice | None = None
        self._circles: dict[str, str] = {}
        self._frontier: str | None = None
        self._looked_at = -1  # by how many changes had been made
        if not path.is_file():
            raise self._lost("there is no file")
        self._has_log = sqlite_file(path, "-wal").exists()
        self._connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, cached_statements=1000, timeout=_WAIT
        )
        try:
            with self._readable(transaction=False):
                self._prepare()
            with self._readable():
                self._identify(view, shard)
                for statement in schema.temporary(self._layout):
                    self._run(statement)
                self._run(_UNKNOWN)
                self._run("DELETE FROM slice")
                self._set("open", 1)
            self._run("PRAGMA wal_checkpoint(TRUNCATE)")
        except SyncError:
            self._connection.close()
            raise
        self._marks = list(schema.changed(self._layout))

    @classmethod
    def create(cls, path: Path, view: View, shard: int = 0) -> SqliteRows:
        """An empty store, in place of whatever was there."""
        try:
            remove(path)
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise SyncError(not_kept(path, view, exc.strerror), hint="DRIFTLESS_HOME says where, in `rows`") from exc
        with explained(path, view), closing(sqlite3.connect(path)) as connection:
            connection.executescript("PRAGMA journal_mode = WAL; BEGIN")
            for statement in schema.permanent(Layout(view, shard)):
                connection.execute(statement)
            identity = {
                "format": FORMAT,
                "view": view.fingerprint,
                "shard": shard,
                "number": 0,
                "filling": 1,
                "open": 0,
            }
            connection.executemany("INSERT INTO facts VALUES (?, ?)", identity.items())
            connection.commit()
        return cls(path, view, shard)

    def close(self) -> None:
        with self._readable():
            self._set("open", 0)
        self._connection.close()

    # -- taking in ----------------------------------------------------------------------------------------------

    def apply(
        self,
        changes: Iterable[tuple[str, Iterable[Row]]],
        positions: Mapping[Partition, int],
        cut: str | None = None,
        *,
        swept: Mapping[str, int] | None = None,
        now: int = 0,
    ) -> None:
        with self._readable():
            number = self._fact("number") + 1
            if swept or not self._fact("filling"):
                self._end_filling()
                self._change(changes, number, swept or {}, now)
            else:
                for name, rows in changes:
                    self._connection.executemany(intake.fill(self._layout.tables[name], self._here, now), rows)
                if cut is not None:
                    self._end_filling()
            self._connection.executemany(
                "INSERT OR REPLACE INTO positions VALUES (?, ?, ?)",
                [(topic, partition, position) for (topic, partition), position in positions.items()],
            )
            if cut is not None:
                self._run("INSERT INTO cuts VALUES (?, ?)", (number, cut))
            self._set("number", number)

    def _end_filling(self) -> None:
        """Until something is asked of it, a new store only keeps rows: nothing is compared, and nothing looked up. Then
        every root is dirty, and the indexes are made at once.
        """
        if not self._fact("filling"):
            return
        for statement in schema.filled(self._layout):
            self._run(statement)
        self._run(_MARK_ALL.format(self._layout.roots.name), {"number": self._fact("number")})
        self._set("filling", 0)

    def _change(
        self, changes: Iterable[tuple[str, Iterable[Row]]], number: int, swept: Mapping[str, int], now: int
    ) -> None:
        """Put newer rows in the place of older ones, and mark the roots whose documents show a difference."""
        changes = [*changes]
        if not changes and not swept:
            return
        tables = self._layout.tables
        for kept in tables.values():
            self._run(f"DELETE FROM new_{kept.name}")
            self._run(f"DELETE FROM old_{kept.name}")
        for name, rows in changes:
            self._connection.executemany(intake.change(tables[name], self._here), rows)
        for name, version in swept.items():
            self._run(intake.sweep(tables[name]), {"version": version})
        for kept in tables.values():
            for statement in intake.store(kept):
                self._run(statement, {"now": now})
        for statement in self._marks:
            self._run(statement)
        self._run(_MARK, {"number": number})

    def positions(self) -> dict[Partition, int]:
        with self._readable():
            return {(topic, number): position for topic, number, position in self._run("SELECT * FROM positions")}

    def seed(self, documents: Iterable[tuple[str, str | None]]) -> None:
        with self._readable():
            shards = self._layout.view.shards
            ours = ((key, document_hash(d)) for key, d in documents if shard_of(key, shards) == self._shard)
            while some := list(islice(ours, 10_000)):
                of_key = self._mark_dirty([key for key, _ in some])
                for key, hash_ in some:
                    if hash_ is None:
                        self._run(f"DELETE FROM published WHERE id = {of_key}", (key,))
                    else:
                        self._run(f"INSERT OR REPLACE INTO published VALUES ({of_key}, ?)", (key, hash_))

    def republish(self, keys: Iterable[str]) -> None:
        shards = self._layout.view.shards
        ours = [key for key in keys if shard_of(key, shards) == self._shard]
        with self._readable():
            of_key = self._mark_dirty(ours)
            self._connection.executemany(
                f"INSERT OR REPLACE INTO published VALUES ({of_key}, NULL)", [(key,) for key in ours]
            )

    def _mark_dirty(self, keys: Sequence[str]) -> str:
        """Make roots dirty, also those that there are none of, before every `apply`; the `id` of a key, as SQL."""
        kept = self._layout.roots
        given = [(key,) for key in keys]
        self._connection.executemany(
            f"INSERT INTO {kept.name} ({kept.identity}, version, gone) VALUES ({kept.key('?')}, 0, 0) "
            "ON CONFLICT DO NOTHING",
            given,
        )
        of_key = f"(SELECT id FROM {kept.name} WHERE {kept.identity} = {kept.key('?')})"
        self._connection.executemany(f"INSERT INTO dirty VALUES ({of_key}, 0, 0, 0) ON CONFLICT DO NOTHING", given)
        return of_key

    def audit(self, begin: int, limit: int) -> tuple[list[str], int | None]:
        root, wrong, looked, last = self._layout.root, [], 0, 0
        with self._readable():
            rows = self._run(
                f"SELECT r.id, r.key, b.hash, iif(r.{self._layout.shown}, r.d, NULL), "
                "EXISTS (SELECT 1 FROM dirty w WHERE w.id = r.id) "
                f"FROM {root.view} r LEFT JOIN published b ON b.id = r.id WHERE r.id >= ? ORDER BY r.id LIMIT ?",
                (begin, limit),
            )
            for last, key, known, document, dirty in rows:  # noqa: B007
                looked += 1
                if not dirty and known != document_hash(document):
                    wrong.append(str(key))
        return wrong, int(last) + 1 if looked == limit and last < LAST_ROOT else None

    def discard(self) -> None:
        with self._readable():
            self._run("INSERT OR REPLACE INTO facts VALUES ('discarded', 1)")

    def expire(self, before: int) -> int:
        root = self._layout.roots.name
        waiting = " AND id NOT IN (SELECT id FROM dirty) AND id NOT IN (SELECT id FROM published)"
        with self._readable():
            return sum(
                self._run(f"DELETE FROM {t.name} WHERE gone < ?{waiting if t.name == root else ''}", (before,)).rowcount
                for t in {**self._layout.tables, root: self._layout.roots}.values()
            )

    # -- giving out ---------------------------------------------------------------------------------------------

    def assemble(self, limit: int, large: int | None = None) -> Slice:
        most = limit if large is None else min(limit, large)
        # On the disk before it is published: or a crash could leave a hash of what is no longer there, and a document
        # that comes back to it would be taken for published.
        self._run(f"PRAGMA synchronous = {BEFORE_PUBLISHING}")
        with self._readable():
            self._end_filling()
            self._run(_UNKNOWN)
            self._run("DELETE FROM slice")
            self._run("DELETE FROM taken")
            small = self._run(_TAKE, {"large": 0, "limit": limit - min(limit // _SHARE, most)}).rowcount
            hot = self._run(_TAKE, {"large": 1, "limit": min(limit - small, most)}).rowcount
            if small + hot < limit:
                self._run(_TAKE, {"large": 0, "limit": limit - hot})
            rows = self._run(
                f"SELECT s.id, r.key, b.id, b.hash, iif(r.{self._layout.shown}, r.d, NULL) "
                f"FROM taken s CROSS JOIN {self._layout.root.view} r ON r.id = s.id "
                "LEFT JOIN published b ON b.id = s.id ORDER BY s.id"
            )
            writes, marked, written, left, size = [], [], [], [], 0
            for id_, key, there, known, document in rows:
                hash_ = document_hash(document)
                marked.append((id_, hash_))
                if there is not None if hash_ is None else hash_ != known:
                    writes.append((key, document))
                    written.append((id_,))
                    size += len(document or "")
                else:
                    left.append((id_,))
                if size > SLICE_SIZE:  # the others wait for the next slice
                    rows.close()
                    self._run("DELETE FROM taken WHERE id > ?", (id_,))
                    break
            if len(written) < len(left):
                self._connection.executemany("INSERT INTO slice VALUES (?)", written)
            else:
                self._run("INSERT INTO slice SELECT id FROM taken")
                self._connection.executemany("DELETE FROM slice WHERE id = ?", left)
            number = self._fact("number")
            oldest = self._run(_OLDEST_TAKEN).fetchone()
        self._run("PRAGMA synchronous = NORMAL")
        self._given = Slice(writes, marked, number, hot, None if oldest is None else str(oldest[0]))
        return self._given

    def published(self, done: Slice) -> None:
        if done is not self._given:
            raise ValueError("this slice is not the one that was given out last")
        there = [(id_, hash_) for id_, hash_ in done.marks if hash_ is not None]
        gone = [(id_,) for id_, hash_ in done.marks if hash_ is None]
        with self._readable():
            self._connection.executemany("INSERT OR REPLACE INTO published VALUES (?, ?)", there)
            self._connection.executemany("DELETE FROM published WHERE id = ?", gone)
            self._run("DELETE FROM dirty WHERE id IN (SELECT id FROM taken) AND last <= ?", (done.number,))
            # Dirtied again: what the slice showed is published, so it waits for what came after.
            self._run("UPDATE dirty SET since = ? + 1 WHERE id IN (SELECT id FROM taken)", (done.number,))
            self._run("DELETE FROM slice")

    def frontier(self) -> str | None:
        if self._connection.total_changes != self._looked_at:
            self._frontier = self._find_frontier()
            self._looked_at = self._connection.total_changes
        return self._frontier

    def _find_frontier(self) -> str | None:
        with self._readable():
            done = "FROM cuts WHERE ?1 IS NULL OR number < ?1"
            oldest = (self._oldest(),)
            self._run(f"DELETE FROM cuts WHERE number < (SELECT max(number) {done})", oldest)
            cut = self._run(f"SELECT cut {done} ORDER BY number DESC LIMIT 1", oldest).fetchone()
            return None if cut is None else str(cut[0])

    def circles(self) -> dict[str, str]:
        return dict(self._circles)

    def counts(self) -> dict[str, int]:
        with self._readable():
            return {
                name: int(self._run(f"SELECT count(*) FROM {kept.name} WHERE gone IS NULL").fetchone()[0])
                for name, kept in self._layout.tables.items()
            }

    def dirty(self) -> int:
        with self._readable():
            return int(self._run("SELECT count(*) FROM dirty").fetchone()[0])

    # -- the file -----------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        register(self._connection, self._circles)
        self._run("PRAGMA locking_mode = EXCLUSIVE")
        # A power failure may take back what was done last, whole: the positions go back with it.
        self._run("PRAGMA synchronous = NORMAL")
        self._run("PRAGMA cache_size = -131072")
        # After a transaction larger than this, its log is cut off again.
        self._run("PRAGMA journal_size_limit = 67108864")

    def _identify(self, view: View, shard: int) -> None:
        if not self._run("SELECT count(*) FROM sqlite_master WHERE name = 'facts'").fetchone()[0]:
            raise self._lost("the file is damaged: it is empty")
        found = dict(self._run("SELECT name, value FROM facts").fetchall())
        if found.get("discarded"):
            raise self._lost("it differs from its log")
        wanted = {"format": FORMAT, "view": view.fingerprint, "shard": shard}
        other = [name for name, value in wanted.items() if found.get(name) != value]
        if other:
            raise self._lost(f"it was made for another {other[0]}")
        if found["open"] and not self._has_log:
            raise self._lost("it was not closed in good order, and its write-ahead file is gone")
        if found["open"]:
            said = [row[0] for row in self._run("PRAGMA quick_check(1)")]
            if said != ["ok"]:
                raise self._lost(f"the file is damaged: {said[0]}")

    @contextmanager
    def _readable(self, *, transaction: bool = True) -> Iterator[None]:
        """One transaction, with SQLite's errors as ours."""
        with explained(self._path, self._layout.view):
            if transaction:
                self._run("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.rollback()
                raise
            self._connection.commit()

    def _lost(self, why: str) -> RowsLost:
        return lost(self._path, self._layout.view, why)

    def _run(self, statement: str, parameters: Mapping[str, object] | tuple[object, ...] = ()) -> sqlite3.Cursor:
        return self._connection.execute(statement, parameters)

    def _set(self, name: str, value: int) -> None:
        self._run("UPDATE facts SET value = ? WHERE name = ?", (value, name))

    def _fact(self, name: str) -> int:
        return int(self._run("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()[0])

    def _oldest(self) -> int | None:
        """The first `apply` of which something is not published."""
        found = [self._run("SELECT min(since) FROM dirty WHERE large = ?", (large,)).fetchone()[0] for large in (0, 1)]
        return min((int(since) for since in found if since is not None), default=None)
