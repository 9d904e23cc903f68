"""Reading ahead: the next part is read in a thread of its own while the caller deals with the last one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


def _nothing() -> None:
    pass


class Prefetch(Generic[T]):
    """One read at a time, in one thread, which is there from the first read until `close`, and again after it.

    A caller that no longer wants what is being read just starts another read: that one comes after it. An error of a
    read is raised where its result is taken.
    """

    def __init__(self, name: str, begin: Callable[[], None] = _nothing) -> None:
        """`begin`: what its thread does first."""
        self._name = name
        self._begin = begin
        self._pool: ThreadPoolExecutor | None = None
        self._ahead: Future[T | None] | None = None

    def start(self, read: Callable[[], T | None]) -> None:
        self._pool = self._pool or ThreadPoolExecutor(1, self._name, self._begin)
        self._ahead = self._pool.submit(read)

    def take(self) -> T | None:
        """What was read last; waits for it. None where no read was started since."""
        ahead, self._ahead = self._ahead, None
        return None if ahead is None else ahead.result()

    def over(self, items: Iterator[T]) -> Iterator[T]:
        """The same items, each of them made while the caller deals with the one before."""
        self.start(lambda: next(items, None))
        while (item := self.take()) is not None:
            self.start(lambda: next(items, None))
            yield item

    def close(self, last: Callable[[], None] = _nothing) -> None:
        """Does not wait. `last` is called after what is being read, in its thread, or at once where there is none."""
        pool, self._pool, self._ahead = self._pool, None, None
        if pool is None:
            last()
        else:
            pool.submit(last)
            pool.shutdown(wait=False)
