"""Patterns as sync.yaml declares them: events of one key that follow one another, or fail to.

What can be told from the file alone is checked here; what needs Spark's own parser, in jobs/streams/sql/analysis.py.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from pydantic import Field, model_validator

from driftless.config.base import Model
from driftless.config.duration import Duration, milliseconds
from driftless.config.streams import SqlName
from driftless.config.view_fields import KeyColumns
from driftless.streams.patterns import Pattern, PatternStep

TAKEN = ("began", "at")
"""Columns that every match has: when its first event happened, and when it was complete."""
MOST_STEPS = 20


class StepConfig(Model):
    """One step of a pattern: an event that comes, or, as the last step, one that does not."""

    name: SqlName | None = Field(
        default=None,
        description="What SQL calls the event that is found, the last one of several: `cart.at`. Left out where the "
        "step is that no event comes.",
        examples=["cart"],
    )
    where: str | None = Field(
        default=None, description="A condition in SQL: which event it is.", examples=["\"page = 'cart'\""]
    )
    times: int = Field(default=1, ge=1, le=1000, description="How many such events it takes.", examples=["3"])
    within: Duration | None = Field(
        default=None,
        description="How long after the step before it at most; where the first step takes several events, how long "
        "after the first of them.",
        examples=["10m"],
    )
    unless: str | None = Field(
        default=None,
        description="A condition in SQL: no such event may come meanwhile. Alone with `within`, as the last step, it "
        "is all that the step asks.",
        examples=["\"page = 'paid'\""],
    )

    @property
    def step(self) -> PatternStep:
        within = 0 if self.within is None else milliseconds(self.within)
        return PatternStep(self.name or "", self.where or "", within, self.times, self.unless or "")


class PatternConfig(Model):
    """What events of one key do in turn, within bounded times. Streams read its matches as they read events."""

    events: SqlName = Field(description="The `events` that it looks at.", examples=["clicks"])
    by: KeyColumns = Field(
        description="The columns of which all events of a match have the same. An event that lacks one is in none.",
        examples=["[user_id]"],
    )
    steps: Annotated[
        tuple[StepConfig, ...],
        Field(
            min_length=1,
            max_length=MOST_STEPS,
            description="What comes after what. Each event that the first step takes begins one attempt.",
            examples=[
                "[{name: cart, where: \"page = 'cart'\", times: 2, within: 5m}, {unless: \"page = 'pay'\", within: 9m}]"
            ],
        ),
    ]

    @property
    def pattern(self) -> Pattern:
        return Pattern(self.events, self.by, tuple(step.step for step in self.steps))

    @model_validator(mode="after")
    def _is_a_pattern(self) -> PatternConfig:
        names = [step.name for step in self.steps if step.name]
        for number, step in enumerate(self.steps):
            if why := self._fault(number, step):
                raise ValueError(f"step {number + 1}: {why}")
        for name, count in Counter([*names, *self.by, *TAKEN]).items():
            if count > 1:
                raise ValueError(f"`{name}` would be two columns of a match: name the step otherwise")
        if len(self.steps) == 1 and self.steps[0].times == 1:
            raise ValueError("one step for one event is no pattern: a stream finds it with WHERE")
        return self

    def _fault(self, number: int, step: StepConfig) -> str:
        """What is wrong with a step; empty for nothing."""
        if (step.name is None) != (step.where is None):
            return "`name` and `where` belong together: what the event is called, and which one it is"
        if step.name is None and (step.unless is None or number == 0 or number + 1 < len(self.steps)):
            if step.unless is None:
                return "it has neither `where` nor `unless`: which event comes, or does not?"
            return "only the last step, after another one, can be that no event comes; give this one `name` and `where`"
        if step.name is None and step.times > 1:
            return "`times` is of events that come"
        if number == 0 and step.times == 1 and (step.within or step.unless):
            return "the first step waits for nothing: give `within` and `unless` to the step after it"
        if step.within is None and (number or step.times > 1):
            return "how long may it take? give it `within`: without it, events would be kept for ever"
        return ""
