"""How a pipeline reaches a secured stack: the parts of its sync.yaml, without anything secret."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stack.machine.keys import USER, Keys
from stack.servers.connect import Connect
from stack.servers.kafka import Kafka, login_of
from stack.servers.opensearch import OpenSearch
from stack.servers.postgres import SUPERUSER, Postgres
from stack.servers.redis import Redis
from stack.servers.server import Site


def sections(site: Site, servers: Sequence[str]) -> dict[str, Any]:
    """`source`, `kafka` and `connect` of a sync.yaml, and what each follower's `opensearch` and `redis` begin with."""
    keys = site.keys
    assert keys is not None
    ca = str(keys.ca)
    found = {
        "postgres": ("source", _source(Postgres(site), _secret(keys, "postgres"))),
        "kafka": ("kafka", _kafka(site, keys)),
        "connect": ("connect", _connect(Connect(site), ca, _secret(keys, "connect"))),
        "opensearch": (
            "opensearch",
            {"url": OpenSearch(site).url(_secret(keys, "opensearch")), "ca_certs": ca},
        ),
        "redis": ("redis", {"url": Redis(site).url_with(_secret(keys, "redis")), "ca_certs": ca}),
    }
    return {name: section for server, (name, section) in found.items() if server in servers}


def _secret(keys: Keys, server: str) -> str:
    return _text(keys.password_file(server))


def _source(server: Postgres, secret: str) -> dict[str, Any]:
    """The role that streams the log, and the superuser, for `apply` alone."""
    return {
        "dsn": server.dsn_of(USER, secret),
        "admin_dsn": server.dsn_of(SUPERUSER, _text(server.password_file)),
    }


def _kafka(site: Site, keys: Keys) -> dict[str, Any]:
    login = login_of(keys, USER)
    security = {"protocol": login.protocol, "mechanism": login.mechanism, "username": login.username}
    return {
        "bootstrap": site.address(Kafka.name),
        "security": {**security, "password": _secret(keys, Kafka.name), "ca": str(keys.ca)},
    }


def _connect(server: Connect, ca: str, secret: str) -> dict[str, Any]:
    login = {"username": USER, "password_http": secret}
    return {"url": server.url(), "ca_certs": ca, **login, "source_ssl": {"ca": ca}}


def _text(file: Path) -> str:
    """What sync.yaml reads from a file."""
    return f"${{file:{file}}}"
