"""`kafka.security`: one model of how clients log in to the brokers, and its rendering for each kind of client."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pydantic import AfterValidator, Field

from driftless.config.base import Model

_log = logging.getLogger("driftless.kafka.security")
_log.setLevel(logging.CRITICAL)  # that it has no brokers to connect to
_BEGINS = "-----BEGIN "
_OLD_KEY = re.compile(r"-----BEGIN (RSA|EC|DSA) PRIVATE KEY-----")
_JAVA = "org.apache.kafka.common.security"
_MODULES = {"PLAIN": "plain.PlainLoginModule", "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule"}
_SCRAM_MODULE = "scram.ScramLoginModule"
_OF_WORKER = ("", "producer.", "consumer.", "admin.")
_TEXTS = {
    frozenset({"ssl.truststore.certificates"}): {"ssl.truststore.location": "/PATH/ca.pem"},
    frozenset({"ssl.keystore.certificate.chain", "ssl.keystore.key"}): {"ssl.keystore.location": "/PATH/worker.pem"},
}
"""Settings that hold what is in files -> the one that names the file."""
_JAAS_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}


def _pem(value: str) -> str:
    """PEM text, given as it is or as the path of a file. No message shows the value: it may be a key."""
    if _BEGINS in value:
        # Where a variable of the environment cannot hold lines, their ends are written as `\n`.
        return value if "\n" in value else value.replace("\\n", "\n")
    try:
        text = Path(value).read_text(encoding="utf-8")
    except (OSError, ValueError) as exc:
        why = f": {exc.strerror}" if isinstance(exc, OSError) and exc.strerror else ""
        raise ValueError(f"is neither PEM text nor the path of a file that can be read{why}") from None
    if _BEGINS not in text:
        raise ValueError(
            "the file is not PEM, which begins with `-----BEGIN`: `openssl x509 -inform der` or "
            "`openssl pkcs12` turns other forms into it"
        )
    return text


Pem = Annotated[str, AfterValidator(_pem)]


class KafkaSecurity(Model):
    """How every client of driftless reaches the brokers: what it trusts, and who it is. Without it: PLAINTEXT."""

    protocol: Literal["SASL_SSL", "SSL", "SASL_PLAINTEXT", "PLAINTEXT"] = Field(
        description="What the brokers' listener speaks: TLS with a login by name and password, TLS alone, a login "
        "without TLS, or neither.",
        examples=["SASL_SSL"],
    )
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = Field(
        default=None,
        description="How the login is proven, with SASL: by a password, or with OAUTHBEARER by a token, which each "
        "client fetches, and again before it runs out.",
        examples=["SCRAM-SHA-512"],
    )
    username: str | None = Field(default=None, description="Who logs in by a password.", examples=["shop"])
    password: str | None = Field(default=None, repr=False, description="The password.", examples=["${KAFKA_PASSWORD}"])
    token_url: str | None = Field(
        default=None,
        description="With OAUTHBEARER: where the identity provider gives tokens to clients (the grant "
        "`client_credentials`). Its certificate must be one that the system and Java trust.",
        examples=["https://login.example.com/oauth2/token"],
    )
    client_id: str | None = Field(
        default=None, description="Who asks for a token, with OAUTHBEARER.", examples=["shop"]
    )
    client_secret: str | None = Field(
        default=None, repr=False, description="What it proves that with.", examples=["${KAFKA_CLIENT_SECRET}"]
    )
    scope: str | None = Field(
        default=None, description="What the token is asked for, where the provider wants that.", examples=["kafka"]
    )
    extensions: dict[str, str] = Field(
        default={},
        description="What goes to the brokers with the token, as Confluent Cloud wants it.",
        examples=["{logicalCluster: lkc-1, identityPoolId: pool-1}"],
    )
    ca: Pem | None = Field(
        default=None,
        repr=False,
        description="The certificates that the brokers' are signed by: the path of a PEM file, or its text. Without "
        "it, those that the system and Java trust.",
        examples=["${KAFKA_CA}"],
    )
    certificate: Pem | None = Field(
        default=None,
        repr=False,
        description="The client's own certificate, with those between it and its CA: the path of a PEM file, or its "
        "text. For brokers that ask for one.",
        examples=["${KAFKA_CERTIFICATE}"],
    )
    key: Pem | None = Field(
        default=None,
        repr=False,
        description="The key of `certificate`, as PKCS#8 (`BEGIN PRIVATE KEY` or `BEGIN ENCRYPTED PRIVATE KEY`): the "
        "path of a PEM file, or its text.",
        examples=["${KAFKA_KEY}"],
    )
    key_password: str | None = Field(
        default=None, repr=False, description="What `key` is encrypted with.", examples=["${KAFKA_KEY_PASSWORD}"]
    )
    check_server_name: bool = Field(
        default=True,
        description="Whether a broker's certificate must be of the name that the broker is reached by.",
        examples=["true"],
    )

    @property
    def tls(self) -> bool:
        return self.protocol in ("SASL_SSL", "SSL")

    @property
    def sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def by_token(self) -> bool:
        return self.sasl and self.mechanism == "OAUTHBEARER"

    @property
    def user(self) -> str | None:
        """Who logs in, for messages."""
        return self.client_id if self.by_token else self.username


_PASSWORD, _TOKEN = ("username", "password"), ("token_url", "client_id", "client_secret")
BY_TOKEN = (*_TOKEN, "scope", "extensions")
"""Fields that only a login by token has."""
_SASL = ("mechanism", *_PASSWORD, *BY_TOKEN)
_TLS = ("ca", "certificate", "key", "key_password", "check_server_name")
_PEM_SETTINGS = {"ssl.ca.pem": "ca", "ssl.certificate.pem": "certificate", "ssl.key.pem": "key"}


def problems(security: KafkaSecurity) -> Iterator[tuple[str, str]]:
    """Fields that do not go together, and what no client can read: (field, what is wrong). Asks no broker."""
    given = security.model_fields_set
    for needed, fields in ((security.sasl, _SASL), (security.tls, _TLS)):
        for field in fields:
            if not needed and field in given:
                other = "SASL_SSL" if fields is _SASL or security.sasl else "SSL"
                yield field, f"has no meaning with `protocol: {security.protocol}`; did you mean `protocol: {other}`?"
    if security.sasl:
        own, foreign = (_TOKEN, _PASSWORD) if security.by_token else (_PASSWORD, BY_TOKEN)
        for field in ("mechanism", *own):
            if not getattr(security, field):
                yield "protocol", f"{security.protocol} needs `{field}`"
        for field in foreign:
            if field in given and security.mechanism is not None:
                other = "PLAIN` or one of SCRAM" if security.by_token else "OAUTHBEARER`"
                yield field, f"has no meaning with `mechanism: {security.mechanism}`; did you mean `{other}?"
    if not security.tls:
        return
    if (security.certificate is None) != (security.key is None):
        field, lacking = ("certificate", "key") if security.key is None else ("key", "certificate")
        yield field, f"needs `{lacking}` too"
        return
    if security.key is not None and (old := _OLD_KEY.search(security.key)):
        yield (
            "key",
            (
                f"begins with `{old[0].strip('-')}`, which the Java client does not read: "
                "`openssl pkcs8 -topk8 -in key.pem -out new.pem` rewrites it"
            ),
        )
        return
    try:
        # Without the login, of which what is missing has been told.
        settings = {name: value for name, value in librdkafka(security).items() if not name.startswith("sasl.")}
        AdminClient({**settings, "security.protocol": "SSL"}, logger=_log)
    except KafkaException as exc:
        yield unreadable(str(exc.args[0].str()), tried=security.key_password is not None and _is_encrypted(security))


def _is_encrypted(security: KafkaSecurity) -> bool:
    return security.key is not None and "ENCRYPTED" in security.key


def unreadable(said: str, *, tried: bool) -> tuple[str, str]:
    """What librdkafka cannot read: its words show no part of what was given. `tried`: whether a password was needed,
    and given. A wrong one is seen by its padding, which is right by chance once in 256 times; then the key is no key.
    """
    field = next((field for setting, field in _PEM_SETTINGS.items() if setting in said), "protocol")
    if field == "key":
        if "bad password read" in said:
            return "key", "is encrypted: `key_password` is missing"
        if "key values mismatch" in said:
            return "key", "is not the key of `certificate`"
        if tried:
            return "key_password", "does not open the key"
    return field, f"cannot be read: {said.rsplit(': ', 1)[-1]}"


def librdkafka(security: KafkaSecurity | None) -> dict[str, str]:
    """The settings of librdkafka's clients."""
    if security is None:
        return {}
    settings: dict[str, str] = {"security.protocol": security.protocol}
    if security.sasl:
        settings["sasl.mechanism"] = security.mechanism or ""
        if security.by_token:
            settings["sasl.oauthbearer.method"] = "oidc"
            settings["sasl.oauthbearer.token.endpoint.url"] = security.token_url or ""
            settings["sasl.oauthbearer.client.id"] = security.client_id or ""
            settings["sasl.oauthbearer.client.secret"] = security.client_secret or ""
            settings |= {"sasl.oauthbearer.scope": security.scope} if security.scope else {}
            if security.extensions:
                told = ",".join(f"{name}={value}" for name, value in security.extensions.items())
                settings["sasl.oauthbearer.extensions"] = told
        else:
            settings["sasl.username"] = security.username or ""
            settings["sasl.password"] = security.password or ""
    if security.tls:
        pems = {setting: getattr(security, field) for setting, field in _PEM_SETTINGS.items()}
        settings |= {setting: pem for setting, pem in pems.items() if pem is not None}
        if security.key_password is not None:
            settings["ssl.key.password"] = security.key_password
        settings["ssl.endpoint.identification.algorithm"] = "https" if security.check_server_name else "none"
    return settings


def java(security: KafkaSecurity | None) -> dict[str, str]:
    """The properties of the Java client. All of it is text, so that it holds where the files are not: on executors."""
    if security is None:
        return {}
    settings: dict[str, str] = {"security.protocol": security.protocol}
    if security.sasl:
        module = _MODULES.get(security.mechanism or "", _SCRAM_MODULE)
        if security.by_token:
            given = {"clientId": security.client_id, "clientSecret": security.client_secret, "scope": security.scope}
            given |= {f"extension_{name}": value for name, value in security.extensions.items()}
            settings["sasl.login.callback.handler.class"] = f"{_JAVA}.oauthbearer.OAuthBearerLoginCallbackHandler"
            settings["sasl.oauthbearer.token.endpoint.url"] = security.token_url or ""
        else:
            given = {"username": security.username, "password": security.password}
        options = " ".join(f"{name}={_in_jaas(text)}" for name, text in given.items() if text is not None)
        settings["sasl.mechanism"] = security.mechanism or ""
        settings["sasl.jaas.config"] = f"{_JAVA}.{module} required {options};"
    if security.tls:
        if security.ca is not None:
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": security.ca}
        if security.certificate is not None and security.key is not None:
            chain = {"ssl.keystore.certificate.chain": security.certificate, "ssl.keystore.key": security.key}
            settings |= {"ssl.keystore.type": "PEM", **chain}
            if security.key_password is not None:
                settings["ssl.key.password"] = security.key_password
        settings["ssl.endpoint.identification.algorithm"] = "https" if security.check_server_name else ""
    return settings


def java_properties(security: KafkaSecurity | None) -> list[str]:
    """Options of a JVM whose Java client is to log in so: it asks no other place for tokens."""
    if security is None or not security.by_token:
        return []
    return [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={security.token_url}"]


def in_worker(settings: Mapping[str, str]) -> dict[str, str]:
    """The Java client's settings as a Connect worker takes them: for its own clients, and for those of connectors."""
    return {f"{client}{name}": value for client in _OF_WORKER for name, value in settings.items()}


def worker_settings(security: KafkaSecurity) -> dict[str, str]:
    """What the settings of a Connect worker say, so that it reaches the same brokers, with a user of its own: without
    anything secret, and with files in place of texts.
    """
    secret = ("username", "password", "client_id", "client_secret", "key_password")
    given = {name: name.upper() for name in secret if getattr(security, name)}
    settings = java(security.model_copy(update=given))
    for texts, location in _TEXTS.items():
        if settings.keys() >= texts:
            settings = {name: value for name, value in settings.items() if name not in texts} | location
    return in_worker(settings)


def _in_jaas(text: str) -> str:
    """A quoted text of a JAAS line, with the escapes of Java's StreamTokenizer."""
    return f'"{"".join(_JAAS_ESCAPES.get(character, character) for character in text)}"'


FIELD_OF = {
    "security.protocol": "protocol",
    "sasl.mechanism": "mechanism",
    "sasl.mechanisms": "mechanism",
    "sasl.username": "username",
    "sasl.password": "password",
    "sasl.jaas.config": "username` and `password",
    "sasl.oauthbearer.token.endpoint.url": "token_url",
    "sasl.oauthbearer.client.id": "client_id",
    "sasl.oauthbearer.client.secret": "client_secret",
    "sasl.oauthbearer.client.credentials.client.id": "client_id",
    "sasl.oauthbearer.client.credentials.client.secret": "client_secret",
    "sasl.oauthbearer.scope": "scope",
    "sasl.oauthbearer.extensions": "extensions",
    "enable.ssl.certificate.verification": "ca",
    "ssl.endpoint.identification.algorithm": "check_server_name",
    "ssl.key.password": "key_password",
    "ssl.keystore.password": "key_password",
    **dict.fromkeys(("ssl.ca.location", "ssl.ca.pem", "ssl.ca", "ssl_ca"), "ca"),
    **dict.fromkeys(("ssl.certificate.location", "ssl.certificate.pem", "ssl_certificate"), "certificate"),
    **dict.fromkeys(("ssl.keystore.location", "ssl.keystore.certificate.chain"), "certificate` and `key"),
    **dict.fromkeys(("ssl.key.location", "ssl.key.pem", "ssl.keystore.key", "ssl_key"), "key"),
    **dict.fromkeys(("ssl.truststore.location", "ssl.truststore.certificates", "ssl.truststore.password"), "ca"),
}
"""A client's own name of a setting -> the field of `kafka.security`."""
_PREFIXES = ("security.", "sasl.", "ssl.", "ssl_", "enable.ssl.", "enable.sasl.", "https.")


def belongs_to_security(option: str) -> str | None:
    """Why this setting cannot stand in `kafka.options`, where it is one of security."""
    if field := FIELD_OF.get(option):
        return f"security is set once for all clients: write `{field}` in `kafka.security` instead"
    if option.startswith(_PREFIXES):
        return "security is set in `kafka.security`, which has no field for this: leave it out"
    return None
