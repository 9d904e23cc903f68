"""Requests: kept in a queue, read with care, and answered whatever they hold."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftless.control.request import (
    ANSWER_SECONDS,
    Misunderstood,
    Request,
    answered,
    old_answers,
    refuse_all,
    requests,
)
from driftless.errors import SinkError
from driftless.facts.state import Fact, State
from jobs.follow.generation_worker import GenerationWorker
from jobs.follow.progress import Progress
from jobs.follow.requests import RequestHandler


def state(*facts: tuple[str, dict[str, Any]], time: float = 100.0) -> State:
    return State({key: Fact(value, time, offset) for offset, (key, value) in enumerate(facts)})


def request(verb: str, **arguments: object) -> Request:
    return Request("item", verb, "1", arguments, f"{verb}/1")


def test_every_request_is_kept_oldest_first_and_those_of_the_version_before_too() -> None:
    found = requests(
        state(
            ("request/item/replay/b", {"id": "b", "begin": {"0": 2}}),
            ("request/item/replay/a", {"id": "a", "begin": {"0": 1}}),
            ("request/items/replay/c", {"id": "c"}),
            ("request/item/replay", {"id": "old", "begin": {}}),
        ),
        "item",
    )
    assert [(r.verb, r.id, r.key) for r in found] == [
        ("replay", "b", "request/item/replay/b"),
        ("replay", "a", "request/item/replay/a"),
        ("replay", "old", "request/item/replay"),
    ]
    assert found[2].answer(written=1) == {
        "request/item/replay": None,
        "answer/item/replay": {"id": "old", "error": "", "written": 1},
    }
    after = state(("answer/item/replay/a", {"id": "a", "error": ""}), ("answer/item/replay/b", {"no": "id"}))
    assert answered(after, found[1]) == {"id": "a", "error": ""}
    assert (answered(after, found[0]), answered(after, found[2])) == (None, None)


def test_what_is_asked_of_one_shard_is_not_answered_by_another() -> None:
    facts = state(
        ("request/view order/audit/a", {"id": "a"}),
        ("request/view order/1/audit/b", {"id": "b"}),
        ("request/view order/2/audit", {"id": "c"}),
    )
    assert [r.id for r in requests(facts, "view order")] == ["a"]
    assert [r.id for r in requests(facts, "view order/1")] == ["b"]
    assert [r.id for r in requests(facts, "view order/2")] == ["c"]


def test_all_that_waits_is_refused_together() -> None:
    facts = refuse_all(state(("request/item/replay/a", {}), ("request/item/promote", {"id": "b"})), "item", "gone")
    assert facts == {
        "request/item/replay/a": None,
        "answer/item/replay/a": {"id": "a", "error": "gone"},
        "request/item/promote": None,
        "answer/item/promote": {"id": "b", "error": "gone"},
    }


def test_an_answer_is_forgotten_when_it_has_been_there_for_long() -> None:
    facts = {
        "answer/item/replay/a": Fact({}, 100.0, 1),
        "answer/item/replay/b": Fact({}, 101.0 + ANSWER_SECONDS, 2),
    }
    assert old_answers(State(facts), "item") == {"answer/item/replay/a": None}


class Item:
    """A follower with one generation, that does nothing of what it is asked."""

    def __init__(self) -> None:
        self.name = "item"
        self.removed = False
        self.promoting = False
        self.numbers = [1]
        self.worker = SimpleNamespace(
            replay=None,
            paused=SimpleNamespace(is_set=lambda: False),
            progress=Progress("item", "item", 1),
            job=SimpleNamespace(generation=1),
            quarantine=_Three([]),
            apply_again=self.apply_again,
        )

    def following(self, number: int | None) -> GenerationWorker | None:
        if number not in (None, 1):
            raise SinkError("no such generation")
        return cast(GenerationWorker, self.worker)

    def apply_again(self, *_: object) -> SimpleNamespace:
        return SimpleNamespace(done=False)

    def remove(self, **_: bool) -> dict[str, None]:
        return {}


_SIMPLE = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
_VALUES = _SIMPLE | st.lists(_SIMPLE, max_size=3) | st.dictionaries(st.sampled_from(["0", "x", ""]), _SIMPLE)
_ARGUMENTS = st.dictionaries(st.sampled_from(["id", "begin", "generation", "force", "keys", "drop"]), _VALUES)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.sampled_from(["promote", "replay", "retry", "rebuild", "discard", "remove", "x", ""]), _ARGUMENTS)
def test_whatever_a_request_holds_it_is_answered_or_waits(verb: str, arguments: dict[str, Any]) -> None:
    """With what is well formed by chance: that is done, or refused."""
    item = Item()
    waiting = [Request("item", verb, "1", arguments, f"{verb}/1")]
    facts = RequestHandler(cast(Any, item)).answer(waiting, State({}), {})
    for key, value in facts.items():
        assert key in (f"request/item/{verb}/1", f"answer/item/{verb}/1")
        json.dumps(value)
    well_formed = isinstance(arguments.get("begin"), dict) or verb == "retry"
    assert facts or (verb in ("replay", "retry") and well_formed)


@pytest.mark.parametrize(
    ("read", "value"),
    [
        ("number", True),
        ("number", 1.0),
        ("number", -1),
        ("number", 10**30),
        ("number", "1"),
        ("flag", 1),
        ("texts", "abc"),
        ("texts", [1]),
        ("texts", ["\ud800"]),
        ("offsets", {"a": 1}),
        ("offsets", {"0": None}),
        ("offsets", [1]),
        ("facts", []),
    ],
)
def test_an_argument_of_another_kind_is_told_apart(read: str, value: object) -> None:
    with pytest.raises(Misunderstood, match="`what` of the request"):
        getattr(request("x", what=value), read)("what")
    if read != "texts":
        with pytest.raises(Misunderstood, match="the request has no `what`"):
            getattr(request("x"), read)("what")


def test_an_answer_that_was_not_written_is_given_again_and_nothing_is_done_twice() -> None:
    item, discarded = Item(), list[object]()
    item.worker.progress.put(known=True)
    item.worker.quarantine = _Three(discarded)
    answers, waiting = RequestHandler(cast(Any, item)), [request("discard")]
    first = answers.answer(waiting, State({}), {})
    assert first["answer/item/discard/1"] == {"id": "1", "error": "", "discarded": 3}
    assert answers.answer(waiting, State({}), {}) == first
    assert len(discarded) == 1
    assert answers.answer([], State({}), {}) == {}
    answers.answer(waiting, State({}), {})
    assert len(discarded) == 2, "it was written, and asked again"


class _Three:
    keys = None

    def __init__(self, discarded: list[object]) -> None:
        self._discarded = discarded

    def __len__(self) -> int:
        return 0

    def discard(self, keys: object) -> int:
        self._discarded.append(keys)
        return 3
