"""The certificates and passwords of a secured stack."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

from cryptography import x509

from stack.machine.keys import ADMIN, SERVER, Keys


def test_what_was_made_is_kept(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys", None)
    keys.make()
    before = {path.name: path.read_bytes() for path in keys.folder.iterdir()}
    password = keys.password("redis")
    keys.make()
    assert {name: (keys.folder / name).read_bytes() for name in before} == before
    assert Keys(tmp_path / "keys", None).password("redis") == password
    assert len(password) >= 32
    assert keys.password("other") != password


def test_half_made_keys_are_made_again(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys", None)
    keys.make()
    keys.ca.unlink()
    keys.make()
    _require_signed(keys)


def test_all_are_signed_by_the_stacks_own_authority_and_the_servers_is_of_loopback(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys", None)
    keys.make()
    _require_signed(keys)
    server = x509.load_pem_x509_certificate(keys.certificate(SERVER).read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    context = ssl.create_default_context(cafile=keys.ca)
    context.load_cert_chain(keys.certificate(ADMIN), keys.key(ADMIN))


def _require_signed(keys: Keys) -> None:
    authority = x509.load_pem_x509_certificate(keys.ca.read_bytes())
    for name in (SERVER, ADMIN):
        x509.load_pem_x509_certificate(keys.certificate(name).read_bytes()).verify_directly_issued_by(authority)


def test_nobody_else_reads_what_is_secret(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys", None)
    keys.make()
    keys.password("kafka", "admin")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in keys.folder.iterdir()}
    assert modes.pop("ca.pem") == 0o644
    assert set(modes.values()) == {0o600}
    assert "ca.key" not in modes
