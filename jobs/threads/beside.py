"""A call beside a loop."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def beside(call: Callable[[], T]) -> Future[T]:
    """Make a call in a thread of its own, which keeps no process from ending."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as exc:  # noqa: BLE001 - whoever asks for the result gets it
            future.set_exception(exc)

    Thread(target=work, name="beside", daemon=True).start()
    return future
