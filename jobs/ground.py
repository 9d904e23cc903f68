"""The ground under a reader of logs, looked at now and then: each topic must stay the one that was registered."""

from __future__ import annotations

import time
from collections.abc import Sequence

from driftless.kafka import Kafka
from driftless.registry import TopicLog, keeps_all, same_topic

SECONDS = 1.0
SETTINGS_SECONDS = 10.0


class Ground:
    """Cheap to ask before every slice. After a server was away it is to be told so: whatever may have happened then."""

    def __init__(self, kafka: Kafka, logs: Sequence[TopicLog]) -> None:
        self._kafka = kafka
        self._logs = logs
        self._at = self._settings_at = 0.0

    def doubt(self) -> None:
        """Look again at the next question."""
        self._at = self._settings_at = 0.0

    def check(self) -> None:
        """Raise SourceError where a topic was made anew, has other partitions, or forgets rows."""
        now = time.monotonic()
        if now >= self._at:
            for log in self._logs:
                same_topic(self._kafka, log)
            self._at = now + SECONDS
        if now >= self._settings_at:
            for log in self._logs:
                keeps_all(self._kafka, log)
            self._settings_at = now + SETTINGS_SECONDS
