"""The one door to Kafka Connect's REST interface."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import urllib3

from connectors.debezium.access import login, trust
from driftless.config.address import shown_url
from driftless.config.models import ConnectConfig
from driftless.errors import ConfigError, SourceError, SourceUnavailable
from driftless.transport.http import is_whole
from driftless.transport.tls import CERTIFICATES, refusal

SETTLE_SECONDS = 5.0
"""How long a failed state may be that of the task before the change: the new one was seen within 2 s."""

_NO_LEADER = "without claiming write privileges"
"""Of a worker that was asleep while another led the group: it leads again, and refuses every change (Connect 4.3)."""


@dataclass(frozen=True)
class StoredPosition:
    """The position in the source's log that a connector resumes from. `lsn`: the end of what it has read.
    `transaction`: the number of the transaction that it read last, whole or in part. `snapshot`: it reads the tables.
    """

    lsn: int
    transaction: int | None
    snapshot: bool


class Connect:
    """A Connect cluster. Its answers name settings, never their secrets: those are references."""

    def __init__(self, config: ConnectConfig, *, patience: float = 60.0) -> None:
        """`patience`: seconds for which an answer is waited for. To a change it comes when the group has settled.

        Raises ConfigError where a file of certificates cannot be read.
        """
        url = urlsplit(config.url.rstrip("/"))
        user, at, host = url.netloc.rpartition("@")
        name, _, password = user.partition(":")
        self.url = urlunsplit(url._replace(netloc=host))
        self.address = shown_url(self.url)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if at:
            self._headers |= login(unquote(name), unquote(password))
        elif config.username is not None:
            self._headers |= login(config.username, config.password_http or "")
        timeout = urllib3.Timeout(connect=min(5.0, patience), read=patience)
        self._http = urllib3.PoolManager(timeout=timeout, retries=False, ssl_context=trust(config))

    def config(self, name: str) -> dict[str, str] | None:
        """A connector's settings, or None where there is no such connector."""
        found: dict[str, str] | None = self._call("GET", f"/connectors/{name}/config", missing=True)
        if found is not None and not isinstance(found, dict):
            raise self._stranger()
        return found

    def put(self, name: str, config: dict[str, str]) -> None:
        """Create the connector or change its settings."""
        self._call("PUT", f"/connectors/{name}/config", config)

    def delete(self, name: str) -> None:
        """Delete the connector; one that does not exist is no error."""
        self._call("DELETE", f"/connectors/{name}", missing=True)

    def restart(self, name: str) -> None:
        """Start the connector and what failed of its tasks again."""
        self._call("POST", f"/connectors/{name}/restart?includeTasks=true&onlyFailed=true", missing=True)

    def stop(self, name: str) -> None:
        """End the connector's task, and keep the connector; asked again, it stays so."""
        self._call("PUT", f"/connectors/{name}/stop")

    def resume(self, name: str) -> None:
        """Let a connector that was stopped or paused go on."""
        self._call("PUT", f"/connectors/{name}/resume")

    def forget(self, name: str) -> None:
        """Forget the position of a connector that was stopped: it begins with a snapshot. Older tasks are fenced."""
        self._call("DELETE", f"/connectors/{name}/offsets")

    def position(self, name: str) -> tuple[int | None, bool]:
        """(The position of the source's log to go on from, None where there is none; whether there is a connector)."""
        stored, captures = self._offsets(name)
        return None if stored is None else stored.lsn, captures

    def stored(self, name: str) -> StoredPosition | None:
        """The position that the connector resumes from; None where it has none, or there is no such connector."""
        return self._offsets(name)[0]

    def _offsets(self, name: str) -> tuple[StoredPosition | None, bool]:
        answer = self._call("GET", f"/connectors/{name}/offsets", missing=True)
        with self._understood():
            return _stored(answer), answer is not None

    def state(self, name: str) -> tuple[str, str]:
        """(`RUNNING`, `FAILED`, `UNASSIGNED`, `MISSING`..., first line of the trace). RUNNING: connector and task."""
        status = self._call("GET", f"/connectors/{name}/status", missing=True)
        with self._understood():
            return ("MISSING", "") if status is None else self._state(status)

    @staticmethod
    def _state(status: Any) -> tuple[str, str]:
        parts = [status["connector"], *status["tasks"]]
        for part in parts:
            if part["state"] == "FAILED":
                return "FAILED", _cause(part.get("trace", ""))
        if not status["tasks"]:
            held = status["connector"]["state"]
            return held if held in ("STOPPED", "PAUSED") else "UNASSIGNED", ""
        worst = next((part["state"] for part in parts if part["state"] != "RUNNING"), "RUNNING")
        return worst, ""

    def wait_running(self, name: str, seconds: float, waiting: Callable[[], None] = lambda: None) -> None:
        """Return when connector and task run; raises SourceError when they fail or the time is up.

        `waiting`: called again and again until then.

        For a moment after a change or a restart, the state is still told of what ran before it.
        """
        begun = time.monotonic()
        deadline = begun + seconds
        while True:
            state, cause = self.state(name)
            if state == "RUNNING":
                return
            if state == "FAILED" and time.monotonic() > begun + SETTLE_SECONDS:
                raise SourceError(f"the connector {name} failed: {cause}", hint="see the Connect worker's log")
            if time.monotonic() > deadline:
                raise SourceError(
                    f"the connector {name} is still {state} after {seconds:.0f} s",
                    hint="see the Connect worker's log; `driftless apply` waits for it again",
                )
            waiting()
            time.sleep(0.2)

    def validate(self, config: dict[str, str]) -> list[str]:
        """What Connect says against these settings, `field: message`."""
        kind = config["connector.class"]
        answer = self._call("PUT", f"/connector-plugins/{kind.rsplit('.', 1)[-1]}/config/validate", config)
        with self._understood():
            return [
                f"{item['value']['name']}: {error}" for item in answer["configs"] for error in item["value"]["errors"]
            ]

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """An answer of another form than Connect's comes from another kind of server."""
        try:
            yield
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            raise self._stranger() from None

    def _stranger(self) -> ConfigError:
        hint = "connect.url must lead to the REST interface of a Connect worker"
        return ConfigError(f"the server at {self.address} is not Kafka Connect", hint=hint)

    def _call(self, method: str, path: str, body: object = None, *, missing: bool = False) -> Any:
        """One request; tries again while the cluster rebalances, which it does for a moment after every change."""
        deadline = time.monotonic() + 60
        while True:
            try:
                answer = self._http.request(
                    method,
                    self.url + path,
                    body=None if body is None else json.dumps(body),
                    headers=self._headers,
                )
            except urllib3.exceptions.HTTPError as exc:
                if self.url.startswith("https") and (why := refusal(str(exc))):
                    raise ConfigError(
                        f"Kafka Connect at {self.address}: {why}", hint=f"in `connect`, {CERTIFICATES}"
                    ) from None
                hint = "is the worker running, and is connect.url right? `driftless up` starts a local one"
                raise SourceUnavailable(
                    f"Kafka Connect at {self.address} cannot be reached: {_reason(exc)}", hint=hint
                ) from exc
            if not is_whole(answer.status, answer.headers):
                raise SourceUnavailable(
                    f"Kafka Connect at {self.address} broke off its answer to {method} {path}",
                    hint="try again; if it happens again, see the log of the worker, and of a proxy before it",
                )
            if answer.status in (401, 403):
                raise ConfigError(
                    f"Kafka Connect at {self.address} refuses the login: {answer.status}",
                    hint="set `connect.username` and `connect.password_http`, or correct them",
                )
            if answer.status == 404 and missing:
                if answer.data and not _is_ours(answer):
                    raise self._stranger()
                return None
            if answer.status < 300:
                if not answer.data:
                    return None
                with self._understood():
                    found = answer.json()
                if found is None:
                    raise self._stranger()
                return found
            if _NO_LEADER in (why := _message(answer)):
                raise SourceError(f"Kafka Connect at {self.address}: {why}", hint="start the Connect worker again")
            # 409: rebalancing. 500 with a timeout: the worker waits for its group, as after a kill.
            if answer.status not in (409, 500, 503) or time.monotonic() > deadline:
                raise SourceError(
                    f"Kafka Connect at {self.address} answers {method} {path} with {answer.status}: {why}",
                    hint="see the Connect worker's log",
                )
            time.sleep(0.5)


def _stored(answer: Any) -> StoredPosition | None:
    """By an answer to the question for offsets; there is one at most, as a database has one connector."""
    for offset in [] if answer is None else [item["offset"] or {} for item in answer["offsets"]]:
        known = [int(offset[key]) for key in ("lsn", "lsn_proc", "lsn_commit") if offset.get(key)]
        if known:
            number = offset.get("txId")
            return StoredPosition(max(known), None if number is None else int(number), bool(offset.get("snapshot")))
    return None


def _is_ours(answer: urllib3.BaseHTTPResponse) -> bool:
    try:
        return "error_code" in answer.json()
    except (ValueError, TypeError):
        return False


def _reason(exc: Exception) -> str:
    """The kind of failure: the text of some names objects of the library, of others the whole URL."""
    cause = exc.__cause__ or exc
    return str(cause.strerror) if isinstance(cause, OSError) and cause.strerror else type(exc).__name__


def _message(answer: urllib3.BaseHTTPResponse) -> str:
    try:
        return "; ".join(str(answer.json()["message"]).splitlines()[:5])
    except (ValueError, KeyError, IndexError):
        return answer.data[:200].decode(errors="replace")


def _cause(trace: str) -> str:
    """The last `Caused by` of a Java trace, which names the reason."""
    causes = [line for line in trace.splitlines() if line.startswith("Caused by: ")]
    lines = [line.removeprefix("Caused by: ") for line in causes] or trace.splitlines()
    return lines[-1] if causes else (lines[0] if lines else "no trace")
