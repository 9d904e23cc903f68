"""How a pipeline reaches a secured stack: the parts of its sync.yaml, without anything secret."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stack.machine.keys import Keys
from stack.servers import connect, kafka, opensearch, postgres, redis
from stack.servers.server import Site


def sections(site: Site, servers: Sequence[str]) -> dict[str, Any]:
    """`source`, `kafka` and `connect` of a sync.yaml, and what each follower's `opensearch` and `redis` begin with."""
    keys = site.keys
    assert keys is not None
    ca = str(keys.ca)
    found = {
        "postgres": ("source", _source(site, keys)),
        "kafka": ("kafka", _kafka(site, keys)),
        "connect": (
            "connect",
            {
                "url": connect.Connect(site).url(),
                "ca_certs": ca,
                "username": connect.USER,
                "password_http": _text(connect.password_file(keys)),
                "source_ssl": {"ca": ca},
            },
        ),
        "opensearch": ("opensearch", {"url": _url("https", site, "opensearch", opensearch.password_file(keys))}),
        "redis": ("redis", {"url": f"{_url('rediss', site, 'redis', redis.password_file(keys))}/0"}),
    }
    for store in ("opensearch", "redis"):
        found[store][1]["ca_certs"] = ca
    return {name: section for server, (name, section) in found.items() if server in servers}


def _source(site: Site, keys: Keys) -> dict[str, Any]:
    """The role that streams the log, and the superuser, for `apply` alone."""
    place = f"{site.address('postgres')}/postgres?sslmode=verify-full&sslrootcert={quote(str(keys.ca), safe='/')}"
    users = {
        "dsn": (postgres.USER, postgres.password_file(keys)),
        "admin_dsn": ("postgres", postgres.Postgres(site).password_file),
    }
    return {field: f"postgresql://{user}:{_text(file)}@{place}" for field, (user, file) in users.items()}


def _kafka(site: Site, keys: Keys) -> dict[str, Any]:
    login = kafka.login_of(keys, kafka.USER)
    security = {"protocol": login.protocol, "mechanism": login.mechanism, "username": login.username}
    secret = {"password": _text(kafka.password_file(keys, kafka.USER)), "ca": str(keys.ca)}
    return {"bootstrap": site.address("kafka"), "security": {**security, **secret}}


def _url(scheme: str, site: Site, server: str, password: Path) -> str:
    return f"{scheme}://{opensearch.USER}:{_text(password)}@{site.address(server)}"


def _text(file: Path) -> str:
    """What sync.yaml reads from a file."""
    return f"${{file:{file}}}"
