"""How commands have something done: by whoever runs the follower, on whatever machine, or else here and now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from driftless.cli.base import chosen, err
from driftless.config import Config
from driftless.control import LEASE_SECONDS, Control, State
from driftless.errors import ConfigError, Fenced, SinkError
from driftless.generation import generations
from driftless.kafka import Kafka
from driftless.progress import show
from driftless.request import Request, answered, ask, is_running, watch


def control_of(config: Config) -> Control:
    return Control(Kafka(config.kafka), config.name)


def applied(config: Config, control: Control, follower: str) -> State:
    """The pipeline's state, for a follower that is configured and has been applied."""
    chosen(config, [follower])
    state = control.read()
    if not generations(state, follower):
        raise ConfigError(f"the follower `{follower}` has not been applied yet", hint="run `driftless apply` first")
    return state


def fulfil(config: Config, control: Control, follower: str, verb: str, **arguments: object) -> dict[str, Any]:
    """Ask, and return the answer. Raises SinkError with the reason where it is refused."""
    request = ask(control, follower, verb, **arguments)
    have_done(config, control, follower, lambda state: answered(state, request) is not None)
    answer = answered(control.read(), request)
    assert answer is not None
    if answer["error"]:
        raise SinkError(str(answer["error"]))
    return answer


def have_done(config: Config, control: Control, follower: str, done: Callable[[State], bool]) -> None:
    """Return when `done` is true of the control topic. Where nobody runs the follower, run it here until then."""
    try:
        while not done(state := control.read()):
            if is_running(state, follower, control.now()):
                with _shown(follower) as seen:
                    watch(control, lambda state: seen(state) or done(state), LEASE_SECONDS)
            else:
                try:
                    _run_here(config, follower, done)
                except Fenced:
                    err.print(f"{follower}: somebody else runs it now: waiting for them", markup=False)
    except KeyboardInterrupt:
        err.print("what was asked for stays in the control topic, and is done when the follower runs")
        raise


def _run_here(config: Config, follower: str, done: Callable[[State], bool]) -> None:
    import signal

    from jobs.runner import Runner
    from stack import fetch

    err.print(f"nobody runs {follower}: running it here until this is done", markup=False)
    runner = Runner(config, [follower], fetch(["spark"], lambda line: err.print(line, markup=False))["spark"])
    interrupted = []

    def end(*_: object) -> None:
        interrupted.append(True)
        runner.stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    with show(runner.progress, err):
        runner.run(until=done, report=lambda line: err.print(line, markup=False))
    if interrupted:
        raise KeyboardInterrupt


class _Told:
    """Where a generation stands, as its runner has told the control topic."""

    def __init__(self, follower: str, number: int) -> None:
        self.follower = follower if number == 1 else f"{follower} (generation {number})"
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
        for name, fact in state.under(f"follower/{follower}").items():
            number = int(name)
            if number not in told:
                told[number] = _Told(follower, number)
                standings.append(told[number])
            told[number].fact = fact.value
        return False

    with show(standings, err):
        yield seen


__all__ = ["Request", "applied", "control_of", "fulfil", "have_done"]
