"""The one door to a webhook: a message is posted as JSON, and taken where the answer says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import urllib3

from driftless.config.address import without_secrets

_SECONDS = 10.0


class WebhookError(Exception):
    """It was not taken. The text has no secret, nor what was posted."""


class Webhook:
    """Posts to one address. Redirects are not followed: what is posted is for that address."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = {"content-type": "application/json", **headers}
        self._http = urllib3.PoolManager(timeout=_SECONDS, retries=False)

    def post(self, message: Mapping[str, Any]) -> None:
        """Post it; return when it was taken. Raises WebhookError."""
        try:
            answer = self._http.request("POST", self._url, json=message, headers=self._headers, redirect=False)
        except (urllib3.exceptions.HTTPError, OSError) as exc:
            raise WebhookError(f"{without_secrets(str(exc))[:200]}") from None
        if not 200 <= answer.status < 300:
            raise WebhookError(f"it answers with {answer.status}")
