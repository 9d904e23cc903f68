"""Keeps one line of a JVM's from the terminal: nobody can act on it, and Java has no option to leave it out."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

INCUBATOR = b"WARNING: Using incubator modules:"
"""Spark asks Java for a module that is in incubation, and Java says so once, as it starts."""
HELD_SECONDS = 0.2
"""For so long the beginning of a line that may become that one is held back."""
LAST_WORDS_SECONDS = 1.0
"""For so long it is waited for what a JVM that has not started has said."""
_CHUNK = 1 << 16


@contextmanager
def quiet_start(to: int = 2) -> Iterator[int]:
    """What a JVM is to have as its standard error: it is passed on to ours as it comes, less that one line.

    By one thread, until the last process that has it ends. Our own standard error stays as it is. Where the JVM does
    not start, what it says has been shown before this raises. `to`: the file that is our standard error.
    """
    reading, writing = os.pipe()
    thread = threading.Thread(target=_pass_on, args=(reading, to), name="stderr of the JVM", daemon=True)
    thread.start()
    failed = False
    try:
        yield writing
    except Exception:
        failed = True
        raise
    finally:
        os.close(writing)
        if failed:
            thread.join(LAST_WORDS_SECONDS)


@contextmanager
def quiet_children() -> Iterator[None]:
    """The same for a JVM that inherits our standard error: until the block ends, the thread passes ours on too."""
    ours = os.dup(2)  # stays open: the JVM outlives the block
    with quiet_start(ours) as writing:
        os.dup2(writing, 2)
        try:
            yield
        finally:
            os.dup2(ours, 2)


def _pass_on(reading: int, to: int) -> None:
    with os.fdopen(reading, "rb", buffering=0):
        start = _Start()
        while True:
            if start.held and not _ready(reading, select.POLLIN, HELD_SECONDS):
                _write(to, start.release())
            came = os.read(reading, _CHUNK)
            _write(to, start.without_line(came))
            if not came:
                _write(to, start.release())
                return


class _Start:
    """Leaves the line out where it comes first. `held`: what may be its beginning."""

    def __init__(self) -> None:
        self.held = b""
        self._looking = True
        self._at_start = True

    def without_line(self, came: bytes) -> bytes:
        """What is to be shown now, of what came."""
        left, shown = self.held + came, b""
        self.held = b""
        while self._looking and left:
            if not self._at_start or not (left.startswith(INCUBATOR) or INCUBATOR.startswith(left)):
                line, end, left = left.partition(b"\n")
                shown += line + end
                self._at_start = bool(end)
            elif b"\n" in left:
                left = left.partition(b"\n")[2]
                self._looking = False
            else:
                self.held, left = left, b""
        return shown + left

    def release(self) -> bytes:
        """What was held back: it does not go on, so it is another line."""
        held, self.held = self.held, b""
        self._at_start = self._at_start and not held
        return held


def _ready(fd: int, event: int, seconds: float | None = None) -> bool:
    """Of a number beyond 1023 `select.select` knows nothing."""
    poll = select.poll()
    poll.register(fd, event)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


def _write(to: int, data: bytes) -> None:
    """All of it; where nobody takes it any more, as of a terminal that is closed, the JVM must not wait for that."""
    with suppress(OSError):
        while data:
            try:
                data = data[os.write(to, data) :]
            except BlockingIOError:
                _ready(to, select.POLLOUT)
