"""Reading documents back from OpenSearch, as the exact text that was stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from json import JSONDecoder
from typing import Any
from urllib.parse import urlencode

import msgspec
import orjson
import pyarrow as pa

from driftless.errors import SinkError, SinkUnavailable
from sinks._arrow import batch
from sinks.opensearch.bulk import reason
from sinks.opensearch.id import document_id
from sinks.opensearch.routing import Routing
from sinks.opensearch.server import SHARDS, OpenSearchServer

_KEEP_OPEN = "5m"  # between two pages of a scan: as long as the reader may take over one page
_PAGE = 500
_FIRST_PAGE, _LARGEST_PAGE = 20, 5_000
_PAGE_LENGTH = 4_000_000
"""Of an answer: every page has a cost of its own, and is held in memory whole, here and by the server."""
_SOURCE = '"_source":'


def read(server: OpenSearchServer, alias: str, keys: Sequence[str], routing: Routing) -> pa.RecordBatch:
    """Sees every acknowledged write, refreshed or not."""
    rows: list[tuple[str, int, str]] = []
    wanted = {document_id(key): key for key in keys}
    ids = list(wanted)
    start, page = 0, _FIRST_PAGE
    while start < len(ids):
        some = ids[start : start + page]
        entries = [{"_id": id_, "routing": routing.of_key(wanted[id_])} for id_ in some]
        _, answer = server.call(
            "POST", f"/{alias}/_mget", {"ids": some} if routing.place is None else {"docs": entries}
        )
        for hit in hits(answer, "docs"):
            if hit.error is not None:
                raise SinkUnavailable(f"`{alias}` cannot be read now: {reason(hit.error)}", hint=SHARDS)
            if (document := hit.document) is not None:
                rows.append((wanted[hit.id], hit.version, document))
        start += len(some)
        page = max(1, min(_PAGE, _PAGE_LENGTH * len(some) // len(answer)))
    return batch(rows)


def scan(server: OpenSearchServer, alias: str, shards: int) -> Iterator[pa.RecordBatch]:
    """Everything, as of one moment for each shard; 2.x has no sort that is unique across shards.

    In the order in which a moment has its documents, so that the server goes on where the last page ended: by `_seq_no`
    it looks through all documents for every page.
    """
    server.call("POST", f"/{alias}/_refresh")
    moments: list[str] = []
    try:
        for shard in range(shards):
            query = urlencode({"keep_alive": _KEEP_OPEN, "preference": f"_shards:{shard}"})
            _, answer = server.call("POST", f"/{alias}/_search/point_in_time?{query}")
            moments.append(orjson.loads(answer)["pit_id"])
        for moment in moments:
            yield from _pages(server, moment)
    finally:
        with suppress(SinkError):  # only a courtesy: they expire
            server.once("DELETE", "/_search/point_in_time", orjson.dumps({"pit_id": moments}), ok={404})


def _pages(server: OpenSearchServer, moment: str) -> Iterator[pa.RecordBatch]:
    body: dict[str, Any] = {
        "pit": {"id": moment, "keep_alive": _KEEP_OPEN},
        "size": _FIRST_PAGE,
        "sort": ["_doc"],
        "version": True,
        "track_total_hits": False,
    }
    while True:
        status, answer = server.call("POST", "/_search?allow_partial_search_results=false", body, ok={404})
        if status == 404:
            raise SinkUnavailable(
                "OpenSearch has given up the point in time that was being scanned",
                hint="Start again; it does so when a node restarts, and when nobody reads on for five minutes.",
            )
        found = hits(answer, "hits")
        if not found:
            return
        yield batch([(hit.id, hit.version, hit.document or "") for hit in found])
        body["search_after"] = found[-1].sort
        body["size"] = max(1, min(_LARGEST_PAGE, _PAGE_LENGTH * len(found) // len(answer)))


class Hit(msgspec.Struct, rename={"id": "_id", "version": "_version", "source": "_source"}):
    """An entry of a `_mget` or `_search` answer. `source`: its document as it stands there, or empty."""

    id: str
    version: int = 0
    source: msgspec.Raw = msgspec.Raw()
    sort: list[int] = []
    error: dict[str, Any] | None = None

    @property
    def document(self) -> str | None:
        return bytes(self.source).decode("utf-8", "surrogatepass") or None


class _Hits(msgspec.Struct):
    hits: list[Hit]


class _Found(msgspec.Struct):
    hits: _Hits


class _Docs(msgspec.Struct):
    docs: list[Hit]


_found, _docs = msgspec.json.Decoder(_Found).decode, msgspec.json.Decoder(_Docs).decode


def hits(answer: str, name: str) -> list[Hit]:
    """The entries of the array `name`, `docs` or `hits`, of a `_mget` or `_search` answer.

    The server copies a stored document into its answer byte by byte, so cutting it out there keeps every digit;
    reading and writing it again would not.
    """
    try:
        return _docs(answer).docs if name == "docs" else _found(answer).hits.hits
    except msgspec.DecodeError:  # half a surrogate, which Python's own reader lets pass
        return list(_cut_out(answer, name))


def _integer(digits: str) -> int | str:
    # Versions must be exact; Python refuses to read integers of more than 4300 digits, which documents may hold.
    return int(digits) if len(digits) < 20 else digits


_read = JSONDecoder(parse_int=_integer, strict=False).raw_decode


def _cut_out(answer: str, name: str) -> Iterator[Hit]:
    """Inside a JSON string a quote is escaped, so `"_source":` first appears where an entry's own document starts."""
    at = answer.index(f'"{name}":[') + len(name) + 4
    while answer[at] != "]":
        entry, end = _read(answer, at)
        hit = Hit(entry["_id"], entry.get("_version", 0), sort=entry.get("sort", []), error=entry.get("error"))
        if "_source" in entry:
            start = answer.index(_SOURCE, at) + len(_SOURCE)
            stop = answer.rindex(',"sort":', start, end) if "sort" in entry else end - 1
            hit.source = msgspec.Raw(answer[start:stop])
        yield hit
        at = end + (answer[end] == ",")
