"""Alerts without a Prometheus: judged here, and sent to a webhook: once when one fires, and once when it is over."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from confluent_kafka import KafkaException

from driftless.control.health import Kind
from driftless.errors import SyncError
from driftless.facts.state import State
from driftless.metrics import catalogue as m
from driftless.metrics.alerts import Alert
from serve.alerting.webhook import Webhook, WebhookError
from serve.facts.collector import Snapshot

_log = logging.getLogger(__name__)
LOOK_SECONDS = 2.0
"""How often figures are judged."""
CLAIM_SECONDS, CLAIM_LASTS_SECONDS = 20.0, 70.0
"""Of several `serve` one sends: it says so as often, and another takes over when it has not for so long."""
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 300.0
"""How long to wait before a message is given to the webhook again, at first and at most."""
SENDER = "alerts/sender"
_AWAY = (Kind.SOURCE_UNREACHABLE, Kind.KAFKA_UNREACHABLE)
Facts = Mapping[str, dict[str, object] | None]


class Remembers(Protocol):
    """The control topic, as far as alerts are kept there."""

    def write(self, facts: Facts) -> float: ...


@dataclass(frozen=True)
class Firing:
    """An alert of one figure. `since`: seconds since 1970 at which its condition began to hold."""

    alert: Alert
    labels: tuple[str, ...]
    since: float
    summary: str
    value: float

    @property
    def key(self) -> str:
        """Of the fact that remembers that it was told."""
        return f"alert/{self.alert.name}/{json.dumps(self.labels)}"


class AlertSender(threading.Thread):
    """Judges the alerts, and sends messages to the webhook. It keeps what it has sent in the control topic: after a
    restart `serve` sends nothing twice, and reports the alerts that have ended meanwhile.
    """

    def __init__(
        self,
        pipeline: str,
        known: tuple[Alert, ...],
        look: Callable[[], Snapshot],
        memory: Remembers,
        webhook: Webhook,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name="alerts", daemon=True)
        self._pipeline = pipeline
        self._alerts = known
        self._look = look
        self._memory = memory
        self._webhook = webhook
        self._clock = clock
        self._own = uuid.uuid4().hex
        self._claimed_at = 0.0
        self._begun: dict[str, float] = {}
        self._missed: dict[str, Firing] = {}
        """What has fired and is over, and was never told."""
        self._recent: dict[str, Mapping[str, Any] | None] = {}
        """What this process has told, which the control topic may not show yet; None of what is over."""
        self._pause, self._next_at = _PAUSE_SECONDS, 0.0
        self._ended = threading.Event()

    def stop(self) -> None:
        self._ended.set()

    def run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            try:
                self.turn()
            except (SyncError, KafkaException) as exc:
                _log.warning("alerts: what was told cannot be kept, so nothing is told: %s", exc)
                self._ended.wait(_PAUSE_SECONDS)
            except Exception as exc:  # noqa: BLE001 - or nobody would be told of anything any more
                where = "".join(traceback.format_tb(exc.__traceback__))
                _log.error("alerts: %s (please report it)\n%s", type(exc).__name__, where)

    def turn(self) -> None:
        """Judge once, and tell what is to be told."""
        snapshot = self._look()
        firing = self._judge(snapshot)
        if not self._is_sender(snapshot.state, snapshot.now):
            self._recent.clear()
            return
        told = {key: said for key, said in (_told(snapshot.state) | self._recent).items() if said is not None}
        for key, one in firing.items():
            if key not in told:
                self._missed[key] = one
                self._send(one, "firing")
        if any(problem["kind"] in _AWAY for problem in snapshot.facts["problems"]):
            return  # what is over is known where servers answer
        for key in told.keys() - firing.keys():
            self._send_over(key, told[key])
        for key in self._missed.keys() - firing.keys() - told.keys():
            self._send(self._missed[key], "resolved")

    def _judge(self, snapshot: Snapshot) -> dict[str, Firing]:
        """What has held for as long as it must."""
        now, figures = self._clock(), snapshot.figures()
        found: dict[str, Firing] = {}
        holding: dict[str, float] = {}
        details = {(p["kind"], p["who"]): p["what"] for p in snapshot.facts["problems"]}
        for alert in self._alerts:
            for figure in alert.firing(figures):
                assert not isinstance(figure.value, tuple)
                since = self._begun.get(f"{alert.name} {figure.labels}", now)
                holding[f"{alert.name} {figure.labels}"] = since
                if now - since >= alert.seconds:
                    more = details.get((figure.labels[0], figure.labels[1])) if figure.metric is m.PROBLEM else None
                    summary = f"{alert.told(figure)}: {more}" if more else alert.told(figure)
                    one = Firing(alert, figure.labels, since, summary, figure.value)
                    found[one.key] = one
        self._begun = holding
        return found

    def _is_sender(self, state: State, now: float) -> bool:
        """Whether this `serve` is the one that sends; it claims that where nobody else does."""
        claim = state.facts.get(SENDER)
        own = claim is not None and claim.value.get("id") == self._own
        if claim is not None and not own and now - claim.time < CLAIM_LASTS_SECONDS:
            return False
        if self._clock() - self._claimed_at >= CLAIM_SECONDS:
            self._memory.write({SENDER: {"id": self._own}})
            self._claimed_at = self._clock()
        return own  # the newest claim holds, also where two were made at once

    def release(self) -> None:
        """Let another one send at once. After `stop`."""
        if self._claimed_at:
            self._memory.write({SENDER: None})

    def _send(self, one: Firing, state: str) -> None:
        """Tell of an alert, and remember that it was told."""
        said = {
            "alert": one.alert.name,
            "severity": one.alert.severity,
            "labels": dict(zip(one.alert.when.metric.labels, one.labels, strict=True)),
            "summary": one.summary,
            "do": one.alert.do,
            "since": round(one.since, 3),
            "value": one.value,
        }
        if self._deliver(said, state):
            self._missed.pop(one.key, None)
            self._note(one.key, None if state == "resolved" else said)

    def _send_over(self, key: str, said: Mapping[str, Any]) -> None:
        if self._deliver(said, "resolved"):
            self._note(key, None)

    def _note(self, key: str, said: dict[str, object] | None) -> None:
        """Remember what was told, here first: it was."""
        self._recent[key] = said
        self._memory.write({key: said})

    def _deliver(self, said: Mapping[str, Any], state: str) -> bool:
        """Whether the webhook has taken it. After a failure it is left alone for a while, longer each time."""
        if self._clock() < self._next_at:
            return False
        now = self._clock()
        try:
            self._webhook.post(message(self._pipeline, said, state, now))
        except WebhookError as exc:
            _log.warning("alerts: the webhook does not take a message, which is tried again: %s", exc)
            self._next_at, self._pause = now + self._pause, min(self._pause * 2, _LONGEST_PAUSE_SECONDS)
            return False
        self._next_at, self._pause = 0.0, _PAUSE_SECONDS
        return True


def message(pipeline: str, said: Mapping[str, Any], state: str, now: float) -> dict[str, Any]:
    """What the webhook is given. `id` is the same of an alert that fires and of its end; `text` is what chats show."""
    who = json.dumps([pipeline, said["alert"], said["labels"], said["since"]], sort_keys=True)
    over = state == "resolved"
    text = f"{pipeline}: {said['summary']}" if not over else f"{pipeline}: over: {said['summary']}"
    return {
        "id": hashlib.sha256(who.encode()).hexdigest()[:32],
        "pipeline": pipeline,
        "state": state,
        **{name: said[name] for name in ("alert", "severity", "labels", "summary", "do", "value")},
        "since": _iso(said["since"]),
        "until": _iso(now) if over else None,
        "text": text if over else f"{text}; {said['do']}",
    }


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def _told(state: State) -> dict[str, dict[str, Any]]:
    """What the webhook was told of, and not of its end."""
    return {f"alert/{name}": fact.value for name, fact in state.by_prefix("alert").items()}
