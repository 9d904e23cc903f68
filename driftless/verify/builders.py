"""Whoever builds a view, on whatever machine, asked through the control topic to look over or mend what it keeps."""

from __future__ import annotations

import time
from collections.abc import Sequence

from driftless import names
from driftless.control.request import ControlReader, Request, answered, ask, is_running
from driftless.control.topic import Control
from driftless.errors import SourceError
from driftless.facts.state import LEASE_SECONDS

_KEYS = 500
"""Of a request: so many fit into a record."""


class Builders:
    """The runners of all shards of a build. Each method returns when all have done it.

    Raises SourceError where one is not there, refuses, or has not done it in `seconds`.
    """

    def __init__(self, control: Control, view: str, build: int, shards: int, seconds: float) -> None:
        self._control = control
        self._view = view
        self._build = build
        self._leases = [names.view_lease(view, shard) for shard in range(shards)]
        self._seconds = seconds

    def audit(self) -> list[str]:
        """Keys whose rows, as the builders keep them, give another document than was published; some, if many."""
        return [key for answer in self._have_done("audit") for key in answer["keys"]]

    def republish(self, keys: Sequence[str]) -> None:
        """Have documents published again. It is done when the followers have applied a marker that is written later."""
        for start in range(0, len(keys), _KEYS):
            self._have_done("doubt", keys=list(keys[start : start + _KEYS]))

    def refill(self) -> None:
        """Have all rows read from the log again, and what differs published; done as above."""
        self._have_done("fill")

    def _have_done(self, verb: str, **arguments: object) -> list[dict[str, list[str]]]:
        asked = [ask(self._control, lease, verb, build=self._build, **arguments) for lease in self._leases]
        with ControlReader(self._control) as reader:
            return [self._answer(reader, request) for request in asked]

    def _answer(self, reader: ControlReader, request: Request) -> dict[str, list[str]]:
        deadline = time.monotonic() + self._seconds
        while True:
            reader.follow(lambda state: answered(state, request) is not None, LEASE_SECONDS)
            answer = answered(reader.state, request)
            if answer is not None:
                if answer["error"]:
                    what = f"the view {self._view} refuses `{request.verb}`: {answer['error']}"
                    raise SourceError(what, hint="`driftless status` shows where the view stands")
                return answer
            if not is_running(reader.state, request.follower, self._control.now()):
                raise SourceError(
                    f"nobody builds the view {self._view}", hint="`driftless run` first; see `driftless status`"
                )
            if time.monotonic() >= deadline:
                raise SourceError(
                    f"the view {self._view} has not answered `{request.verb}` in {self._seconds:.0f} s",
                    hint="`driftless status` shows where it stands",
                )
