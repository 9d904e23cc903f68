"""Errors by what the program does next.

Messages name tables, keys' column names, positions and counts, never row values.
"""

from __future__ import annotations

from typing import ClassVar

CORRECT_THE_FILE = "correct the file, and start again; docs/configuration.md describes every field"
POSTGRES_LOG = "see the log of the Postgres server; `driftless check` looks at what the pipeline needs of it"


class SyncError(Exception):
    """Base of every expected failure. `hint` tells the operator what to do next.

    `HINT` is what a class says where one hint is right for all of its errors. A class without one says it with each
    error; test_hints.py holds that.
    """

    HINT: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint or self.HINT

    def __reduce__(self) -> tuple[object, ...]:
        # An error raised on an executor is pickled on its way to the driver; keep the hint with it.
        return (_rebuild, (type(self), str(self), self.hint))


def _rebuild(kind: type[SyncError], message: str, hint: str) -> SyncError:
    error = kind.__new__(kind)
    SyncError.__init__(error, message, hint=hint)
    return error


class ConfigError(SyncError):
    """Stop before starting. Carries every mistake found, each as `file:line: where: what`."""

    def __init__(self, *problems: str, hint: str = "") -> None:
        super().__init__("\n".join(problems), hint=hint)
        self.problems = problems


class DecodeError(SyncError):
    """One record cannot be read; the message carries topic, partition and offset."""


class SourceError(SyncError):
    """Postgres, Kafka or Connect answered, and the answer stops the pipeline."""


class SourceUnavailable(SourceError):
    """Postgres, Kafka or Connect cannot be reached; retry with backoff, exit code 3 when given up."""

    HINT = "run `driftless check`: it tries each server, and says which one does not answer"


class SourceMisconfigured(SourceError):
    """Postgres, Kafka or Connect refuses what the configuration says, as a password: stop and say so, exit code 2."""


class NoDocument(SourceError):
    """Postgres holds a value that it cannot show as a document: a row, and not the server, is at fault."""

    HINT = "correct the value in that row, or leave its column out with `exclude` in source.tables"


class LogReplaced(SourceError):
    """A topic is not the one that was registered: what was read of it cannot be gone on with."""


class LogLost(SourceError):
    """What was read of the log is not in it any more: changes are missing, and no record says which."""


class OutOfMemory(SyncError):
    """Memory did not suffice: it would not the next time either, so it is not tried again."""


class Fenced(SyncError):
    """Another runner holds the lease; this one must stop at once and write nothing more."""

    HINT = "only one process may run a follower; stop one of the two"


class SinkError(SyncError):
    """A store refused."""


class SinkUnavailable(SinkError):
    """The store cannot be reached or asks to wait; retry with backoff."""

    HINT = "run `driftless check`: it tries the store, and says what it answers"


class SinkMisconfigured(SinkError):
    """Credentials, permission, mapping or policy: stop this follower and say so."""


class Internal(SyncError):
    """An error inside driftless. The caller catches and handles it, so that no operator sees it."""

    HINT = "this is a defect of driftless: start the command again, and report it with what it printed"


class StackError(SyncError):
    """The local stack cannot be started as asked. `unreachable` makes the exit code 3 instead of 2."""

    def __init__(self, message: str, *, hint: str = "", unreachable: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.unreachable = unreachable
