"""A value that Postgres cannot show: its document is named, and all others are read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from driftless.errors import NoDocument
from driftless.facts.epochs import first_epoch
from driftless.verify.beyond import Beyond
from driftless.verify.spool import hash_documents
from driftless.verify.stages import read_source
from driftless.verify.steps import RateLimiter, Step
from driftless.verify.subject import Subject
from driftless.views.sql import DOUBT


class Fake:
    """A source with three documents. The second has a value that cannot be shown, the third one that only looks so."""

    lsn = 7

    def count(self, _: str) -> int:
        return 3

    def as_json(self, kind: str, text: str) -> str | None:
        assert kind == "json"
        return None if "u0000" in text else text

    def documents(
        self, statement: str, keys: Sequence[str] | None = None, *, aside: bool = False
    ) -> Iterator[list[tuple[str, str]]]:
        assert keys is None
        yield [("1", '{"j": 1}')]
        if statement == "plain":
            raise NoDocument("Postgres cannot make a document of each row")
        assert aside
        deep = "[" * 3000 + "]" * 3000
        yield [("2", f'{{"d": {deep}, "j": {put_aside(2, "[0, 1e5]")}, "k": {put_aside(2, chr(92) + "u0000")}}}')]
        yield [("3", f'{{"j": {put_aside(3, "1e999")}}}')]


def subject_of(careful: str = "") -> Subject:
    nothing: Any = None
    return Subject("view", "table-log", "plain", first_epoch("topic", "id", 2), nothing, careful=careful)


def put_aside(row: int, text: str) -> str:
    """As Postgres prints it."""
    return json.dumps({"key": str(row), "type": "json", "table": "public.t", "column": 'a "j"', DOUBT: text})


def test_what_cannot_be_shown_is_named_and_all_others_are_read(tmp_path: Path) -> None:
    moment: Any = Fake()
    subject = subject_of("careful")
    spool, beyond = read_source(subject, moment, tmp_path / "source", RateLimiter(0), Step("source", 3))
    assert beyond == {"2": 'public.t 2: a "j" holds what jsonb cannot'}
    assert spool.rows == 3
    canon = spool.load("canon")["canon"]
    assert np.array_equal(canon[[0, 2]], hash_documents(['{"j":1}', '{"j":1e999}']))


def test_without_a_careful_statement_it_ends(tmp_path: Path) -> None:
    moment: Any = Fake()
    with pytest.raises(NoDocument):
        read_source(subject_of(), moment, tmp_path / "source", RateLimiter(0), Step("source", 3))


def test_a_document_keeps_its_text_around_the_value() -> None:
    moment: Any = Fake()
    beyond = Beyond(moment)
    assert beyond.look("1", f'{{"a": [{put_aside(1, "[1]")}, 2]}}') == '{"a": [[1], 2]}'
    assert beyond.look("1", '{"a": 1}') == '{"a": 1}'
    assert beyond.found == {}
