"""A pattern of events as a build of a stream keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PatternStep:
    """`times` events for which `where` holds, in SQL, within `within` milliseconds of the step before; of the first
    step, of its first event. No event between for which `unless` holds. `name`: of its last event, in the result.

    A step without a name comes last: it is done when `within` has passed, and no event came for which `unless` holds.
    """

    name: str
    where: str
    within: int = 0
    times: int = 1
    unless: str = ""

    def to_json(self) -> list[object]:
        return [*vars(self).values()]


@dataclass(frozen=True)
class Pattern:
    """`events`: the name of those that it looks at. `by`: the columns of which events must have the same."""

    events: str
    by: tuple[str, ...]
    steps: tuple[PatternStep, ...]

    @property
    def span(self) -> int:
        """The longest time that a match can take, in milliseconds."""
        return sum(step.within for step in self.steps)

    def to_json(self) -> dict[str, object]:
        return {"events": self.events, "by": [*self.by], "steps": [step.to_json() for step in self.steps]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Pattern:
        return cls(data["events"], tuple(data["by"]), tuple(PatternStep(*step) for step in data["steps"]))
