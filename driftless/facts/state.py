"""What the control topic held at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

LEASE_SECONDS = 10.0
"""A runner that has not renewed its lease for so long may be replaced. Well below the horizon for late writers."""
RENEWAL = "pipeline/renewal"
"""The fact that all tables are to be re-snapshotted. It stays until that is done, also when the cause is gone."""
WATCHED, UNWATCHED = "reader/watched", "reader/unwatched"
"""The facts since when the source is read, and that nobody watched when that began: see
connectors/postgres/slot_reader.py.
"""


@dataclass(frozen=True)
class Fact:
    """A record: its value, the broker's time of writing in seconds, and its offset."""

    value: dict[str, object]
    time: float
    offset: int


@dataclass(frozen=True)
class State:
    """What the control topic held at one moment.

    What several threads look at is never changed: `having` makes the next one. `set` and `merge` are for whoever has a
    state alone.
    """

    facts: dict[str, Fact]

    def get(self, key: str) -> dict[str, object] | None:
        fact = self.facts.get(key)
        return None if fact is None else fact.value

    @cached_property
    def now(self) -> float:
        """The broker's time of the newest record: while somebody runs, at most a few seconds ago."""
        return max((fact.time for fact in self.facts.values()), default=0.0)

    @cached_property
    def _kinds(self) -> dict[str, dict[str, Fact]]:
        """Kind -> key -> fact: a pipeline of hundreds of tables has thousands of facts, and a turn asks for few."""
        kinds: dict[str, dict[str, Fact]] = {}
        for key, fact in self.facts.items():
            kinds.setdefault(key.partition("/")[0], {})[key] = fact
        return kinds

    def set(self, key: str, value: dict[str, object] | None) -> None:
        """Take in what has just been written, before it is read."""
        now = self.now
        if value is None:
            self.facts.pop(key, None)
        else:
            self.facts[key] = Fact(value, now, -1)
        self.__dict__.pop("_kinds", None)

    def merge(self, facts: Mapping[str, dict[str, object] | None]) -> None:
        """The same of several."""
        for key, value in facts.items():
            self.set(key, value)

    def having(self, facts: Mapping[str, Fact | None]) -> State:
        """The state after these records; None forgets one. This one stays as it is."""
        found, kinds = dict(self.facts), dict(self._kinds)
        for kind in {key.partition("/")[0] for key in facts}:
            kinds[kind] = dict(kinds.get(kind, {}))
        for key, fact in facts.items():
            same = kinds[key.partition("/")[0]]
            if fact is None:
                found.pop(key, None)
                same.pop(key, None)
            else:
                found[key] = same[key] = fact
        after = State(found)
        after.__dict__["_kinds"] = kinds
        after.__dict__["now"] = max([self.now, *(fact.time for fact in facts.values() if fact is not None)])
        return after

    def by_prefix(self, kind: str) -> dict[str, Fact]:
        """Name -> fact of one kind."""
        prefix = f"{kind}/"
        found = self._kinds.get(kind.partition("/")[0], {})
        return {key.removeprefix(prefix): fact for key, fact in found.items() if key.startswith(prefix)}


def history(state: State) -> int:
    """How often all tables had to be re-snapshotted, as changes were missing: positions claimed before mean nothing."""
    identity = state.get("pipeline/identity") or {}
    return int(str(identity.get("history", 0)))
