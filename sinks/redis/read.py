"""Reading documents back from Redis, each with its version as of the same moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from json import JSONDecoder
from typing import Any

import pyarrow as pa

from driftless.errors import SinkUnavailable
from sinks._arrow import batch
from sinks._retry import attempts
from sinks.redis.format import Format
from sinks.redis.generations import SWITCHING, Generations
from sinks.redis.names import Names, Template
from sinks.redis.wire import RedisServer, Script

_READ = Script("tried.lua", "read.lua")
_PAGE = 1000
_PAGE_BYTES = 8 << 20
"""Of the documents of one answer, but for the last: the server holds it twice, and nobody else is served meanwhile."""
_DIGITS = 19
"""Of a version, with which every record begins."""
_LARGEST = (1 << 63) - 1
Found = tuple[str | None, int, str]
"""A document's text (None: absent), its version (0: not ours), and the key's text where the name does not tell it."""


class GenerationReader:
    """Sees one generation, wherever it is; what expired is absent."""

    def __init__(
        self, server: RedisServer, names: Names, template: Template, form: Format, generations: Generations
    ) -> None:
        self._server = server
        self._names = names
        self._template = template
        self._format = form
        self._generations = generations
        self._composite = len(template.columns) > 1

    def read(self, generation: int, keys: Sequence[str]) -> pa.RecordBatch:
        rows: list[tuple[str, int, str]] = []
        keys = list(dict.fromkeys(keys))
        start = 0
        while start < len(keys):
            page = keys[start : start + _PAGE]
            names = self._template.names(pa.array(page, pa.string())).to_pylist()
            found = self._wherever(generation, names)
            for key, (document, version, _) in zip(page, found, strict=False):
                if document is not None:
                    rows.append((key, version, document))
            start += len(found)
        return batch(rows)

    def scan(self, generation: int) -> Iterator[pa.RecordBatch]:
        place = self._generations.place(generation)
        before, after = self._names.document(place)
        for page in self._server.scan(before + self._template.prefix, page=_PAGE):
            names = [name[len(before) : len(name) - len(after)] for name in page]
            known = [(name, key) for name in names if (key := self._template.key(name)) is not None]
            while known:
                found = self._fetch(generation, place, [name for name, _ in known])
                if found is None:
                    raise SinkUnavailable("The generation was switched while it was scanned", hint=SWITCHING)
                rows = [
                    (stored_key or key, version, document)
                    for (_, key), (document, version, stored_key) in zip(known, found, strict=False)
                    if document is not None
                ]
                known = known[len(found) :]
                if rows:
                    yield batch(rows)

    def _wherever(self, generation: int, names: Sequence[str]) -> list[Found]:
        """What is under these names, or under the first of them where documents are large."""
        for _ in attempts(self._server.retry_seconds):
            found = self._fetch(generation, self._generations.place(generation), names)
            if found is not None:
                return found
        raise SinkUnavailable("The generation is being switched, again and again", hint=SWITCHING)

    def _fetch(self, generation: int, place: int | None, names: Sequence[str]) -> list[Found] | None:
        """The same; None when the generation is not in that place any more."""
        if not names:
            return []
        around, version = self._names.document(place), self._names.version(place)

        keys = [around[0] + name + around[1] for name in names] + [version[0] + name + version[1] for name in names]
        live, switching, documents, records = self._server.run(
            _READ, [self._names.follower, *keys], [self._format.name, str(_PAGE_BYTES)]
        )
        if switching or (live is not None and int(live) == generation) != (place is None):
            return None
        return [self._one(document, record) for document, record in zip(documents, records, strict=True)]

    def _one(self, document: Any, record: bytes | None) -> Found:
        """Behind the record's blank: the key's text, if it has several columns, and what the format keeps beside."""
        try:
            return self._known(document, record or b"0")
        except (ValueError, RecursionError):  # no record of ours: somebody wrote under its name
            return self._known(document, b"0")

    def _known(self, document: Any, stored: bytes) -> Found:
        about = stored.decode().partition(" ")[2] if len(stored) > _DIGITS else ""
        end = _end_of_array(about) if self._composite and about else 0
        text = None if document is None else self._format.text(document, about[end:])
        version = int(stored[:_DIGITS])
        if not 0 <= version <= _LARGEST:
            raise ValueError("no version")
        return text, version, about[:end]


def _end_of_array(text: str) -> int:
    """Raises ValueError where no array is at the beginning."""
    if not text.startswith("["):
        raise ValueError("no array")
    return _ARRAY.raw_decode(text)[1]


_ARRAY = JSONDecoder(parse_int=str, parse_float=str)
