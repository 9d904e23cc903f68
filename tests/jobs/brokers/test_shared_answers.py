"""What many followers ask of the brokers is asked once, and nobody's error is another's."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from driftless.errors import SourceError, SourceUnavailable
from jobs.brokers.shared_answers import SharedAnswers


class Brokers:
    """`asked`: the topics of each request. `gone`: topics that are not there. Each request has a new answer."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.gone: set[str] = set()
        self.number = 0

    def all(self, topics: Mapping[str, int]) -> dict[str, int]:
        self.asked.append(sorted(topics))
        if found := self.gone & topics.keys():
            raise SourceError(f"there is no topic {min(found)}")
        self.number += 1
        return dict.fromkeys(topics, self.number)

    def one(self, topic: str, partitions: int) -> int:
        return self.all({topic: partitions})[topic]


def test_an_answer_serves_all_who_ask_while_it_is_fresh(clock: list[float]) -> None:
    brokers = Brokers()
    answers = SharedAnswers[int](brokers.all, brokers.one, fresh=1.0, wanted=5.0)
    assert [answers.of("a", 1), answers.of("b", 1)] == [1, 2]
    clock[0] += 1.1
    assert [answers.of("a", 1), answers.of("b", 1), answers.of("a", 1)] == [3, 3, 3]
    assert brokers.asked == [["a"], ["a", "b"], ["a", "b"]]
    clock[0] += 5.0
    assert answers.of("b", 1) == 4
    assert brokers.asked[3:] == [["b"]], "nobody has asked for the other one lately"


def test_who_needs_a_newer_answer_gets_one(clock: list[float]) -> None:
    brokers = Brokers()
    answers = SharedAnswers[int](brokers.all, brokers.one, fresh=1.0, wanted=5.0)
    assert answers.of("a", 1) == 1
    clock[0] += 0.1
    assert answers.of("a", 1) == 1
    assert answers.of("a", 1, since=clock[0]) == 2
    answers.forget("a")
    assert answers.of("a", 1) == 3
    answers.know({"a": 9})
    assert answers.of("a", 1) == 9


def test_an_error_is_raised_for_whose_topic_it_is_and_for_nobody_else(clock: list[float]) -> None:
    brokers = Brokers()
    answers = SharedAnswers[int](brokers.all, brokers.one, fresh=1.0, wanted=5.0)
    answers.of("a", 1)
    answers.of("b", 1)
    brokers.gone.add("a")
    del brokers.asked[:]
    for _ in range(3):
        clock[0] += 1.1
        assert answers.of("b", 1) > 0
        with pytest.raises(SourceError, match="there is no topic a"):
            answers.of("a", 1)
    assert brokers.asked.count(["a", "b"]) == 1, "then each asks alone for a while"


def test_brokers_that_do_not_answer_keep_nobody_waiting_for_another(clock: list[float]) -> None:
    """Each waits for its own answer, and not in a row behind all others."""
    waited: list[str] = []

    def silent(topic: str, _: int) -> int:
        waited.append(topic)
        raise SourceUnavailable("no answer")

    def silent_to_all(topics: Mapping[str, int]) -> dict[str, int]:
        clock[0] += 15.0
        return {t: silent(t, n) for t, n in topics.items()}

    answers = SharedAnswers[int](silent_to_all, silent, fresh=1.0, wanted=5.0)
    begun = clock[0]
    for topic in "abc":
        with pytest.raises(SourceUnavailable):
            answers.of(topic, 1)
    assert (clock[0] - begun, waited) == (15.0, ["a", "a", "b", "c"])
