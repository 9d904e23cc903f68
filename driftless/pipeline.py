"""A pipeline by its sync.yaml: the configuration, the control topic, the followers that are meant."""

from __future__ import annotations

import socket
from pathlib import Path

from driftless.config.load import load as load_config
from driftless.config.models import Config
from driftless.control.topic import Control
from driftless.errors import ConfigError, SourceUnavailable
from driftless.kafka.client import Kafka

_KNOCK_SECONDS = 3.0


def load(file: Path) -> Config:
    """The configuration, whole and checked."""
    import sinks

    return load_config(file, {kind: sinks.config_model(kind) for kind in sinks.kinds()})


def control_of(config: Config) -> Control:
    """The pipeline's control topic. Raises SourceUnavailable at once where every broker refuses a connection, which the
    client would try for a quarter of a minute, and SourceMisconfigured within seconds where they refuse the login.
    """
    _knock(config.kafka.bootstrap)
    kafka = Kafka(config.kafka)
    kafka.log_in()
    return Control(kafka, config.name)


def _knock(bootstrap: str) -> None:
    why = ""
    for broker in bootstrap.split(","):
        host, _, port = broker.strip().rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_SECONDS).close()
        except (ConnectionRefusedError, socket.gaierror) as exc:
            why = exc.strerror or type(exc).__name__
        except OSError:
            return  # a network that is slow may be so for us alone
        else:
            return
    hint = "is the broker running, and is kafka.bootstrap right? `driftless up` starts a local one"
    raise SourceUnavailable(f"Kafka at {bootstrap} cannot be reached: {why}", hint=hint)


def chosen(config: Config, given: list[str]) -> list[str]:
    """The followers that are named, all if none is. Raises ConfigError for one that is not configured."""
    from driftless.suggest import did_you_mean

    for name in given:
        if name not in config.followers:
            raise ConfigError(
                f"there is no follower `{name}`{did_you_mean(name, config.followers)}",
                hint="name a follower of sync.yaml; -f names another file",
            )
    return given or list(config.followers)
