"""What is wrong with the address of a server, and how it is shown: never with a word of what may be a password.

A character that would have to be percent-encoded moves the borders of a URL's parts: a piece of the password then
stands where a host, a port or a parameter is read, and every message about that part would print it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Protocol
from urllib.parse import urlsplit

from driftless.suggest import nearest

ENCODE = "a user or password in it must be percent-encoded: `@` as %40, `/` as %2F, `?` as %3F, `#` as %23, `%` as %25"
DSN_FORM = "write it as `postgresql://USER:PASSWORD@HOST:5432/DATABASE`"
_PORT = re.compile(r"\d{1,5}")
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_POSTGRES = re.compile(r"postgres(?:ql)?://(?=.)(?P<at>[^/?]*)(?P<path>[^?]*)(?:\?(?P<query>.*))?", re.DOTALL)
_PAIRS = re.compile(r"\s*\w+\s*=\s*\S")
_OPTIONS = ("host", "port", "dbname", "user", "password", "sslmode", "sslrootcert", "sslcert", "sslkey", "options")
_REFUSALS = ("authentication failed", "no password supplied", "does not exist", "no pg_hba.conf entry", "not permitted")
_OTHERS = {"mysql", "mariadb", "mongodb", "sqlserver", "oracle"}
_LIKE_DSN = "must look like `postgresql://user:password@host:5432/database`"


class WithCertificates(Protocol):
    """What names files of certificates for TLS."""

    @property
    def ca_certs(self) -> str | None: ...
    @property
    def client_cert(self) -> str | None: ...
    @property
    def client_key(self) -> str | None: ...


def dsn_problem(dsn: str) -> str:
    """What is wrong with the DSN of a Postgres, as far as its form tells; empty where nothing is."""
    scheme = dsn.partition("://")[0].lower() if "://" in dsn else ""
    if dsn.startswith("jdbc:postgresql:"):
        return "leave away the `jdbc:` and name user and password: `postgresql://user:password@host/database`"
    if scheme in _OTHERS:
        return f"the source must be Postgres, not {scheme}"
    parts = _POSTGRES.fullmatch(dsn)
    if parts is None:
        return "" if _PAIRS.match(dsn) else _LIKE_DSN
    *user, hosts = parts["at"].split("@")
    query = [pair.partition("=") for pair in (parts["query"] or "").split("&") if pair]
    names = "".join(name for name, _, _ in query)
    if len(user) > 1 or "@" in parts["path"] + names or not all(equals for _, equals, _ in query):
        return ENCODE
    if _ESCAPE.search(dsn):
        return ENCODE
    return "" if all(_is_host(host) for host in hosts.split(",")) else _LIKE_DSN


def misread(said: str) -> str:
    """What libpq says of a DSN that it cannot read, without what it quotes."""
    found = re.match(
        r'invalid (?:connection option|URI query parameter): "?(\w*)|invalid connection option "(\w*)', said
    )
    if found is None:
        return "as `key=value` pairs, a value with spaces or quotes is written in single quotes, and `'` in it as `\\'`"
    near = nearest(found[1] or found[2] or "", _OPTIONS, cutoff=0.75)
    return "it names an option that Postgres does not have" + (f"; did you mean `{near}`?" if near else "")


def is_refusal(said: str) -> bool:
    """Whether a Postgres is there and does not let us in, which does not pass by itself."""
    return any(reason in said for reason in _REFUSALS)


def url_problem(url: str, schemes: Collection[str], like: str) -> str:
    """The same of the URL of another server, which must have one of these schemes; `like`: an example of one."""
    wrong = f"must look like `{like}`"
    scheme, slashes, rest = url.partition("://")
    if not slashes or scheme not in schemes:
        return wrong
    at = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if at.count("@") > 1 or "@" in rest[len(at) :] or _ESCAPE.search(at):
        return ENCODE
    host = at.rpartition("@")[2]
    try:
        readable = bool(urlsplit(url).hostname) and _is_host(host)
    except ValueError:
        readable = False
    return "" if readable else wrong


def certificates_problem(url: str, scheme: str, given: WithCertificates) -> str:
    """Why files of certificates do not go together, or not with the URL; empty where they do. `scheme`: that of TLS."""
    if given.client_key is not None and given.client_cert is None:
        return "`client_key` needs `client_cert`"
    if (given.ca_certs or given.client_cert) and not url.startswith(f"{scheme}://"):
        return f"`ca_certs` and `client_cert` have no meaning with `{url.partition('://')[0]}://`: write `{scheme}://`"
    return ""


def shown_url(url: str) -> str:
    """The URL without user, password and parameters."""
    scheme, slashes, rest = re.split(r"[?#]", url, maxsplit=1)[0].partition("://")
    at, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{at.rpartition('@')[2]}{slash}{path}"


def _is_host(host: str) -> bool:
    """Whether it is a host, an address or nothing, with a port or without one."""
    bracketed, closed, after = host.rpartition("]")
    name, colon, port = (bracketed + closed, *after.partition(":")[1:]) if closed else host.partition(":")
    return not re.search(r"\s", name) and (not colon or port == "" or bool(_PORT.fullmatch(port)))


_SECRET = re.compile(
    r"(?<![^\s`'\"(])(?!\S*user:password@)(?:[^\s`'\"(]*(?:://|//|:)\S*@[^\s`'\")]*|passw?o?r?d?\s*=.*)", re.I
)


def without_secrets(text: str) -> str:
    """A message that may quote what was typed, less each word that looks like an address with a password."""
    return _SECRET.sub("(not shown)", text)
