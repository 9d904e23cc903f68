"""Reading ahead: one read at a time, in one thread, and never more than one ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from jobs.threads.prefetch import Prefetch

SECONDS = 10.0


@pytest.fixture
def ahead() -> Iterator[Prefetch[int]]:
    prefetch = Prefetch[int]("test")
    yield prefetch
    prefetch.close()


def test_the_next_item_is_made_while_the_caller_has_the_last_one_and_no_more(ahead: Prefetch[int]) -> None:
    made: list[int] = []
    two = threading.Event()
    threads = set[threading.Thread]()

    def items() -> Iterator[int]:
        for n in range(4):
            made.append(n)
            threads.add(threading.current_thread())
            if n == 1:
                two.set()
            yield n

    read = ahead.over(items())
    assert made == []
    assert next(read) == 0
    assert two.wait(SECONDS)
    assert made == [0, 1]
    assert list(read) == [1, 2, 3]
    assert len(threads) == 1
    assert threading.current_thread() not in threads


def test_an_error_is_raised_where_its_item_is_taken(ahead: Prefetch[int]) -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("the second")

    read = ahead.over(items())
    assert next(read) == 1
    with pytest.raises(ValueError, match="the second"):
        next(read)
    assert ahead.take() is None
    assert list(ahead.over(iter([7, 8]))) == [7, 8]


def test_what_nobody_wants_any_more_is_not_given_to_the_next_reader(ahead: Prefetch[int]) -> None:
    may, under_way = threading.Event(), threading.Event()
    done: list[int] = []

    def slow() -> Iterator[int]:
        yield 1
        under_way.set()
        assert may.wait(SECONDS)
        done.append(2)
        yield 2

    abandoned = ahead.over(slow())
    assert next(abandoned) == 1
    assert under_way.wait(SECONDS)
    following = ahead.over(iter([10, 11]))
    threading.Timer(0.1, may.set).start()
    assert list(following) == [10, 11]
    assert done == [2], "two reads at a time"


def test_the_last_call_comes_after_the_read_that_is_under_way_and_nobody_waits_for_it(ahead: Prefetch[int]) -> None:
    may, closed = threading.Event(), threading.Event()
    done: list[str] = []

    def read() -> int:
        assert may.wait(SECONDS)
        done.append("read")
        return 1

    def last() -> None:
        done.append("closed")
        closed.set()

    ahead.start(read)
    ahead.close(last)
    assert done == []
    may.set()
    assert closed.wait(SECONDS)
    assert done == ["read", "closed"]
    ahead.close(lambda: done.append("at once"))
    assert done[-1] == "at once"
    assert list(ahead.over(iter([3]))) == [3], "it can be used again"
