"""One question to the brokers in place of many: what several threads ask at the same time is asked once for all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from driftless.errors import SourceError
from driftless.kafka.client import Kafka, Offsets, Topic

A = TypeVar("A")
_ALONE_SECONDS = 5.0
"""For so long each asks by itself, where one topic may be what keeps all from being answered."""
_FACTS_SECONDS, _ASKED_SECONDS = 1.0, 5.0
"""How old a fact of a topic may be, and how long others ask about it too: each asks every two seconds."""


class SharedAnswers(Generic[A]):
    """An answer for each topic. Any thread may ask; an error is raised for who asked, and for nobody else."""

    def __init__(
        self,
        ask: Callable[[Mapping[str, int]], Mapping[str, A]],
        alone: Callable[[str, int], A],
        *,
        fresh: float,
        wanted: float,
    ) -> None:
        """`ask`: for topics, each with its partitions. `alone`: the same for one.

        `fresh`: for so many seconds an answer is given again. `wanted`: for so many a topic is asked about together
        with others, after it was asked about.
        """
        self._ask = ask
        self._alone = alone
        self._fresh = fresh
        self._for_seconds = wanted
        self._lock = threading.Lock()
        self._wanted: dict[str, tuple[int, float]] = {}
        self._found: dict[str, tuple[A, float]] = {}
        self._alone_until = 0.0

    def of(self, topic: str, partitions: int, since: float = 0.0) -> A:
        """`since`: an answer from before then, by the monotonic clock, does not count."""
        with self._lock:
            now = time.monotonic()
            if now >= self._alone_until:
                self._wanted[topic] = (partitions, now)
                try:
                    return self._together(topic, now, max(since, now - self._fresh))
                except SourceError:
                    self._alone_until = time.monotonic() + _ALONE_SECONDS
        return self._alone(topic, partitions)

    def _together(self, topic: str, now: float, since: float) -> A:
        found = self._found.get(topic)
        if found is None or found[1] <= since:
            self._wanted = {t: (n, at) for t, (n, at) in self._wanted.items() if now - at < self._for_seconds}
            self._found = {}
            answers = self._ask({t: n for t, (n, _) in self._wanted.items()})
            self._found = {t: (answer, now) for t, answer in answers.items()}
        return self._found[topic][0]

    def know(self, answers: Mapping[str, A]) -> None:
        """These have been asked for elsewhere, just now."""
        now = time.monotonic()
        with self._lock:
            self._found |= {t: (answer, now) for t, answer in answers.items()}

    def forget(self, topic: str) -> None:
        """The next to ask is to get a new answer."""
        with self._lock:
            self._found.pop(topic, None)


class TopicFacts:
    """What the brokers say of the topics that a process reads: which one each is, and who leads its partitions."""

    def __init__(self, kafka: Kafka) -> None:
        often = {"fresh": _FACTS_SECONDS, "wanted": _ASKED_SECONDS}
        self._topics = SharedAnswers[Topic | None](kafka.described, lambda name, _: kafka.topic(name), **often)
        self._leaders = SharedAnswers[Offsets](kafka.leaders, lambda name, n: kafka.leaders({name: n})[name], **often)

    def topic(self, name: str, since: float = 0.0) -> Topic | None:
        """As Kafka's. `since`: as of SharedAnswers."""
        return self._topics.of(name, 0, since)

    def leaders(self, topics: Mapping[str, int], since: float = 0.0) -> dict[str, Offsets]:
        """As Kafka's."""
        return {name: self._leaders.of(name, partitions, since) for name, partitions in topics.items()}
