"""Ask a server of the stack by HTTP, or by HTTPS where the stack is secured."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request

from stack.machine.keys import Keys


def call(
    method: str,
    url: str,
    body: object = None,
    *,
    keys: Keys | None = None,
    login: str = "",
    certificate: str = "",
    seconds: float = 3,
) -> int:
    """The status of the answer. Never through a proxy: the servers are on loopback.

    `login`: "user:password"; `certificate`: the one of `keys` that the client shows. Raises OSError without an answer.
    """
    context = None
    if keys is not None:
        context = ssl.create_default_context(cafile=keys.ca)
        if certificate:
            context.load_cert_chain(keys.certificate(certificate), keys.key(certificate))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310
    if login:
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    try:
        with opener.open(request, timeout=seconds) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as exc:
        return exc.code


def answers(url: str, *, keys: Keys | None = None, login: str = "", certificate: str = "", seconds: float = 3) -> bool:
    """Whether a GET ends in 200."""
    try:
        return call("GET", url, keys=keys, login=login, certificate=certificate, seconds=seconds) == 200
    except (OSError, ValueError):
        return False
