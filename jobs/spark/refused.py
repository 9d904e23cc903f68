"""What Kafka's Java client is refused for good: a login, a certificate, a right. Trying again changes nothing."""

from __future__ import annotations

import re

from driftless.errors import SourceMisconfigured

_LOGIN = ("SaslAuthenticationException", "SslAuthenticationException", "AuthenticationException")
_SASL = ("IllegalSaslStateException", "UnsupportedSaslMechanismException")
_UNREADABLE = ("InvalidConfigurationException",)
_RIGHTS = ("TopicAuthorizationException", "GroupAuthorizationException", "ClusterAuthorizationException")
_ERROR = re.compile(
    rf"org\.apache\.kafka\.common\.errors\.({'|'.join((*_LOGIN, *_SASL, *_UNREADABLE, *_RIGHTS))}): (.*)"
)
_NO_TOKEN = re.compile(r"oauthbearer\.\S*\.UnretryableException: (?:[\w.$]+: )?(.*)")
"""Of a provider that refuses; one that is away is asked again."""
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )?(.*)$", re.MULTILINE)


def refusal(trace: str) -> SourceMisconfigured | None:
    """The error that a Java stack trace tells of, where it is one of these; in the words of broker and client."""
    if (token := _NO_TOKEN.search(trace)) is not None:
        what = f"Spark's client of Kafka gets no token: {token[1].strip()}"
        return SourceMisconfigured(what, hint="does `token_url` of kafka.security give `client_id` a token?")
    found = _ERROR.search(trace)
    if found is None:
        return None
    kind, said = found[1], found[2].strip()
    causes = [cause.strip() for cause in _CAUSE.findall(trace[found.end() :])]
    deepest = causes[-1] if causes and causes[-1] not in said else ""
    what = f"Spark's client of Kafka is refused: {said}{f': {deepest}' if deepest else ''}"
    if kind in _RIGHTS:
        return SourceMisconfigured(what, hint="give the user of kafka.security the right to read the pipeline's topics")
    return SourceMisconfigured(what, hint="put kafka.security right: `driftless check` logs in with every client")
