"""The ground under a reader of logs, looked at now and then: each topic must stay the one that was registered."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from driftless.errors import LogLost, SourceUnavailable
from driftless.facts.epochs import APPLY, TopicLog, keeps_all, mismatch_reason, topic_replaced
from driftless.kafka.client import Kafka
from jobs.brokers.shared_answers import TopicFacts

Place = tuple[str, int]
"""Topic, partition."""
SECONDS = 2.0
GONE_SECONDS = 10.0
"""How long a topic may be missing before that is believed: a broker that restarts may not know of it yet."""
SETTINGS_SECONDS = 10.0


class LogIdentityCheck:
    """Cheap to ask before every slice. After a server was away it is to be told so: whatever may have happened then."""

    def __init__(self, kafka: Kafka, topics: TopicFacts, logs: Sequence[TopicLog]) -> None:
        self._kafka = kafka
        self._topics = topics
        self._logs = logs
        self._at = self._settings_at = self._since = 0.0
        self._gone_at: dict[str, float] = {}
        self.leaders: dict[Place, int] = {}
        """Under which leader each partition was read: to be kept with the positions."""

    def invalidate(self) -> None:
        """Look again at the next question."""
        self._at = self._settings_at = 0.0
        self._since = time.monotonic()

    def check(self, read: Callable[[], Mapping[Place, int]] = dict) -> None:
        """Raise LogReplaced where a topic was recreated or has other partitions, SourceError where it forgets rows,
        LogLost where a log was cut off before what was read of it. `read`: how far that is.
        """
        now = time.monotonic()
        if now >= self._at:
            self._same_topics()
            self._check_tails(read())
            self._at = now + SECONDS
        if now >= self._settings_at:
            for log in self._logs:
                keeps_all(self._kafka, log)
            self._settings_at = now + SETTINGS_SECONDS

    def raise_truncated(self, place: Place, end: int, what: str) -> NoReturn:
        """Raise for a partition that ends at an offset before `what`: LogLost, but where its topic was recreated, which
        ends early, too, what `check` raises for that.
        """
        self._since = time.monotonic()
        self._same_topics()
        topic, partition = place
        raise LogLost(f"{topic}/{partition} ends at {end}, before {what}: the broker lost records", hint=APPLY)

    def _same_topics(self) -> None:
        for log in self._logs:
            self._same(log)

    def _same(self, log: TopicLog) -> None:
        now, found = time.monotonic(), self._topics.topic(log.topic, self._since)
        if found is None and now - self._gone_at.setdefault(log.topic, now) < GONE_SECONDS:
            hint = f"a broker may be starting; where it stays away for {GONE_SECONDS:g} s, somebody has deleted it"
            raise SourceUnavailable(f"Kafka has no topic {log.topic}", hint=hint)
        if reason := "is gone since it was registered" if found is None else mismatch_reason(log, found):
            raise topic_replaced(log, reason)
        self._gone_at.pop(log.topic, None)

    def _check_tails(self, read: Mapping[Place, int]) -> None:
        """A broker that lost the end of its log shows nothing of that once it has grown again, but for the leader."""
        found = self._topics.leaders({log.topic: log.partitions for log in self._logs}, self._since)
        now = {(topic, p): leader for topic, leaders in found.items() for p, leader in leaders.items()}
        changed = {
            place: (position, self.leaders[place])
            for place, position in read.items()
            if self.leaders.get(place, -1) not in (-1, now.get(place))
        }
        if changed and (cut := self._kafka.truncated(changed)):
            topic, partition = cut[0]
            raise LogLost(
                f"{topic}/{partition} was cut off before {changed[cut[0]][0]}, up to which it has been read: "
                "the broker lost records",
                hint=APPLY,
            )
        self.leaders = {place: now[place] for place in read if place in now}
