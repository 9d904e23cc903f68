"""What keeps the rows of a view's tables and says which documents to write. jobs/views/store/sqlite.py is one of these.

The steps, each safe to repeat after a crash anywhere: `apply` up to a cut; then, until nothing is dirty, `assemble`,
publish what it gives, and `published`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from driftless.errors import Internal

Row = Sequence[object]
"""(key's text, version, whether it is a delete, then the JSON text of each column that the view reads of the table, in
the order of `View.tables`; None for SQL's null, and for all of a delete)."""
Partition = tuple[str, int]
"""A topic and its partition."""
FIRST_ROOT = -(1 << 63)
LAST_ROOT = (1 << 63) - 1
"""Between them is what a store numbers its roots with."""


class RowsLost(Internal):
    """The store is not there, damaged, or of another view: make a new one and fill it from the log."""


@dataclass(frozen=True)
class Slice:
    """Documents to publish, of one moment of the store.

    `writes`: (key's text, document or None for a tombstone), without those that are published as they are. `marks`: for
    `published` alone. `number`: of the last `apply` that it shows. `large`: how many roots are of large fan-outs.
    `cut`: that with which the root that has waited longest became dirty; None where there was none yet.
    """

    writes: list[tuple[str, str | None]]
    marks: list[tuple[int, int | None]]
    number: int
    large: int = 0
    cut: str | None = None

    def __bool__(self) -> bool:
        """Whether anything was dirty, also where nothing is to be written."""
        return bool(self.marks)


class RowStore(Protocol):
    """The rows of one view, or of one shard of it, and which of its documents are not published yet."""

    def apply(
        self,
        changes: Iterable[tuple[str, Iterable[Row]]],
        positions: Mapping[Partition, int],
        cut: str | None = None,
        *,
        swept: Mapping[str, int] | None = None,
        now: int = 0,
    ) -> None:
        """Take in whole transactions: rows by table, in any order, any number of times; all of it or nothing.

        A row that is not newer than what is stored changes nothing. Every root whose document could differ becomes
        dirty, and no other: one that shows a row that changed, before or after, in a column that the view reads there.
        `positions`: where reading goes on, kept with the rows. `cut`: what the rows are as of; see `frontier`.
        `swept`: table -> version; what it has of before that and not of these changes is deleted: rows of an epoch
        that has ended. `now`: seconds, from which a delete's tombstone counts its age.

        Of a view that is split, every shard is given every row and keeps its own. What it is given again must go on to
        where it had come to before, until it publishes: of rows that it never kept it does not know the versions.
        """

    def positions(self) -> dict[Partition, int]:
        """Where reading goes on."""

    def assemble(self, limit: int, large: int | None = None) -> Slice:
        """Up to so many dirty roots: those of small changes first, though never all, then those of large fan-outs; of
        these at most `large`.

        One slice at a time: the next is asked for when this one is `published`.
        """

    def published(self, done: Slice) -> None:
        """What the slice holds has been published: its roots are clean, but for those dirtied again since."""

    def frontier(self) -> str | None:
        """The newest cut of which every document is published; None where there is none yet."""

    def circles(self) -> dict[str, str]:
        """Table -> the key of a row that was found to be its own ancestor, since the store was opened."""

    def counts(self) -> dict[str, int]:
        """Table -> how many of its rows are kept here."""

    def dirty(self) -> int:
        """How many roots are not published yet."""

    def seed(self, documents: Iterable[tuple[str, str | None]]) -> None:
        """What has been published before this store was made, newest last for each key: compared, not repeated.

        Before the first `published`; keys of other shards are left out. A document whose root is not in the log by
        then becomes a tombstone.
        """

    def republish(self, keys: Iterable[str]) -> None:
        """Nobody knows what was published of these documents: they are published again, also one that is none."""

    def audit(self, begin: int, limit: int) -> tuple[list[str], int | None]:
        """The keys of clean roots whose rows give another document than was published of them, of so many from a
        place on, at first FIRST_ROOT; and where to go on, None at the end.
        """

    def discard(self) -> None:
        """What is kept is wrong: from the next opening on it is RowsLost."""

    def expire(self, before: int) -> int:
        """Forget the tombstones of rows deleted before that second; returns how many."""

    def close(self) -> None:
        """End in good order."""
