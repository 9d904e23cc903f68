"""What an error of Spark means: whether it may pass, whether one record is to blame, and what may be told of it."""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from driftless.errors import DecodeError, SourceUnavailable, SyncError
from jobs.decode.spark_sql import POISON, RENAMED
from jobs.spark.memory import no_memory, out_of_memory
from jobs.spark.refused import refusal

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""What Spark's work ends with; the second where it was under way, as when a Python worker is killed."""
_PASSING = re.compile("python.worker|cancelled", re.IGNORECASE)
"""What Spark says where a worker has died, or a job was told to end: that says nothing about the log."""


def spark_error(exc: Exception, place: str = "") -> SyncError:
    """A record that cannot be read is the log's fault; what else Spark trips over may pass, as a worker that dies.

    Spark's own words quote values, so only the name of its error is told.
    """
    if out_of_memory(exc):
        return no_memory(None, "reading the log with Spark")
    said, where = _raised(exc), f"{place}: " if place else ""
    if said is None and (refused := refusal(str(exc))):
        return refused
    if said is None:
        hint = "it is tried again by itself; where that goes on, the output of the run says what Spark met"
        return SourceUnavailable(f"{where}reading the log with Spark failed: {_kind(exc)}", hint=hint)
    if said.startswith(POISON):
        hint = "correct the value in the source, then `driftless apply --anew`"
    elif RENAMED in said:
        where = ""
        hint = "`driftless plan` shows what changed: name what is there in sync.yaml, then `driftless apply`"
    else:
        where = "" if place and said.startswith(place) else where
        hint = "if the table changed, `driftless apply` re-snapshots it; else see the record with a Kafka client"
    return DecodeError(f"{where}{said}", hint=hint)


def never_passes(exc: Exception) -> str | None:
    """Why one record can never be read, given what reading it alone has ended with.

    None where that says something about the whole log, or about this machine.
    """
    if out_of_memory(exc):
        return None
    said = _raised(exc)
    if said is not None:
        return said.removeprefix(POISON) if said.startswith(POISON) else None
    kind = _kind(exc)
    return None if kind in _MACHINE else f"Spark cannot read it: {kind}"


_MACHINE = frozenset({"OutOfMemoryError", "InterruptedException", "NoClassDefFoundError", "ClassNotFoundException"})
_CLASS = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] ?(.*)")
"""How Spark begins a message: with the name of its error."""
_JAVA = re.compile(r"(?:^|Caused by: |: )(?:[a-z]\w*\.)+([A-Z]\w*)", re.MULTILINE)


def may_pass(exc: Exception) -> bool:
    """By the name of Spark's error, where it has one: what follows may quote a row that has such words."""
    found = _CLASS.search(str(exc))
    return _PASSING.search(found[1] if found else str(exc)) is not None


def _raised(exc: Exception) -> str | None:
    """What an expression of ours has said; None where Spark itself speaks."""
    found = _CLASS.search(str(exc))
    if found is None or found[1] != "USER_RAISED_EXCEPTION":
        return None
    return found[2].strip().removesuffix(" SQLSTATE: P0001")


def _kind(exc: Exception) -> str:
    """The name of an error: Spark's, or that of the last cause's class."""
    text = str(exc)
    if found := _CLASS.search(text):
        return found[1]
    classes = _JAVA.findall(text)
    return classes[-1] if classes else type(exc).__name__
