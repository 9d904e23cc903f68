"""By what OpenSearch chooses the shard of a document: a column of its key, so that a delete finds it too."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sinks.opensearch.id import document_id


@dataclass(frozen=True)
class Routing:
    """`place`: of the column among those of the key; None where the server chooses by the `_id`."""

    place: int | None = None
    columns: int = 1

    @classmethod
    def of_column(cls, column: str | None, key_columns: Sequence[str]) -> Routing:
        """Raises ValueError, with a text for the operator."""
        if column is None:
            return cls()
        if column not in key_columns:
            key = ", ".join([column, *key_columns])
            raise ValueError(
                f"`{column}` is no column of the key ({', '.join(key_columns)}), so no delete could find the shard: "
                f"write `key: [{key}]` in the view"
            )
        return cls(list(key_columns).index(column), len(key_columns))

    def of_key(self, key: str) -> str | None:
        """What is sent with the document of a key."""
        if self.place is None or self.columns == 1:
            return None if self.place is None else document_id(key)
        value = json.loads(key, parse_int=str, parse_float=str)[self.place]
        return document_id(value if isinstance(value, str) else json.dumps(value))

    def of_keys(self, keys: Any) -> Any:
        """The same of a column of keys; None where nothing is sent."""
        return None if self.place is None else pa.array([self.of_key(key) for key in keys.to_pylist()], pa.string())
