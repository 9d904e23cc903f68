"""The certificates and passwords of a secured stack: made once, each in a file of its own."""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from stack.machine.home import User, make_folder, replace_private, write_private
from stack.machine.ports import LOOPBACK

USER = "driftless"
"""As whom driftless logs in to every server of a secured stack."""
SERVER, ADMIN = "server", "admin"
"""The certificates: what every server shows, and what opens the search server to the stack itself."""
_YEARS = 10
"""How long they hold: nobody renews what a stack on loopback has made for itself."""


@dataclass(frozen=True)
class Keys:
    """Where they are. `owner`: who the servers run as, and alone may read what is secret."""

    folder: Path
    owner: User | None

    @property
    def ca(self) -> Path:
        """The certificate that all others are signed with. No secret."""
        return self.folder / "ca.pem"

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        """PKCS#8 in PEM, without a password."""
        return self.folder / f"{name}.key"

    @property
    def store(self) -> Path:
        """The servers' certificate and key as PKCS#12, under `store_password`: all that Jetty can read."""
        return self.folder / f"{SERVER}.p12"

    @property
    def store_password(self) -> str:
        return self.password(SERVER, "store")

    def password_file(self, server: str, user: str = USER) -> Path:
        return self.folder / f"{server}-{user}.password"

    def password(self, server: str, user: str = USER) -> str:
        """That of a user of a server; a new one where it has none yet."""
        path = self.password_file(server, user)
        if not path.exists():
            write_private(path, secrets.token_urlsafe(24), owner=self.owner)
        return path.read_text(encoding="utf-8")

    def make(self) -> None:
        """Make what is missing. The authority's own key is kept nowhere: it signs these and nothing else."""
        make_folder(self.folder, owner=self.owner)
        if self.ca.exists():  # written last
            return
        authority = ec.generate_private_key(ec.SECP256R1())
        issuer = _name("driftless stack")
        usage = x509.BasicConstraints(ca=True, path_length=0)
        ca = _unsigned(issuer, issuer, authority).add_extension(usage, critical=True).sign(authority, hashes.SHA256())
        for name in (SERVER, ADMIN):
            key = ec.generate_private_key(ec.SECP256R1())
            made = _unsigned(_name(name), issuer, key)
            if name == SERVER:
                places = [x509.IPAddress(ipaddress.ip_address(LOOPBACK)), x509.DNSName("localhost")]
                made = made.add_extension(x509.SubjectAlternativeName(places), critical=False)
            signed = made.sign(authority, hashes.SHA256())
            pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            write_private(self.key(name), pem.decode(), owner=self.owner)
            write_private(self.certificate(name), signed.public_bytes(Encoding.PEM).decode(), owner=self.owner)
            if name == SERVER:  # Jetty takes it together with the one that signed it
                lock = BestAvailableEncryption(self.store_password.encode())
                data = pkcs12.serialize_key_and_certificates(name.encode(), key, signed, [ca], lock)
                replace_private(self.store, data, owner=self.owner)
        write_private(self.ca, ca.public_bytes(Encoding.PEM).decode(), owner=self.owner)
        self.ca.chmod(0o644)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _unsigned(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365 * _YEARS))
    )
