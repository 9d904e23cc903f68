"""How Debezium reaches the source: the very server that we have reached, whatever led us there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from driftless.config.models import ConnectConfig

_FILES = {"sslrootcert": "ca", "sslcert": "certificate", "sslkey": "key"}
"""The DSN's parameter -> the field of `connect.source_ssl`."""
_SYSTEM = "system"
"""What libpq calls the certificates that the machine trusts."""
_JAVA_TRUST = "org.postgresql.ssl.DefaultJavaSSLFactory"
"""What the JDBC driver calls those that Java trusts."""


def source_address(source: Mapping[str, object], connect: ConnectConfig) -> dict[str, str]:
    """Settings of the connector. `source`: as `Postgres.parameters`."""
    host, ssl = str(source["host"]), connect.source_ssl
    settings = {
        "database.hostname": f"[{host}]" if ":" in host else host,
        "database.port": str(source["port"]),
        "database.user": str(source["user"]),
        "database.dbname": str(source["dbname"]),
        "database.sslmode": str(source.get("sslmode", "prefer")),
    }
    if ssl is not None:
        files = {"database.sslrootcert": ssl.ca, "database.sslcert": ssl.certificate, "database.sslkey": ssl.key}
        settings |= {name: path for name, path in files.items() if path is not None}
    if source.get("sslrootcert") == _SYSTEM and (ssl is None or ssl.ca is None):
        settings["database.sslfactory"] = _JAVA_TRUST
    return settings


def address_faults(source: Mapping[str, object], connect: ConnectConfig) -> Iterator[str]:
    """Why Debezium could not reach the server that we have reached."""
    host = str(source["host"])
    if not host or host.startswith(("/", "@")):
        yield (
            f"source.dsn leads to a socket of this machine{f' ({host})' if host else ''}, which Debezium cannot use: "
            "name a host that the Connect worker reaches too, as in `postgresql://USER:PASSWORD@HOST:5432/DATABASE`"
        )
    ssl = connect.source_ssl
    for parameter, field in _FILES.items():
        given = source.get(parameter)
        if given and given != _SYSTEM and getattr(ssl, field, None) is None:
            yield (
                f"source.dsn has `{parameter}`, a file of this machine, and the Connect worker needs one too: give its "
                f"path there as `connect.source_ssl.{field}`"
            )
