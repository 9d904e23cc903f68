"""What a build is asked for by `verify`, a part of it between two steps: the requests are in the control topic."""

from __future__ import annotations

from dataclasses import dataclass, field

from driftless.request import Request
from jobs.keeper import Facts
from jobs.views.store import FIRST_ROOT, RowsLost, RowStore

AUDIT, DOUBT, FILL = "audit", "doubt", "fill"
"""Tell of roots whose rows give another document than was published; publish some documents again, whatever they are;
fill the row store anew from the log, and publish what differs."""
ROOTS = 5_000
"""Roots that are looked over between two steps."""
TOLD = 1_000
"""Keys of an answer: more would not fit into a record."""


@dataclass
class _Task:
    verb: str
    keys: list[str]
    begin: int | None = FIRST_ROOT
    wrong: list[str] = field(default_factory=list)
    done: bool = False


class Asked:
    """The requests of one build: taken in and answered by its viewer's thread, done by its own."""

    def __init__(self) -> None:
        self._tasks: dict[str, _Task] = {}

    def answer(self, request: Request) -> Facts:
        """The facts that answer a request; none while it is not done. After a crash it is done again."""
        if request.verb not in (AUDIT, DOUBT, FILL):
            return request.answer(f"this version of the runner cannot `{request.verb}`")
        task = self._tasks.setdefault(request.id, _Task(request.verb, list(request.arguments.get("keys", ()))))
        if not task.done:
            return {}
        del self._tasks[request.id]
        return request.answer(keys=task.wrong[:TOLD], wrong=len(task.wrong))

    @property
    def waits(self) -> bool:
        """Whether something is to be done."""
        return any(not task.done for task in list(self._tasks.values()))

    def work(self, store: RowStore) -> bool:
        """Do a part of what is asked, between two steps; whether roots are dirty now. Raises RowsLost to fill anew."""
        dirty = False
        for task in [task for task in list(self._tasks.values()) if not task.done]:
            if task.verb == AUDIT:
                assert task.begin is not None
                wrong, task.begin = store.audit(task.begin, ROOTS)
                task.wrong += wrong
                task.done = task.begin is None
            elif task.verb == DOUBT:
                store.doubt(task.keys)
                task.done = dirty = True
            else:
                store.discard()
                task.done = True
                raise RowsLost("verify found that it differs from the log")
        return dirty
