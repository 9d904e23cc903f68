"""How commands have something done: by whoever runs the follower, on whatever machine, or else here and now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cli.base import err, say
from cli.output.progress import show
from cli.run import run_here
from driftless.config.models import Config
from driftless.control.request import ControlReader, Request, answered, ask, is_running
from driftless.control.topic import Control
from driftless.errors import ConfigError, Fenced, SinkError, SourceError
from driftless.facts.generation import generations, label
from driftless.facts.state import LEASE_SECONDS, State
from driftless.pipeline import chosen, control_of, load


def opened(file: Path, follower: str) -> tuple[Config, Control, State]:
    """The configuration and the pipeline's state, for a follower that is configured and has been applied."""
    config = load(file)
    chosen(config, [follower])
    control = control_of(config)
    state = control.read()
    if not generations(state, follower):
        raise ConfigError(f"the follower `{follower}` has not been applied yet", hint="run `driftless apply` first")
    return config, control, state


def fulfil(
    config: Config,
    control: Control,
    follower: str,
    verb: str,
    *,
    shard: tuple[str, int] | None = None,
    **arguments: object,
) -> dict[str, Any]:
    """Ask, and return the answer. Raises SinkError with the reason where it is refused.

    `shard`: of a view, where `follower` is the name of its lease.
    """
    request = ask(control, follower, verb, **arguments)
    state = have_done(config, control, follower, lambda state: bool(answered(state, request)), request, shard=shard)
    return granted(state, request)


def granted(state: State, request: Request) -> dict[str, Any]:
    """The answer. Raises SinkError with the reason where it is refused."""
    answer = answered(state, request)
    assert answer is not None
    if answer.get("error"):
        raise SinkError(str(answer["error"]), hint=f"`driftless status` shows where {request.follower} stands")
    return answer


def have_done(
    config: Config,
    control: Control,
    follower: str,
    done: Callable[[State], bool],
    request: Request,
    *,
    shard: tuple[str, int] | None = None,
) -> State:
    """The control topic once `done` is true of it. Where nobody runs the follower, run it here until then.

    Raises SinkError where it cannot come about any more, since the follower was removed: nobody answers then. `shard`:
    as for `fulfil`.
    """
    followers, views = ([follower], []) if shard is None else ([], [shard])

    def gone(state: State) -> bool:
        return shard is None and not state.by_prefix(f"generation/{follower}")

    try:
        while not done(state := control.read()):
            if gone(state):
                control.write({request.key: None})  # or it would be done to the next follower of that name
                raise SinkError(f"{follower} was removed", hint="`driftless apply` makes it again")
            if is_running(state, follower, control.now()):
                with _shown(follower) as seen, ControlReader(control) as reader:
                    reader.follow(lambda state: seen(state) or done(state) or gone(state), LEASE_SECONDS)
                continue
            say(f"nobody runs {follower}: running it here until this is done")
            try:
                if run_here(config, followers, views=views, until=done):
                    raise KeyboardInterrupt
            except Fenced:
                say(f"{follower}: somebody else runs it now: waiting for them")
            except SourceError:
                if not done(control.read()):  # somebody who had just begun to run it has done it, as to remove it
                    raise
    except KeyboardInterrupt:
        say("the request is saved and will run when the follower starts")
        raise
    return state


class _Told:
    """Where a generation stands, as its runner has told the control topic."""

    def __init__(self, follower: str, number: int) -> None:
        self.follower = label(follower, number)
        self.fact: Mapping[str, Any] = {}

    @property
    def state(self) -> str:
        return str(self.fact.get("state", ""))

    @property
    def positions(self) -> Mapping[int, int]:
        return {0: self.done} if self.fact else {}

    @property
    def done(self) -> int:
        return int(self.fact.get("read_records", 0))

    @property
    def total(self) -> int:
        return self.done + int(self.fact.get("lag_records", 0))


@contextmanager
def _shown(follower: str) -> Iterator[Callable[[State], bool]]:
    """Show how far generations are that another process builds."""
    told: dict[int, _Told] = {}
    standings: list[_Told] = []

    def seen(state: State) -> bool:
        for name, fact in state.by_prefix(f"follower/{follower}").items():
            number = int(name)
            if number not in told:
                told[number] = _Told(follower, number)
                standings.append(told[number])
            told[number].fact = fact.value
        return False

    with show(standings, err):
        yield seen
