"""How tests open a follower's store, write to it and read it back."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from driftless.sink import WRITES, Sink, SinkContext
from sinks import open_sink
from tests.support.proxy import Proxy

Write = tuple[str, int, str | None]
Opener = Callable[..., Sink]


def upsert(key: str, version: int, document: object) -> Write:
    return key, version, document if isinstance(document, str) else json.dumps(document)


def delete(key: str, version: int) -> Write:
    return key, version, None


def writes(*items: Write) -> pa.RecordBatch:
    columns = list(zip(*items, strict=True)) or [(), (), ()]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, WRITES, strict=True)], schema=WRITES)


def rows(batch: pa.RecordBatch) -> list[Write]:
    assert batch.schema.equals(WRITES)
    return [(row["key"], row["version"], row["document"]) for row in batch.to_pylist()]


def stored(sink: Sink, generation: int, *keys: str) -> dict[str, tuple[int, Any]]:
    """What the store holds of these keys, numbers exact."""
    return {key: (version, exactly(text)) for key, version, text in rows(sink.read(generation, keys))}


def exactly(text: str | None) -> Any:
    assert text is not None
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


def unique_name() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


class StoreCase:
    """A kind's test class says how to reach the store; each test gets a follower of its own."""

    kind: str
    apply_mark: bytes
    """Bytes that are in the request which writes, and in no other."""
    save_mark: bytes
    create_mark: bytes
    promote_mark: bytes
    drop_mark: bytes
    refusal: str
    """The reason given for what `refusable` makes."""

    @pytest.fixture
    def store_url(self) -> str:
        raise NotImplementedError

    def config(self, url: str, name: str) -> dict[str, Any]:
        """A follower's part of sync.yaml, in a place of its own."""
        raise NotImplementedError

    def composite(self, name: str) -> dict[str, Any]:  # noqa: ARG002
        """What else it needs when the key columns are `a` and `b`."""
        return {}

    def as_reader(self, url: str, name: str, key: str) -> str | None:
        """What an application gets that asks for a document in the plain way."""
        raise NotImplementedError

    def refusable(self, url: str, name: str, key: str) -> str:
        """Arrange that the store refuses an upsert of this key for good; the document to write, with SECRET in it."""
        raise NotImplementedError

    def canonical(self, document: str) -> str:
        """As much of a document's text as the store gives back: all of it."""
        return document

    def kept(self, items: Iterable[Write]) -> list[Write]:
        """These writes as the store gives them back, in order of their keys."""
        return sorted((key, version, self.canonical(text or "")) for key, version, text in items)

    def scanned(self, sink: Sink, generation: int) -> list[Write]:
        """All that a scan gives, in order of the keys."""
        return self.kept(row for batch in sink.scan(generation) for row in rows(batch))

    # -- how to open one ----------------------------------------------------------------------------------------

    @pytest.fixture
    def name(self) -> str:
        return unique_name()

    @pytest.fixture
    def opened(self, store_url: str, name: str) -> Iterator[Opener]:
        """Open the same follower as often as a test likes, each time as another process would."""
        made: list[Sink] = []

        def open_one(url: str = "", *, key_columns: tuple[str, ...] = ("id",), **more: Any) -> Sink:
            context = SinkContext(pipeline="suite", follower=name, key_columns=key_columns)
            made.append(open_sink(self.kind, self.config(url or store_url, name) | more, context))
            return made[-1]

        yield open_one
        last = open_one()
        for generation in (1, 2, 3):
            last.drop(generation, also_live=True)
        for sink in made:
            sink.close()

    @pytest.fixture
    def sink(self, opened: Opener) -> Sink:
        return opened()

    @pytest.fixture
    def generation(self, sink: Sink) -> int:
        sink.create(1)
        return 1

    @pytest.fixture
    def proxy(self, store_url: str) -> Iterator[Proxy]:
        with Proxy(store_url) as proxy:
            yield proxy
