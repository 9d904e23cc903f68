"""Work that goes on beside what is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event


@contextmanager
def meanwhile(work: Callable[[Event], None]) -> Iterator[None]:
    """Do `work` in a thread for as long as the block lasts; it must return when the event is set. Raises its error."""
    ended = Event()
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work, ended)
        try:
            yield
        finally:
            ended.set()
        working.result()
