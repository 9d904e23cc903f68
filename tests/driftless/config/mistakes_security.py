"""Mistakes in `kafka.security`, and security that stands elsewhere; see tests/driftless/config/mistakes.py."""

from __future__ import annotations

SECURITY_MISTAKES = [
    (
        "a password among the options",
        "  partitions: 4",
        "  options:\n    sasl.password: x",
        "10: kafka.options.sasl.password: security is set once for all clients: write `password` in `kafka.security` "
        "instead",
    ),
    (
        "security of Java's",
        "  partitions: 4",
        "  options:\n    ssl.truststore.location: /etc/ssl/trust.jks",
        "10: kafka.options.ssl.truststore.location: security is set once for all clients: write `ca` in "
        "`kafka.security` instead",
    ),
    (
        "security without what it says",
        "  partitions: 4",
        "  security: {}",
        "9: kafka.security.protocol: is missing, such as `protocol: SASL_SSL`",
    ),
    (
        "a login without its password",
        "  partitions: 4",
        "  security: {protocol: SASL_SSL, mechanism: PLAIN, username: u}",
        "9: kafka.security.protocol: SASL_SSL needs `password`",
    ),
    (
        "a mechanism that there is not",
        "  partitions: 4",
        "  security: {protocol: SASL_SSL, mechanism: SCRAM-SHA512, username: u, password: p}",
        "9: kafka.security.mechanism: must be 'PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512' or 'OAUTHBEARER'; did you mean "
        "`SCRAM-SHA-512`?",
    ),
    (
        "a CA that is no file",
        "  partitions: 4",
        "  security: {protocol: SSL, ca: /no/such.pem}",
        "9: kafka.security.ca: is neither PEM text nor the path of a file that can be read: No such file or directory",
    ),
]
