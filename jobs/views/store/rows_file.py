"""The file of a row store: what goes wrong with it, in our words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from driftless.errors import SourceUnavailable, SyncError
from driftless.views.tree import View
from jobs.views.store.contract import RowsLost

_SUFFIXES = ("", "-wal", "-shm")


def remove(path: Path) -> None:
    """Remove a store's file, with those that SQLite has beside it."""
    for suffix in _SUFFIXES:
        sqlite_file(path, suffix).unlink(missing_ok=True)


def store_bytes(path: Path) -> int:
    """How much of the disk they take."""
    total = 0
    for suffix in _SUFFIXES:
        with suppress(FileNotFoundError):
            total += sqlite_file(path, suffix).stat().st_size
    return total


@contextmanager
def explained(path: Path, view: View) -> Iterator[None]:
    """What SQLite cannot read any more is RowsLost, and what it cannot write may pass."""
    try:
        yield
    except sqlite3.DatabaseError as exc:
        code = getattr(exc, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise lost(path, view, f"the file is damaged: {exc}") from exc
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY):
            raise SourceUnavailable(not_kept(path, view, exc), hint="make room there; it resumes by itself") from exc
        if code == sqlite3.SQLITE_BUSY:
            what = f"the rows of the view {view.name} in {path} are in use by another process"
            raise SyncError(what, hint="end the other runner first: a row store has one") from exc
        raise


def lost(path: Path, view: View, why: str) -> RowsLost:
    return RowsLost(f"the rows of the view {view.name} in {path} are lost: {why}")


def not_kept(path: Path, view: View, why: object) -> str:
    return f"the rows of the view {view.name} cannot be kept in {path}: {why}"


def sqlite_file(path: Path, suffix: str) -> Path:
    """One of SQLite's own files."""
    return path.with_name(path.name + suffix)
