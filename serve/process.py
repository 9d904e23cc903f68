"""The service as a process of its own: small, since it holds nothing of what the command needed to read sync.yaml."""

from __future__ import annotations

import logging
import os
import pickle
import socket
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from driftless.config.duration import milliseconds
from driftless.config.models import Config
from driftless.control.topic import Control
from driftless.errors import SourceUnavailable, SyncError
from driftless.metrics.alerts import alerts
from driftless.pipeline import control_of
from serve.actions import Actions
from serve.alerting.sender import AlertSender
from serve.alerting.webhook import Webhook
from serve.app import Service, say
from serve.facts.collector import Collector
from serve.http.access import AccessRules
from serve.http.server import Listening, answer
from serve.why import WhyReport


@dataclass(frozen=True)
class Settings:
    """What the service is started with. It holds secrets: never print or store it."""

    config: Config
    file: Path
    access: AccessRules
    place: Listening


def become(settings: Settings, listening: socket.socket) -> NoReturn:
    """End this program and become the service, under the same process id."""
    with tempfile.TemporaryFile() as file:  # which has no name, and is read by this user alone
        pickle.dump(settings, file)
        file.flush()
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        for number in (file.fileno(), listening.fileno()):
            os.set_inheritable(number, True)
        # Of the C library's pools of memory, one for each thread is more than all that is in them.
        environment = {"MALLOC_ARENA_MAX": "2", **os.environ}
        numbers = [str(file.fileno()), str(listening.fileno())]
        # -P: a file of the folder that it is started in is no module of ours.
        os.execve(sys.executable, [sys.executable, "-P", "-m", "serve.process", *numbers], environment)  # noqa: S606


def main(settings_number: int, socket_number: int) -> int:
    """The service, from the open files of these numbers. The exit code."""
    with open(settings_number, "rb") as file:
        settings: Settings = pickle.load(file)  # noqa: S301 - this process has just written it
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S", level=logging.WARNING)
    listening = socket.socket(fileno=socket_number)
    config, place = settings.config, settings.place
    try:
        control = control_of(config)
        collector = Collector(config, control, settings.file)
    except SyncError as exc:
        say(f"error: {exc}\n  {exc.hint}")
        return 3 if isinstance(exc, SourceUnavailable) else 1
    collector.start()
    sender = alert_sender(config, collector, control)
    place = replace(place, port=listening.getsockname()[1])
    actions = Actions(config, control, collector, settings.file)
    service = Service(config, collector, settings.access, actions, WhyReport(settings.file))
    answer(service.app(), place, listening, lambda: say(f"serving {config.name} on {place.url}"))
    actions.stop()
    if sender is not None:
        sender.stop()
        with suppress(SyncError):
            sender.release()
    collector.stop()
    return 0


def alert_sender(config: Config, collector: Collector, control: Control) -> AlertSender | None:
    """Started, where sync.yaml has `alerts`."""
    asked = config.alerts
    if asked is None:
        return None
    known = alerts(milliseconds(asked.lag) / 1000, milliseconds(asked.proof) / 1000)
    sender = AlertSender(config.name, known, collector.snapshot, control, Webhook(asked.webhook, asked.headers))
    sender.start()
    return sender


if __name__ == "__main__":
    code = main(*map(int, sys.argv[1:3]))
    sys.stderr.flush()
    os._exit(code)  # without the exit handlers of C libraries: see cli/base.py
