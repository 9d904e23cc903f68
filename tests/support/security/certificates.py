"""Certificates of a CA that is made for the tests, in every form that people have them in."""

from __future__ import annotations

import subprocess
from pathlib import Path

from stack.machine.ports import LOOPBACK

KEY_PASSWORD = "canary-key-3313"  # noqa: S105


class Certificates:
    """A CA, a broker's and a client's certificate by it, and another CA. Made when they are first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ca, self.other_ca = folder / "ca.pem", folder / "other.pem"
        self.broker, self.broker_key = folder / "broker.pem", folder / "broker.key"
        self.client, self.client_key = folder / "client.pem", folder / "client.key"
        self.encrypted_key, self.old_key = folder / "client-encrypted.key", folder / "client-sec1.key"
        self.chain, self.chain_key = folder / "chain.pem", folder / "far.key"
        self.stranger, self.stranger_key = folder / "stranger.pem", folder / "stranger.key"
        if not self.chain.exists():
            self._make()

    def _make(self) -> None:
        for name in ("ca", "other"):
            new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30")
            self._openssl("req", "-x509", *new, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")
        self._sign("broker", "/CN=broker", f"subjectAltName=IP:{LOOPBACK}")
        self._sign("client", "/CN=driftless", "subjectAltName=DNS:driftless")
        encrypted = ("-v2", "aes-256-cbc", "-passout", f"pass:{KEY_PASSWORD}")
        self._openssl("ec", "-in", "client.key", "-out", self.old_key.name)
        self._openssl("pkcs8", "-topk8", "-in", "client.key", *encrypted, "-out", self.encrypted_key.name)

        self._sign("middle", "/CN=middle", "basicConstraints=critical,CA:true")
        self._sign("far", "/CN=far", "subjectAltName=DNS:far", by="middle")
        self._sign("stranger", "/CN=stranger", "subjectAltName=DNS:stranger", by="other")
        self.chain.write_text("".join((self._folder / f"{name}.pem").read_text() for name in ("far", "middle")))

    def _sign(self, name: str, subject: str, extension: str, *, by: str = "ca") -> None:
        new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        self._openssl("req", *new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
        (self._folder / f"{name}.ext").write_text(extension)
        ca = ("-CA", f"{by}.pem", "-CAkey", f"{by}.key", "-CAcreateserial", "-days", "30", "-extfile", f"{name}.ext")
        self._openssl("x509", "-req", "-in", f"{name}.csr", *ca, "-out", f"{name}.pem")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self._folder, check=True, capture_output=True)
