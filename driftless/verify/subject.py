"""What is compared: a view over the source, the log that tells it, and the followers of that log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from driftless.control import State
from driftless.kafka import Offsets
from driftless.registry import TopicLog
from driftless.sink import Sink


class Moment(Protocol):
    """The source at one exact position; see connectors/moment.py."""

    @property
    def lsn(self) -> int: ...

    def count(self, statement: str) -> int: ...

    def documents(self, statement: str, keys: Sequence[str] | None = None) -> Iterator[list[tuple[str, str]]]: ...


class Builders(Protocol):
    """Who builds a view; see driftless/verify/builders.py."""

    def audit(self) -> list[str]: ...

    def doubt(self, keys: Sequence[str]) -> None: ...

    def fill(self) -> None: ...


class History(Protocol):
    """The records of a log as documents; see jobs/history.py."""

    def read(self, begin: Offsets, end: Offsets) -> Iterator[pa.Table]: ...


@dataclass(frozen=True)
class Source:
    """`moment`: takes a position, told how to report who holds it up. `mark`: writes a marker and gives its place."""

    moment: Callable[[Callable[[str], None]], AbstractContextManager[Moment]]
    mark: Callable[[], int]


@dataclass
class Target:
    """One generation of a follower. `quarantined`: asks for the keys in quarantine; `held`: those that were told of.
    `keeps_text`: documents are read back byte by byte.

    `expires`: documents go away by themselves. `trouble`: why it cannot be compared.
    """

    follower: str
    generation: int
    sink: Sink
    quarantined: Callable[[], frozenset[str]]
    held: frozenset[str] = frozenset()
    keeps_text: bool = True
    expires: bool = False
    trouble: str = ""


@dataclass(frozen=True)
class Subject:
    """`stage`: what the log is called in a report, `table-log` or `view-log`. `statement`: gives the source's side.

    `beside`: topics, with how many partitions, whose records tell where transactions ended; none where the log's own do
    not. `skips`: the log need not tell every state of a document, as a view's. `overtaken`: whether the log has begun
    anew. `columns`: of the table, where the subject is one. `again`: has the source's rows of some keys written into
    the log once more; None where nobody can. `builders`: of a view's log, who writes it. `quarantined`: asks for
    the keys that are too large for it.
    """

    name: str
    stage: str
    statement: str
    log: TopicLog
    history: History
    beside: Mapping[str, int] = field(default_factory=dict)
    skips: bool = False
    overtaken: Callable[[State], bool] = lambda _: False
    columns: frozenset[str] = frozenset()
    again: Callable[[Sequence[str]], None] | None = None
    builders: Builders | None = None
    quarantined: Callable[[], frozenset[str]] = frozenset
    targets: list[Target] = field(default_factory=list)
