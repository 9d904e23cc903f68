"""Documents of orders as an application reads them by key from OpenSearch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from http.client import HTTPConnection
from typing import Any, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")
_PAGE = 1000


class Index:
    """Reads an index over one connection."""

    def __init__(self, url: str, name: str) -> None:
        address = urlsplit(url)
        self._http = HTTPConnection(str(address.hostname), address.port, timeout=120)
        self._name = name

    def get(self, key: int | str) -> dict[str, Any] | None:
        """A document, None where there is none."""
        return dict(self._call("GET", f"/{self._name}/_doc/{key}")).get("_source")

    def several(self, keys: Sequence[int], *, only: str) -> dict[int, Any]:
        """Of these documents the fields that `only` names."""
        path = f"/{self._name}/_mget?_source_includes={only}"
        found = self._call("POST", path, {"ids": [str(key) for key in keys]})["docs"]
        return {int(document["_id"]): document.get("_source") for document in found}

    def all(self) -> Iterator[tuple[str, Any]]:
        """Every document, by key, numbers as floats."""
        self._call("POST", f"/{self._name}/_refresh")
        page = self._call("POST", f"/{self._name}/_search?scroll=2m", {"size": _PAGE, "sort": ["_doc"]})
        while hits := page["hits"]["hits"]:
            yield from ((hit["_id"], hit["_source"]) for hit in hits)
            page = self._call("POST", "/_search/scroll", {"scroll": "2m", "scroll_id": page["_scroll_id"]})
        self._call("DELETE", "/_search/scroll", {"scroll_id": page["_scroll_id"]})

    def delete(self) -> None:
        self._call("DELETE", f"/{self._name}")

    def close(self) -> None:
        self._http.close()

    def _call(self, method: str, path: str, body: object = None) -> Any:
        sent = None if body is None else json.dumps(body)
        self._http.request(method, path, sent, {"Content-Type": "application/json"})
        return json.loads(self._http.getresponse().read(), parse_int=float)


def pages(keys: Iterable[T]) -> Iterator[list[T]]:
    listed = list(keys)
    for start in range(0, len(listed), _PAGE):
        yield listed[start : start + _PAGE]
