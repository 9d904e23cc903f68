"""How Kafka Connect's REST interface is entered: the login, and the certificates."""

from __future__ import annotations

import ssl
from base64 import b64encode

from driftless.config.models import ConnectConfig
from driftless.errors import ConfigError
from driftless.transport.tls import UnreadableCertificate, client_context


def login(name: str, password: str) -> dict[str, str]:
    """The header of RFC 7617, in UTF-8."""
    return {"Authorization": "Basic " + b64encode(f"{name}:{password}".encode()).decode()}


def trust(config: ConnectConfig) -> ssl.SSLContext | None:
    """What an `https` connection is made with. Raises ConfigError where a file cannot be read."""
    if not config.url.startswith("https://"):
        return None
    try:
        return client_context(config.ca_certs, config.client_cert, config.client_key)
    except UnreadableCertificate as exc:
        what = f"connect.{exc.field}: the file cannot be read: {exc.why}"
        raise ConfigError(what, hint="give the path of a PEM file") from None
