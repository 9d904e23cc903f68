"""What a build is asked for by `verify`, a part of it between two steps: the requests are in the control topic."""

from __future__ import annotations

from dataclasses import dataclass, field

from driftless.control.request import Request
from jobs.supervise.keeper import Facts
from jobs.views.oversized import Oversized
from jobs.views.store.contract import FIRST_ROOT, RowsLost, RowStore

AUDIT, REPUBLISH, REFILL = "audit", "doubt", "fill"
"""Tell of roots whose rows give another document than was published; publish some documents again, whatever they are;
fill the row store again from the log, and publish what differs."""
RETRY, DISCARD = "retry", "discard"
"""Publish quarantined documents again, which may fit by now; let them go without publishing them."""
ROOTS = 5_000
"""Roots that are looked over between two steps."""
TOLD = 1_000
"""Keys of an answer: more would not fit into a record."""


@dataclass
class _Task:
    verb: str
    keys: list[str] | None
    begin: int | None = FIRST_ROOT
    wrong: list[str] = field(default_factory=list)
    republished: int | None = None
    result: dict[str, object] = field(default_factory=dict)
    done: bool = False


class MaintenanceRequests:
    """The requests of one build: taken in and answered by its viewer's thread, done by its own."""

    def __init__(self) -> None:
        self._tasks: dict[str, _Task] = {}

    def answer(self, request: Request) -> Facts:
        """The facts that answer a request; none while it is not done. After a crash it is done again."""
        if request.verb not in (AUDIT, REPUBLISH, REFILL, RETRY, DISCARD):
            return request.answer(f"this version of the runner cannot `{request.verb}`")
        keys = request.texts("keys")
        task = self._tasks.setdefault(
            request.name, _Task(request.verb, keys or [] if request.verb == REPUBLISH else keys)
        )
        if not task.done:
            return {}
        del self._tasks[request.name]
        return request.answer("", **(task.result or {"keys": task.wrong[:TOLD], "wrong": len(task.wrong)}))

    @property
    def waits(self) -> bool:
        """Whether something is to be done."""
        return any(not task.done for task in list(self._tasks.values()))

    def work(self, store: RowStore, oversized: Oversized, *, clean: bool) -> bool:
        """Do a part of what is asked, between two steps; whether roots are dirty now. Raises RowsLost to fill it again.

        `clean`: all roots that were dirty have been published.
        """
        dirty = False
        for task in [task for task in list(self._tasks.values()) if not task.done]:
            if task.verb == AUDIT:
                assert task.begin is not None
                wrong, task.begin = store.audit(task.begin, ROOTS)
                task.wrong += wrong
                task.done = task.begin is None
            elif task.verb == REPUBLISH:
                store.republish(task.keys or ())
                task.done = dirty = True
            elif task.verb == RETRY and task.republished is None:
                keys = oversized.keys(task.keys)
                store.republish(keys)
                task.republished, dirty = len(keys), True
            elif task.verb == RETRY:
                left = len(oversized.keys(task.keys))
                task.result = {"written": (task.republished or 0) - left, "left": len(oversized)}
                task.done = clean
            elif task.verb == DISCARD:
                keys = oversized.keys(task.keys)
                oversized.discard(keys)
                task.result = {"discarded": len(keys)}
                task.done = True
            else:
                store.discard()
                task.done = True
                raise RowsLost("verify found that it differs from the log")
        return dirty
