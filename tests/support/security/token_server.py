"""An identity provider that gives tokens to one client, signed by a key that the session's broker knows."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

TOKEN_USER, TOKEN_SECRET = "token-client", "canary-token-7719"
AUDIENCE, SCOPE = "kafka", "log"
_KEY_ID = "one"


class TokenKey:
    """What tokens are signed with, and the file by which a broker knows it."""

    def __init__(self, folder: Path) -> None:
        self.known = folder / "jwks.json"
        self._file = folder / "token.key"
        if not self.known.exists():
            self._make()

    def _make(self) -> None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        numbers = key.public_key().public_numbers()
        n, e = (_encoded(number.to_bytes((number.bit_length() + 7) // 8)) for number in (numbers.n, numbers.e))
        shown = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": _KEY_ID, "n": n, "e": e}
        self.known.write_text(json.dumps({"keys": [shown]}))
        self.known.chmod(0o644)

    def sign(self, claims: dict[str, object]) -> str:
        key = load_pem_private_key(self._file.read_bytes(), None)
        assert isinstance(key, rsa.RSAPrivateKey)
        parts = ({"alg": "RS256", "typ": "JWT", "kid": _KEY_ID}, claims)
        said = ".".join(_encoded(json.dumps(part).encode()) for part in parts)
        return f"{said}.{_encoded(key.sign(said.encode(), padding.PKCS1v15(), SHA256()))}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@contextmanager
def token_server(key: TokenKey, *, seconds: float = 300) -> Iterator[tuple[str, list[str]]]:
    """Its URL, and the scopes that were asked for, one for each token. `seconds`: how long a token holds."""
    given: list[str] = []
    login = f"Basic {base64.b64encode(f'{TOKEN_USER}:{TOKEN_SECRET}'.encode()).decode()}"

    class Provider(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            if self.headers.get("Authorization") != login or body.get("grant_type") != ["client_credentials"]:
                self._answer(401, {"error": "invalid_client"})
                return
            given.append(body.get("scope", [""])[0])
            now = int(time.time())
            claims: dict[str, object] = {"sub": TOKEN_USER, "aud": AUDIENCE, "iat": now, "exp": now + int(seconds)}
            token = key.sign({**claims, "scope": given[-1]})
            self._answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": int(seconds)})

        def _answer(self, status: int, content: dict[str, object]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/token", given
    finally:
        server.shutdown()
        server.server_close()
