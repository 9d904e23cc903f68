"""What the page's buttons do: as the command of the same name does it, through the control topic."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from driftless.config.models import Config
from driftless.control.rebuild import wanted_generation
from driftless.control.request import answered, ask, is_running
from driftless.control.topic import Control
from driftless.errors import ConfigError, SinkError
from driftless.facts.generation import generations
from driftless.suggest import did_you_mean
from serve.facts.collector import Collector

_log = logging.getLogger(__name__)
ANSWER_SECONDS = 15.0
"""How long the run's answer is waited for. A rebuild goes on for longer: the page shows it."""
_COMMAND = Path(sys.executable).parent / "driftless"
_LINES = 3


class Actions:
    """Each is asked for by name, with a follower; what was done comes back as a sentence. Any thread may ask."""

    def __init__(self, config: Config, control: Control, collector: Collector, file: Path) -> None:
        """`file`: the sync.yaml, for the commands that are started."""
        self._config = config
        self._control = control
        self._collector = collector
        self._verify = Verifying(file)
        self._verbs: dict[str, Callable[[str, int | None], str]] = {
            "pause": self._pause,
            "resume": self._resume,
            "rebuild": self._rebuild,
            "promote": self._promote,
            "back": self._promote,
            "retry": self._retry,
            "verify": self._begin_verify,
        }

    @property
    def verbs(self) -> list[str]:
        return list(self._verbs)

    def do(self, verb: str, follower: str, generation: int | None) -> str:
        """Do it; what was done. Raises SyncError with what to do instead."""
        if follower not in self._config.followers:
            known = did_you_mean(follower, self._config.followers)
            raise ConfigError(f"there is no follower `{follower}`{known}", hint="name a follower of sync.yaml")
        if not generations(self._collector.state, follower):
            raise ConfigError(f"the follower `{follower}` has not been applied yet", hint="run `driftless apply` first")
        return self._verbs[verb](follower, generation)

    def verifying(self) -> str:
        """What the `verify` that was begun last does, in words; empty where none was."""
        return self._verify.told()

    def stop(self) -> None:
        self._verify.stop()

    def _pause(self, follower: str, _: int | None) -> str:
        self._control.write({f"paused/{follower}": {}})
        return f"{follower} is paused"

    def _resume(self, follower: str, _: int | None) -> str:
        self._control.write({f"paused/{follower}": None})
        return f"{follower} goes on"

    def _rebuild(self, follower: str, _: int | None) -> str:
        wanted = wanted_generation(self._config, self._collector.state, follower, auto_promote=True)
        answer = self._asked(follower, "rebuild", generation=wanted.to_json())
        begun = f"generation {answer.get('generation')} is being built; readers are switched to it when it is"
        return begun if answer else _LATER

    def _promote(self, follower: str, generation: int | None) -> str:
        known = generations(self._collector.state, follower)
        if generation not in known:
            numbers = ", ".join(map(str, known))
            raise ConfigError(f"{follower} has no generation {generation}", hint=f"it has {numbers}")
        answer = self._asked(follower, "promote", generation=generation, force=False)
        return f"readers see generation {generation}" if answer else _LATER

    def _retry(self, follower: str, _: int | None) -> str:
        answer = self._asked(follower, "retry", keys=None, generation=None)
        return f"{answer['written']:,} written, {answer['left']:,} still quarantined" if answer else _LATER

    def _begin_verify(self, follower: str, _: int | None) -> str:
        self._verify.begin(follower)
        return f"{follower} is being verified; the result comes below Proofs"

    def _asked(self, follower: str, verb: str, **arguments: object) -> dict[str, object]:
        """The answer of whoever runs the follower; empty where it takes longer."""
        snapshot = self._collector.look()
        if not is_running(snapshot.state, follower, snapshot.now):
            raise SinkError(f"nobody runs {follower}", hint=f"start `driftless run {follower}`, then ask again")
        request = ask(self._control, follower, verb, **arguments)
        answer = self._collector.wait_for(lambda state: answered(state, request), ANSWER_SECONDS)
        if answer and answer.get("error"):
            raise SinkError(str(answer["error"]), hint=f"`driftless status` shows where {follower} stands")
        return answer or {}


_LATER = "asked; the run does it as soon as it can, and the page shows it"


class Verifying:
    """One `driftless verify` at a time, in a process of its own."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._follower = ""
        self._said = ""

    def begin(self, follower: str) -> None:
        """Raises SinkError where one is under way."""
        with self._lock:
            if self._process is not None:
                raise SinkError(f"{self._follower} is being verified already", hint="wait until that has ended")
            command = [str(_COMMAND), "verify", follower, "-f", str(self._file)]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            self._follower, self._said = follower, ""
        threading.Thread(target=self._follow, args=(self._process,), name="verify", daemon=True).start()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        _, said = process.communicate()
        with self._lock:
            self._process = None
            if process.returncode not in (0, 1) or not said.strip():  # 0 and 1 are results, which are facts by then
                last = " ".join(said.strip().splitlines()[-_LINES:])
                self._said = f"verify of {self._follower} ended with {process.returncode}: {last}" if last else ""
            _log.info("verify %s ended with %d", self._follower, process.returncode)

    def told(self) -> str:
        with self._lock:
            return f"{self._follower} is being verified" if self._process is not None else self._said

    def stop(self) -> None:
        with self._lock:
            if self._process is not None:
                self._process.terminate()
