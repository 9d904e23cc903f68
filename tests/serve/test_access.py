"""Who may ask what, by trying."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import urllib3

from driftless.errors import ConfigError
from serve.http.access import HEADERS, AccessRules
from serve.http.server import Listening
from tests.serve.service import FACTS, TOKEN, KnownFacts, served
from tests.support.security.certificates import Certificates

Answer = tuple[int, str, dict[str, str]]


def ask(port: int, path: str, method: str = "GET", **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, {name.lower(): value for name, value in answer.getheaders()}


def bearer(token: str) -> Mapping[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_on_loopback_reading_needs_no_token() -> None:
    with served() as port:
        assert [ask(port, path)[0] for path in ("/healthz", "/readyz", "/metrics", "/status")] == [200] * 4
        assert json.loads(ask(port, "/status")[1])["source"]["lsn"] == "0/40"


def test_elsewhere_everything_that_says_something_needs_it() -> None:
    with served(AccessRules(TOKEN, open=False)) as port:
        assert [ask(port, path)[0] for path in ("/healthz", "/readyz")] == [200, 200]
        for path in ("/metrics", "/status"):
            assert ask(port, path)[0] == 401
            assert ask(port, path, **bearer(TOKEN[:-1]))[0] == 401
            assert ask(port, path, authorization=f"Basic {TOKEN}")[0] == 401
            assert ask(port, path, **bearer(TOKEN))[0] == 200
            assert ask(port, f"{path}?token={TOKEN}")[0] == 401, "a token in an address ends in logs"


def test_with_a_certificate_it_answers_by_tls_and_by_nothing_else(tmp_path: Path) -> None:
    files = Certificates(tmp_path)
    place = Listening("0.0.0.0", 0, files.broker, files.broker_key)  # noqa: S104
    place.bound().close()
    with served(AccessRules(TOKEN, open=False), place=place) as port:
        url = f"https://127.0.0.1:{port}/status"
        with urllib3.PoolManager(ca_certs=str(files.ca)) as trusting:
            asked = trusting.request("GET", url, headers=dict(bearer(TOKEN)), retries=False)
            assert asked.status == 200
            assert asked.json()["pipeline"] == "shop"
        with urllib3.PoolManager(ca_certs=str(files.other_ca)) as doubting, pytest.raises(urllib3.exceptions.SSLError):
            doubting.request("GET", url, retries=False)
        with pytest.raises((http.client.HTTPException, OSError)):
            ask(port, "/status", **bearer(TOKEN))
    with pytest.raises(ConfigError, match=r"--certificate .*broker\.pem"):
        Listening("127.0.0.1", 0, files.broker, files.client_key).bound()


def test_guessing_ends_soon_and_only_for_who_guesses() -> None:
    now = [0.0]
    access = AccessRules(TOKEN, open=False, clock=lambda: now[0])
    with served(access) as port:
        assert [ask(port, "/status", **bearer(f"guess-{n}"))[0] for n in range(10)] == [401] * 10
        status, _, headers = ask(port, "/status", **bearer(TOKEN))
        assert (status, headers["retry-after"]) == (429, "60")
        now[0] = 61.0
        assert ask(port, "/status", **bearer(TOKEN))[0] == 200


def test_a_name_of_somebody_else_s_that_leads_here_is_refused() -> None:
    with served(AccessRules(None, open=True, names={"127.0.0.1", "localhost"})) as port:
        assert ask(port, "/status")[0] == 200
        assert ask(port, "/status", host=f"localhost:{port}")[0] == 200
        assert ask(port, "/status", host="evil.example")[0] == 421
        assert ask(port, "/metrics", host=f"127.0.0.1.evil.example:{port}")[0] == 421


@pytest.mark.parametrize("path", ["/status", "/metrics", "/healthz", "/nothing"])
def test_no_site_may_frame_or_keep_any_answer(path: str) -> None:
    with served() as port:
        found = ask(port, path)[2]
    assert {name: found.get(name) for name in HEADERS} == HEADERS
    assert "access-control-allow-origin" not in found
    assert "server" not in found


def test_what_is_not_there_and_what_is_not_allowed_says_so() -> None:
    with served() as port:
        status, text, _ = ask(port, "/nothing")
        assert (status, json.loads(text)) == (
            404,
            {"error": "there is nothing here: docs/serve.md lists the addresses"},
        )
        assert ask(port, "/status", "POST")[0] == 405
        assert ask(port, "/../../etc/passwd")[0] == 404


def test_a_defect_tells_nothing_of_what_it_met(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(KnownFacts):
        def look(self) -> Any:
            raise ValueError(FACTS["pipeline"] * 3)

    with served(facts=Broken()) as port:
        status, text, _ = ask(port, "/status")
    assert status == 500
    assert "shopshopshop" not in text + caplog.text
