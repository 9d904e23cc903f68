"""Why brokers cannot be used though they are there: what the client heard, and what their port really speaks."""

from __future__ import annotations

import logging
import re
import socket
import ssl
import struct
import time
from collections import deque
from contextlib import suppress

from confluent_kafka import KafkaError

from driftless.config.kafka_security import KafkaSecurity
from driftless.config.models import KafkaConfig
from driftless.errors import SourceMisconfigured

FRESH_SECONDS = 60.0
"""How old a complaint may be that explains a failure: a client says the same again only when something changed."""
_PROBE_SECONDS = 3.0
_NAME_MISMATCH = {62, 64}
"""OpenSSL's codes for a certificate of another host name, and of another address."""
_EXPIRED = 10
_BROKER = re.compile(r"://(\[[^\]]+\]|[^/:]+):(\d+)/")
_DETAIL = re.compile(r"^.*?://\S+: |\s*\(after \d+ms in state \w+[^)]*\)|error:[0-9A-F]+:|, \d+ identical error.*$")
_REFUSED_CERTIFICATE = re.compile(r"alert (number|bad certificate|certificate|unknown ca|handshake failure)")


class Complaints(logging.Handler):
    """What a process's clients of one cluster complained of, in librdkafka's words: an error callback and a logger.

    librdkafka goes on trying in silence where a broker refuses a login, so an operation only times out.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._heard: deque[tuple[float, int | None, str]] = deque(maxlen=20)
        self.logger = logging.Logger("driftless.kafka", logging.INFO)
        self.logger.addHandler(self)

    def hear(self, error: KafkaError) -> None:
        """librdkafka's `error_cb`."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # which says nothing of why
            self._heard.append((time.monotonic(), error.code(), error.str()))

    def emit(self, record: logging.LogRecord) -> None:
        self._heard.append((time.monotonic(), None, record.getMessage()))

    def forget(self) -> None:
        """A connection works: what was said before has passed."""
        self._heard.clear()

    def _newest(self, *codes: int | None) -> str | None:
        now = time.monotonic()
        said = [text for at, code, text in list(self._heard) if code in codes and now - at < FRESH_SECONDS]
        return said[-1] if said else None

    def refusal(self, config: KafkaConfig) -> SourceMisconfigured | None:
        """What brokers say no to for good: a login, a certificate. None where it is nothing of that kind."""
        if said := self._newest(KafkaError._AUTHENTICATION):
            return _no_login(said, config)
        said = self._newest(KafkaError._SSL, KafkaError._TRANSPORT) or ""
        if "certificate verify failed" in said or _REFUSED_CERTIFICATE.search(said):
            return _no_trust(said, config)
        return None

    def diagnosis(self, config: KafkaConfig) -> SourceMisconfigured | None:
        """The same, and where client and port do not speak the same protocol. Asks the port: for a first connection."""
        if found := self.refusal(config):
            return found
        said = self._newest(KafkaError._SSL, KafkaError._TRANSPORT, None) or ""
        return _wrong_protocol(said, config)


def _no_login(said: str, config: KafkaConfig) -> SourceMisconfigured:
    user = config.security.user if config.security else None
    what = f"Kafka at {_place(said, config)} refuses the login of `{user}`: {_plain(said)}"
    if "supported mechanisms:" in said:
        known = said.partition("supported mechanisms:")[2].partition("(")[0].strip()
        hint = (
            f"set `mechanism` of kafka.security to one of {known}"
            if known
            else ("this listener takes no login: is it the right port? without one, `protocol` is SSL or PLAINTEXT")
        )
        return SourceMisconfigured(what, hint=hint)
    if config.security and config.security.by_token:
        hint = "does `token_url` of kafka.security give `client_id` a token that the brokers take?"
        return SourceMisconfigured(what, hint=hint)
    hint = "are `username`, `password` and `mechanism` of kafka.security those that the broker knows?"
    return SourceMisconfigured(what, hint=hint)


def _no_trust(said: str, config: KafkaConfig) -> SourceMisconfigured:
    place, security = _place(said, config), config.security
    if "certificate verify failed" not in said:
        what = f"Kafka at {place} refuses the client's certificate: {_plain(said)}"
        if security is None or security.certificate is None:
            what = f"Kafka at {place} asks for a client's certificate: {_plain(said)}"
            return SourceMisconfigured(what, hint="give `certificate` and `key` in kafka.security")
        hint = "is `certificate` of kafka.security signed by a CA that the brokers trust, and not out of date?"
        return SourceMisconfigured(what, hint=hint)
    found = _handshake(place, security) if security else None
    code = found.verify_code if isinstance(found, ssl.SSLCertVerificationError) else 0
    why = found.verify_message if isinstance(found, ssl.SSLCertVerificationError) else _plain(said)
    if code in _NAME_MISMATCH:
        hint = (
            "reach the brokers by a name in their certificate (kafka.bootstrap, and what they advertise), "
            "or set `check_server_name: false` in kafka.security"
        )
        return SourceMisconfigured(f"Kafka at {place} has a certificate of another name: {why}", hint=hint)
    if code == _EXPIRED:
        hint = "the broker needs a new certificate"
        return SourceMisconfigured(f"Kafka at {place} has a certificate that is out of date: {why}", hint=hint)
    whose = "`ca` of kafka.security trusts" if security and security.ca else "this system trusts"
    what = f"Kafka at {place} has a certificate by nobody whom {whose}: {why}"
    return SourceMisconfigured(what, hint="give the certificate of the brokers' CA as `ca` in kafka.security")


def _wrong_protocol(said: str, config: KafkaConfig) -> SourceMisconfigured | None:
    """Only what the port shows by an answer: a broker that starts, or what stands before it, may close connections."""
    place, security = _place(said, config), config.security
    protocol = security.protocol if security else "PLAINTEXT"
    wanted = security is not None and security.tls
    if not _listens(place):
        return None
    speaks_tls = _speaks_tls(place)
    if speaks_tls and not wanted:
        written = f"`protocol` of kafka.security is {protocol}" if security else "there is no kafka.security"
        hint = "set `protocol` of kafka.security to SASL_SSL, or to SSL where the brokers ask for no password"
        return SourceMisconfigured(f"Kafka at {place} speaks TLS on this port, and {written}", hint=hint)
    context = _any_certificate() if speaks_tls else None
    if not _answers(place, context, _API_VERSIONS):
        return None
    sasl = security is not None and security.sasl
    if wanted and not speaks_tls:
        what = f"Kafka at {place} does not speak TLS on this port, and `protocol` of kafka.security is {protocol}"
        plain = "SASL_PLAINTEXT" if sasl else "PLAINTEXT"
        return SourceMisconfigured(what, hint=f"is it the right port? without TLS, `protocol` is {plain}")
    if not sasl and not _answers(place, context, _METADATA):
        what = f"Kafka at {place} ends connections without a login, and `protocol` is {protocol}"
        hint = f"set `protocol` of kafka.security to {'SASL_SSL' if speaks_tls else 'SASL_PLAINTEXT'}"
        return SourceMisconfigured(what, hint=f"{hint}, with `mechanism`, `username` and `password`")
    return None


def _request(api: int, version: int, body: bytes = b"") -> bytes:
    """A request of Kafka's protocol, of nobody in particular."""
    header = struct.pack(">hhih", api, version, 1, -1)
    return struct.pack(">i", len(header) + len(body)) + header + body


_API_VERSIONS = _request(18, 0)
"""Answered by every listener, before any login."""
_METADATA = _request(3, 4, struct.pack(">i?", 0, False))
"""Of no topic: where a login is asked for, the connection is closed."""


def _answers(place: str, context: ssl.SSLContext | None, request: bytes) -> bool:
    """Whether a broker answers to a request, over TLS where there is a context."""
    with suppress(OSError), _connected(place) as plain:
        if context is None:
            plain.sendall(request)
            return len(plain.recv(4)) == 4
        with context.wrap_socket(plain) as wrapped:
            wrapped.sendall(request)
            return len(wrapped.recv(4)) == 4
    return False


def _listens(place: str) -> bool:
    with suppress(OSError), _connected(place):
        return True
    return False


def _connected(place: str) -> socket.socket:
    host, _, port = place.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS)


def _any_certificate() -> ssl.SSLContext:
    """For a look at what there is: nothing is told to whoever it is."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _speaks_tls(place: str) -> bool:
    try:
        with _connected(place) as plain, _any_certificate().wrap_socket(plain):
            return True
    except ssl.SSLError as exc:
        return "alert" in str(exc).lower()
    except OSError:
        return False


def _handshake(place: str, security: KafkaSecurity) -> Exception | None:
    """What a TLS handshake as the client's ends with; None where it is done."""
    try:
        context = ssl.create_default_context(cadata=security.ca)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as Kafka's clients
        context.check_hostname = security.check_server_name
        host = place.rpartition(":")[0].strip("[]")
        with _connected(place) as plain, context.wrap_socket(plain, server_hostname=host):
            return None
    except (OSError, ValueError) as exc:  # ssl.SSLError is an OSError
        return exc


def _place(said: str, config: KafkaConfig) -> str:
    """host:port of the broker that a complaint names; the first of `bootstrap` where it names none."""
    found = _BROKER.search(said)
    return f"{found[1]}:{found[2]}" if found else config.bootstrap.split(",")[0].strip()


def _plain(said: str) -> str:
    """A complaint without the broker's name and the client's own state."""
    return _DETAIL.sub("", said).strip()
