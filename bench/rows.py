"""Rows of the measured table: as the connector writes them into the log, and as the documents that come of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from driftless.table import Column, Table

TABLE = Table(
    "public",
    "product",
    (
        Column("id", "int8"),
        Column("sku", "text", toastable=True),
        Column("title", "text", toastable=True),
        Column("description", "text", toastable=True),
        Column("category", "text", toastable=True),
        Column("price", "numeric"),
        Column("stock", "int4"),
        Column("changed_at", "timestamptz"),
    ),
    ("id",),
)
SMALL = Table(
    "public", "item", (Column("id", "int8"), Column("title", "text", toastable=True), Column("stock", "int4")), ("id",)
)
CREATE = (
    "create table product (id int8 primary key, sku text, title text, description text, category text, "
    "price numeric, stock int4, changed_at timestamptz)"
)
MAPPING = {
    "dynamic": "strict",
    "properties": {
        "id": {"type": "long"},
        "sku": {"type": "keyword"},
        "title": {"type": "text"},
        "description": {"type": "text"},
        "category": {"type": "keyword"},
        "price": {"type": "double"},
        "stock": {"type": "integer"},
        "changed_at": {"type": "date"},
    },
}
_NOUNS = "oak steel wool linen copper glass cotton walnut brass paper table lamp chair kettle shelf blanket basket"
_OTHERS = "small large round light heavy quiet warm solid plain folding garden kitchen travel office winter summer"
_WORDS = f"{_NOUNS} {_OTHERS}".split()
_CATEGORIES = ("home", "garden", "office", "travel", "kitchen")


@dataclass(frozen=True)
class Change:
    """One record. `value`: what Debezium writes (None: a tombstone). `document`: what we make of it."""

    id: int
    value: str | None
    document: str | None

    @property
    def key(self) -> bytes:
        return b'{"id":%d}' % self.id


class Rows:
    """Changes of a table, the same for the same seed: documents of about 300 bytes, or of 60 where they are `small`."""

    def __init__(self, seed: int = 1, *, small: bool = False) -> None:
        self.table = SMALL if small else TABLE
        self._rng = random.Random(seed)
        self._words = [" ".join(self._rng.choices(_WORDS, k=14)) for _ in range(997)]
        self._upsert = self._small if small else self._full
        self._made = 0

    def upsert(self, key: int) -> Change:
        """A row with values that differ from the last one's."""
        self._made += 1
        return self._upsert(key, self._made)

    def _full(self, key: int, n: int) -> Change:
        price = f"{n % 900 + 1}.{n % 90 + 10}"
        micros = n % 900_000 + 100_000
        micros += micros % 10 == 0  # Postgres writes no zero at the end
        head = f'"id":{key},"sku":"sku-{key:08d}","title":"{self._words[n % 991]:.24}"'
        head += f',"description":"{self._words[n % 997]:.110}","category":"{_CATEGORIES[n % 5]}"'
        moment = f"2024-03-{n % 28 + 1:02d}T{n % 24:02d}:{n % 59:02d}:{n % 60:02d}.{micros}"
        tail = f'"stock":{n % 5000},"changed_at":"{moment}'
        value = f'{{{head},"price":"{price}",{tail}Z"}}'
        # What is JSON text already comes before what Spark writes: see jobs/decode/values.py.
        return Change(key, value, f'{{"price":{price},{head},{tail}+00:00"}}')

    def _small(self, key: int, n: int) -> Change:
        text = f'{{"id":{key},"title":"{self._words[n % 991]:.24}","stock":{n % 5000}}}'
        return Change(key, text, text)

    def inserts(self, keys: range) -> Iterator[Change]:
        return (self.upsert(key) for key in keys)

    def mixed(self, changes: int) -> Iterator[Change]:
        """Four in five insert a new key; of the others, which meet a key that was there, three in ten delete it."""
        keys = 0
        for n in range(changes):
            if n % 5 != 4:
                yield self.upsert(keys)
                keys += 1
                continue
            key = self._rng.randrange(keys)
            yield Change(key, None, None) if self._rng.random() < 0.3 else self.upsert(key)


def final(changes: Iterator[Change] | list[Change]) -> dict[str, str]:
    """Key -> document, once all changes are applied."""
    documents = {str(change.id): change.document for change in changes}
    return {key: document for key, document in documents.items() if document is not None}
