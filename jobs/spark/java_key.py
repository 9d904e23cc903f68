"""A client's key that is encrypted, made readable for Kafka's Java client: it cannot read what OpenSSL writes today.

Seen with kafka-clients 3.9.2 on Java 17: "PBES2 SecretKeyFactory not available". Java itself can, by another name.
"""

from __future__ import annotations

import base64
import re
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from driftless.errors import SourceMisconfigured
from driftless.kafka.client import Kafka

_ENCRYPTED = re.compile(r"-----BEGIN ENCRYPTED PRIVATE KEY-----(.*?)-----END ENCRYPTED PRIVATE KEY-----", re.DOTALL)
_PBES2 = ("PBES2", "1.2.840.113549.1.5.13")
_DECRYPT = 2
"""Cipher.DECRYPT_MODE."""


def unlock(jvm: Any, kafka: Kafka) -> None:
    """Have the Java client be given the key as it is, where it is encrypted. It stays in memory."""
    settings = kafka.java_settings()
    found = _ENCRYPTED.search(settings.get("ssl.keystore.key", ""))
    if found is None:
        return
    try:
        plain = _decrypted(jvm, base64.b64decode(found[1]), settings["ssl.key.password"])
    except Py4JJavaError as exc:
        what = exc.java_exception.getClass().getSimpleName()
        hint = "`openssl pkcs8 -topk8 -v2 aes-256-cbc -in key.pem -out new.pem` encrypts it in a way that Java reads"
        raise SourceMisconfigured(f"Java cannot decrypt the `key` of kafka.security: {what}", hint=hint) from None
    text = base64.encodebytes(plain).decode()
    kafka.java_key = f"-----BEGIN PRIVATE KEY-----\n{text}-----END PRIVATE KEY-----\n"


def _decrypted(jvm: Any, encoded: bytes, password: str) -> bytes:
    info = jvm.javax.crypto.EncryptedPrivateKeyInfo(encoded)
    parameters = info.getAlgParameters()
    # The two algorithms that PBES2 puts together are what Java knows it by.
    name = parameters.toString() if info.getAlgName() in _PBES2 else info.getAlgName()
    characters = jvm.java.io.CharArrayWriter()
    characters.write(password, 0, len(password.encode("utf-16-le")) // 2)  # in Java's characters
    secret = jvm.javax.crypto.spec.PBEKeySpec(characters.toCharArray())
    cipher = jvm.javax.crypto.Cipher.getInstance(name)
    cipher.init(_DECRYPT, jvm.javax.crypto.SecretKeyFactory.getInstance(name).generateSecret(secret), parameters)
    return bytes(info.getKeySpec(cipher).getEncoded())
