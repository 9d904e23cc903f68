"""TLS by files of certificates that an operator names, and the reason why a connection failed."""

from __future__ import annotations

import ssl


class UnreadableCertificate(ValueError):
    """A file that cannot be read, or is not what it should be. `field`: which of the three names it."""

    def __init__(self, field: str, exc: OSError) -> None:
        mismatch = "it is not PEM, or the key is another one, or encrypted"
        self.field = field
        self.why = mismatch if isinstance(exc, ssl.SSLError) else exc.strerror
        super().__init__(f"`{field}`: the file cannot be read: {self.why}")


def client_context(ca_certs: str | None, client_cert: str | None, client_key: str | None) -> ssl.SSLContext:
    """What connections are made with: the server is believed where these certificates, or those of the machine, vouch
    for it and for its name. Raises UnreadableCertificate.
    """
    try:
        context = ssl.create_default_context(cafile=ca_certs)
    except OSError as exc:
        raise UnreadableCertificate("ca_certs", exc) from None
    if client_cert is not None:
        try:
            context.load_cert_chain(client_cert, client_key, password="")
        except OSError as exc:
            raise UnreadableCertificate("client_cert", exc) from None
    return context


def refusal(said: str) -> str | None:
    """What the words of a failed connection mean, to follow the name of a server. None where it may pass by itself, as
    where a server that ends breaks a connection off.
    """
    said = said.upper().replace(" ", "_")
    if "CERTIFICATE_VERIFY_FAILED" in said:
        return "its certificate is not trusted"
    if "WRONG_VERSION_NUMBER" in said or "UNKNOWN_PROTOCOL" in said or "RECORD_LAYER_FAILURE" in said:
        return "it does not speak TLS"
    return "it refuses this client" if "_ALERT_" in said else None


CERTIFICATES = "set `ca_certs`, and where the server asks for a client's certificate `client_cert` and `client_key`"
"""What to do where certificates are not accepted."""
