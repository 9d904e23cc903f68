"""What is compared: a view over the source, the log that tells it, and the followers of that log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from driftless.errors import SinkMisconfigured
from driftless.facts.epochs import TopicLog
from driftless.facts.state import State
from driftless.kafka.client import Offsets
from driftless.sink import Sink


class PinnedSource(Protocol):
    """The source at one exact position; see connectors/postgres/source_snapshot.py."""

    @property
    def lsn(self) -> int: ...

    def count(self, statement: str) -> int: ...

    def documents(
        self, statement: str, keys: Sequence[str] | None = None, *, aside: bool = False
    ) -> Iterator[list[tuple[str, str]]]: ...

    def as_json(self, kind: str, text: str) -> str | None: ...


class ViewBuilders(Protocol):
    """Who builds a view; see driftless/verify/builders.py."""

    def audit(self) -> list[str]: ...

    def republish(self, keys: Sequence[str]) -> None: ...

    def refill(self) -> None: ...


UNREADABLE = "\0unreadable: "
"""Begins what a history gives in place of a document that cannot be made of its record; the reason follows."""


class History(Protocol):
    """The records of a log as documents; see jobs/log/history.py."""

    def read(self, begin: Offsets, end: Offsets) -> Iterator[pa.Table]: ...


@dataclass(frozen=True)
class Source:
    """`moment`: takes a position, told how to report who holds it up. `mark`: writes a marker and gives its place."""

    moment: Callable[[Callable[[str], None]], AbstractContextManager[PinnedSource]]
    mark: Callable[[], int]


@dataclass
class Target:
    """One generation of a follower. `quarantined`: asks for the keys in quarantine; `held`: those that were told of.
    `keeps_text`: documents are read back byte by byte.

    `expires`: documents go away by themselves. `live`: it is to be what readers see. `trouble`: why it cannot be
    compared.
    """

    follower: str
    generation: int
    sink: Sink
    quarantined: Callable[[], frozenset[str]]
    held: frozenset[str] = frozenset()
    keeps_text: bool = True
    expires: bool = False
    live: bool = False
    trouble: str = ""

    def look_at_readers(self, *, meanwhile: bool = False) -> None:
        """It has `trouble` afterwards where readers do not see it, by what the store says of their own names.

        `meanwhile`: it was compared since the last look.
        """
        if not self.live or self.trouble:
            return
        try:
            seen = self.sink.promoted()
        except SinkMisconfigured as exc:
            self.trouble = str(exc)
            return
        if seen == self.generation:
            return
        if meanwhile:
            self.trouble = f"readers were switched to {_number(seen)} while it was compared; verify again"
        else:
            self.trouble = (
                f"generation {self.generation} is what the control topic says that readers see, and its store shows "
                f"them {_number(seen)}; `driftless status` shows what is happening, `driftless promote {self.follower} "
                f"--generation {self.generation}` switches them to it"
            )


def _number(generation: int | None) -> str:
    return "none of its generations" if generation is None else f"generation {generation}"


@dataclass(frozen=True)
class Subject:
    """`stage`: what the log is called in a report, `table-log` or `view-log`. `statement`: gives the source's side;
    `careful`: the same where that ends at a value that cannot be shown (see driftless/views/sql.py).

    `beside`: topics, with how many partitions, whose records tell where transactions ended; none where the log's
    own do not. `skips`: the log need not tell every state of a document, as a view's. `superseded`: whether the log
    has a new epoch. `columns`: of the table, where the subject is one. `again`: has the source's rows of some keys
    written into the log once more; None where nobody can. `builders`: of a view's log, who writes it.
    `quarantined`: asks for the keys that are too large for it. `source`: what it is compared with, where that is not
    the database.
    """

    name: str
    stage: str
    statement: str
    log: TopicLog
    history: History
    careful: str = ""
    beside: Mapping[str, int] = field(default_factory=dict)
    skips: bool = False
    superseded: Callable[[State], bool] = lambda _: False
    columns: frozenset[str] = frozenset()
    again: Callable[[Sequence[str]], None] | None = None
    builders: ViewBuilders | None = None
    quarantined: Callable[[], frozenset[str]] = frozenset
    source: Source | None = None
    targets: list[Target] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to compare: each of its followers has its trouble."""
        return bool(self.targets) and all(target.trouble for target in self.targets)
