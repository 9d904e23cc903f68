"""A followable log, as generations and whoever runs them see it: what they are built from, whichever kind it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, Self

from driftless.config.models import Config
from driftless.facts.builds import Build
from driftless.facts.epochs import LogName, TopicLog
from driftless.facts.state import State


class FollowedLog(Protocol):
    """A compacted topic of keyed documents, from the place where a generation begins to follow it.

    It names the log alone and is cheap to make. All else stands in the control topic, and is looked up there: several
    times a second, so no method makes whole tables of a fact where it need not. The kinds: `FollowedTable`
    (driftless/facts/epochs.py), `FollowedView` (driftless/facts/builds.py), and `FollowedStream`
    (driftless/facts/streams.py).
    """

    ours: ClassVar[bool]
    """Whether driftless writes it: then its records are documents, and facts of its writers tell how far it is. Of
    other logs Debezium writes rows, and the source's markers tell how far those are."""
    renewal: ClassVar[str]
    """What an operator is told where a generation is to follow a newer one."""

    @property
    def fingerprint(self) -> str:
        """Of what its documents are made of, where driftless makes them; empty where that is not known."""

    def to_json(self) -> LogName:
        """How the fact of a generation names it."""

    def known(self, state: State) -> Self:
        """The same with its fingerprint."""

    def is_registered(self, state: State) -> bool:
        """Whether it is there: while a snapshot is being taken, it is not yet."""

    def is_superseded(self, state: State) -> bool:
        """Whether another one has taken its place: then it may show rows whose deletion no record tells."""

    def newest(self, state: State) -> Self:
        """The one that has taken its place; itself where none has."""

    def why_newest(self, state: State) -> str:
        """Why the newest one was begun."""

    def build(self, state: State) -> Build | None:
        """What it is made of; None for one that is not ours. Raises SourceError where it is not there."""

    def topic(self, state: State) -> TopicLog:
        """Its topic with its epochs. Raises SourceError where it is not there."""

    def retention_seconds(self, config: Config, state: State) -> float:
        """How long it keeps deletes."""

    def progress(self, state: State) -> Sequence[dict[str, Any]]:
        """What each of its writers says of how far it is; empty for one that is not ours."""
