"""Begin a generation beside the live one: whoever runs the follower gives it its number, so that no two meet in one."""

from __future__ import annotations

from dataclasses import replace

from driftless.control.request import ControlReader, answered, ask, is_running, refuse_all
from driftless.control.topic import Control
from driftless.facts.generation import Generation, begin_facts, next_number
from driftless.facts.state import LEASE_SECONDS, State


def begin(control: Control, follower: str, wanted: Generation) -> None:
    """Begin it, whether somebody runs the follower or not."""
    state = control.read()
    if is_running(state, follower, control.now()):
        request = ask(control, follower, "rebuild", generation=wanted.to_json())
        with ControlReader(control) as reader:
            reader.follow(lambda state: answered(state, request) is not None, 2 * LEASE_SECONDS)
            answer = answered(reader.state, request)
        if answer is not None and not answer.get("error"):
            return
        if answer is None:
            control.write({request.key: None})
        state = control.read()
    control.write(begin_facts(follower, replace(wanted, number=next_number(state, follower))))


def begin_first(state: State, follower: str, wanted: Generation) -> dict[str, dict[str, object] | None]:
    """The facts that begin a follower. What was asked of one of that name before is not done to this one."""
    return refuse_all(state, follower, f"{follower} was removed") | begin_facts(follower, wanted)
