"""Stores behind proxies that ask for a client's certificate and a login: who enters, and which error others get."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from driftless.errors import SinkMisconfigured
from driftless.sink import SinkContext
from sinks import open_sink
from stack import Endpoints
from tests.sinks.store_case import rows, unique_name, upsert, writes
from tests.support.security.certificates import Certificates
from tests.support.security.https_proxy import https_proxy, tls_tunnel

pytestmark = pytest.mark.server

TOKEN = "Bearer canary-token-9911"  # noqa: S105
PASSWORD = "canary-redis-4242"  # noqa: S105


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module", params=["opensearch", "redis"])
def store(request: pytest.FixtureRequest, endpoints: Endpoints, files: Certificates) -> Iterator[tuple[str, Any]]:
    """The kind, and the settings with which one enters."""
    name = unique_name()
    own = {"ca_certs": str(files.ca), "client_cert": str(files.client), "client_key": str(files.client_key)}
    if request.param == "opensearch":
        with https_proxy(endpoints.opensearch, files, TOKEN) as url:
            yield "opensearch", {"url": url, "index": name, "authorization": TOKEN, **own}
        return
    with redis.Redis.from_url(endpoints.redis) as admin, tls_tunnel(endpoints.redis, files) as address:
        admin.acl_setuser(name, enabled=True, passwords=[f"+{PASSWORD}"], keys=["*"], commands=["+@all"])
        try:
            url = f"rediss://{name}:{PASSWORD}@{address}/0"
            yield "redis", {"url": url, "key": f"{name}:{{id}}", **own}
        finally:
            admin.acl_deluser(name)


def opened(kind: str, settings: dict[str, Any]) -> Any:
    return open_sink(kind, settings, SinkContext("suite", "access", ("id",)))


def test_documents_are_written_and_read(store: tuple[str, Any]) -> None:
    kind, settings = store
    sink = opened(kind, settings)
    sink.check()
    sink.rehearse()
    sink.create(1)
    assert sink.apply(1, writes(upsert("1", 5, {"n": 1}))).written == 1
    assert [row[:2] for batch in sink.scan(1) for row in rows(batch)] == [("1", 5)]
    assert sink.save(1, "here", expected=None)
    sink.drop(1, also_live=True)
    sink.close()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"ca_certs": "other"}, "its certificate is not trusted"),
        ({"client_cert": None, "client_key": None}, "it refuses this client"),
        ({"client_key": "other"}, "`client_cert`: the file cannot be read: it is not PEM, or the key is another one"),
        ({"ca_certs": "/nowhere.pem"}, "`ca_certs`: the file cannot be read: No such file or directory"),
    ],
    ids=str,
)
def test_who_may_not_enter_is_told_why(
    store: tuple[str, Any], files: Certificates, change: dict[str, Any], told: str
) -> None:
    kind, right = store
    paths = {("ca_certs", "other"): files.other_ca, ("client_key", "other"): files.broker_key}
    wrong = {name: paths.get((name, str(value)), value) for name, value in change.items()}
    assert told in refused(kind, {name: str(value) for name, value in {**right, **wrong}.items() if value is not None})


def test_another_login_is_refused(store: tuple[str, Any]) -> None:
    kind, right = store
    if kind == "redis":
        wrong = {"url": str(right["url"]).replace(PASSWORD, "canary-wrong")}
        assert "Redis denies access: WRONGPASS" in refused(kind, {**right, **wrong})
    else:
        assert "OpenSearch refuses GET /: 401" in refused(kind, {**right, "authorization": "Bearer canary-wrong"})


def refused(kind: str, settings: dict[str, Any]) -> str:
    with pytest.raises(SinkMisconfigured) as raised:
        opened(kind, settings).check()
    assert raised.value.hint
    assert "canary" not in str(raised.value) + raised.value.hint
    return str(raised.value)
