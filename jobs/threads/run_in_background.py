"""A call in a thread of its own, whose result is asked for later."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def run_in_background(call: Callable[[], T]) -> Future[T]:
    """Make a call in a thread of its own, which keeps no process from ending."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as exc:  # noqa: BLE001 - whoever asks for the result gets it
            future.set_exception(exc)

    Thread(target=work, name="background", daemon=True).start()
    return future
