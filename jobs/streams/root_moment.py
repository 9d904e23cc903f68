"""A view of a stream as its source shows it: the stream's documents as they were, joined with the rows of Postgres."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from driftless import exact
from driftless.facts.epochs import TopicLog
from driftless.kafka.client import Kafka
from driftless.verify.subject import PinnedSource
from driftless.views.sql import STREAM_ROWS
from driftless.where.postgres import text_literal
from jobs.streams.log.published import published

_PAGE, _PAGE_SIZE = 50_000, 16 << 20
"""Documents of the stream that one statement joins, and characters of them: each statement reads the tables once."""


class StreamRootMoment:
    """The source at one position, and the documents of a stream by then. It is a `PinnedSource`."""

    def __init__(self, source: PinnedSource, documents: Mapping[str, str]) -> None:
        self.lsn = source.lsn
        self._source = source
        self._documents = documents

    def count(self, statement: str) -> int:
        del statement
        return len(self._documents)

    def documents(
        self, statement: str, keys: Sequence[str] | None = None, *, aside: bool = False
    ) -> Iterator[list[tuple[str, str]]]:
        """Of each page of the stream's documents, what the view makes of them."""
        wanted = self._documents.items() if keys is None else self._of(keys)
        page, size = list[str](), 0
        for key, document in wanted:
            page.append(f'{{"key":{json.dumps(key)},"document":{document}}}')
            size += len(document)
            if len(page) == _PAGE or size > _PAGE_SIZE:
                yield from self._source.documents(_over(statement, page), aside=aside)
                page, size = [], 0
        if page:
            yield from self._source.documents(_over(statement, page), aside=aside)

    def as_json(self, kind: str, text: str) -> str | None:
        return self._source.as_json(kind, text)

    def _of(self, keys: Sequence[str]) -> Iterator[tuple[str, str]]:
        return ((key, self._documents[key]) for key in keys if key in self._documents)


def _over(statement: str, page: Sequence[str]) -> str:
    return statement.replace(STREAM_ROWS, text_literal(f"[{','.join(page)}]"))


@contextmanager
def stream_root_moment(
    source: Callable[[Callable[[str], None]], AbstractContextManager[PinnedSource]],
    kafka: Kafka,
    log: TopicLog,
    report: Callable[[str], None],
) -> Iterator[StreamRootMoment]:
    """A position of the source, and what is in the log of the stream by then."""
    with source(report) as pinned:
        kafka.decided_ends(log.topic, log.partitions)
        texts = {key: kept.document for key, kept in published(kafka, log).items()}
        # No version of driftless writes what is no object.
        yield StreamRootMoment(
            pinned, {key: text for key, text in texts.items() if exact.read_object(text) is not None}
        )
