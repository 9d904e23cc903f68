"""Feeds a log to the row store as a job would, only more roughly, and keeps what it publishes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driftless.version import make_version
from driftless.views.tree import View
from jobs.views.store.contract import Slice
from jobs.views.store.sqlite import SqliteRows
from tests.jobs.views.store.views_cases import Case, Row, row_of
from tests.jobs.views.store.views_source import Change
from tests.support.compare import parse, same

Documents = dict[str, Any]


class Crash(Exception):
    """The process is killed here."""


def crash(store: SqliteRows) -> None:
    """End as a killed process would: the files stay as they are. SQLite would tidy them when it closes them."""
    files = [path for suffix in ("", "-wal") if (path := store._path.with_name(store._path.name + suffix)).exists()]
    left = {path: path.read_bytes() for path in files}
    store._connection.close()
    for path, data in left.items():
        path.write_bytes(data)


def as_rows(view: View, changes: Iterable[Change]) -> Iterator[tuple[str, list[tuple[object, ...]]]]:
    """Changes as the store takes them, each table's in the order of the log."""
    for change in changes:
        table = view.tables.get(change.table)
        if table is not None:
            names = [column.name for column in table.columns]
            values = [None if change.texts is None else _value(change.texts[name]) for name in names]
            version = make_version(1, change.offset)
            yield change.table, [(change.key, version, int(change.texts is None), *values)]


def _value(text: str) -> str | None:
    return None if text == "null" else text


@dataclass
class Reader:
    """`history`: what the documents must be as of each cut, by plain loops. `published`: what readers have."""

    case: Case
    view: View
    path: Path
    rng: random.Random
    rows: dict[str, dict[str, Row]] = field(default_factory=dict)
    history: list[Documents] = field(default_factory=list)
    published: Documents = field(default_factory=dict)
    log: list[Change] = field(default_factory=list)
    texts: dict[str, str | None] = field(default_factory=dict)
    writes: int = 0
    unanswered: set[str] = field(default_factory=set)
    """Keys published before a crash, of which the store does not know it: the one reason to write a document again."""
    held: Slice | None = None
    """Published, but the store is told only after the next changes."""

    def __post_init__(self) -> None:
        self.store = SqliteRows.create(self.path, self.view)
        self.rows = {name: {} for name in self.case.tables}
        self.history.append({})

    def feed(self, transactions: list[list[Change]]) -> None:
        """In cuts at random ends of transactions; after each of them the documents must be right."""
        waiting = list(transactions)
        while waiting:
            # A new store is filled before it is asked for anything: often with much.
            count = self.rng.choice([1, 1, 2, 3, 8] if len(self.history) > 1 else [1, 8, 30, 100])
            some, waiting = waiting[:count], waiting[count:]
            self._cut([change for transaction in some for change in transaction])
            self._drain(everything=self.rng.random() < 0.6 or not waiting)

    def _cut(self, changes: list[Change]) -> None:
        for change in changes:
            if change.texts is None:
                self.rows[change.table].pop(change.key, None)
            else:
                self.rows[change.table][change.key] = row_of(change.texts)
        self.history.append(self.case.documents(self.rows))
        again = self.rng.sample(self.log, min(len(self.log), self.rng.choice([0, 0, 1, 5])))
        self.log += changes
        given = [*again, *changes]
        self.rng.shuffle(given)
        number = len(self.history) - 1
        if self.rng.random() < 0.15:
            self._crash_while_applying(given)
        while self.rng.random() < 0.5:
            size = self.rng.randint(0, len(given))
            some, given = given[:size], given[size:]
            self.store.apply(as_rows(self.view, some), {("log", 0): number - 1}, now=number)
            if self.rng.random() < 0.1:
                self._reopen()
        self.store.apply(as_rows(self.view, given), {("log", 0): number}, str(number), now=number)
        self._answer()
        if self.rng.random() < 0.1:
            self._reopen()
        assert self.store.positions() == {("log", 0): number}

    def _crash_while_applying(self, given: list[Change]) -> None:
        def half() -> Iterator[tuple[str, list[tuple[object, ...]]]]:
            yield from as_rows(self.view, given[: len(given) // 2])
            raise Crash

        try:
            self.store.apply(half(), {("log", 0): -1}, "never")
        except Crash:
            self._reopen()
        assert self.store.positions().get(("log", 0), 0) == len(self.history) - 2

    def _answer(self) -> None:
        if self.held is not None:
            self.store.published(self.held)
            self.unanswered.difference_update(key for key, _ in self.held.writes)
            self.held = None

    def _reopen(self) -> None:
        if self.held is not None:
            self.unanswered.update(key for key, _ in self.held.writes)
            self.held = None
        if self.rng.random() < 0.3:
            self.store.close()
        else:
            crash(self.store)
        self.store = SqliteRows(self.path, self.view)

    def _drain(self, *, everything: bool) -> None:
        for _ in range(10**6 if everything else self.rng.randint(0, 3)):
            done = self.store.assemble(self.rng.choice([1, 2, 4, 7, 1000]))
            if not done:
                break
            for key, document in done.writes:
                self._publish(key, document)
            self.held = done
            what = self.rng.random()
            if what < 0.1:
                self._reopen()
            elif what < 0.3 and not everything:
                break
            else:
                self._answer()
            self._fresh()
        if everything:
            assert self.store.dirty() == 0
            assert self.store.frontier() == str(len(self.history) - 1)
            self._compare(self.history[-1])

    def _publish(self, key: str, text: str | None) -> None:
        # 1.0 that becomes 1.00 is a change.
        if key not in self.unanswered:
            assert text != self.texts.get(key), f"{key} is written though nothing of it changed"
        document = None if text is None else parse(text)
        self.texts[key] = text
        self.writes += 1
        if document is None:
            self.published.pop(key, None)
        else:
            self.published[key] = document

    def _fresh(self) -> None:
        """Each document is as of a cut that is no older than the frontier."""
        frontier = int(self.store.frontier() or 0)
        for key in {*self.published, *self.history[-1]}:
            shown = self.published.get(key)
            assert any(same(shown, then.get(key)) for then in self.history[frontier:]), f"{key}: {frontier=}: {shown}"

    def _compare(self, wanted: Documents) -> None:
        assert self.published.keys() == wanted.keys(), (self.published.keys() ^ wanted.keys(), len(self.history))
        for key, document in wanted.items():
            assert same(self.published[key], document), f"{key}\nis    {self.published[key]}\nnot   {document}"
