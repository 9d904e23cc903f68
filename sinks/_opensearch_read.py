"""Reading documents back from OpenSearch, as the exact text that was stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from json import JSONDecoder
from typing import Any
from urllib.parse import urlencode

import orjson
import pyarrow as pa

from driftless.errors import SinkError, SinkUnavailable
from sinks._arrow import batch
from sinks._opensearch_bulk import reason
from sinks._opensearch_id import document_id
from sinks._opensearch_server import Server

_KEEP_OPEN = "5m"  # between two pages of a scan: as long as the reader may take over one page
_PAGE = 500
_FIRST_PAGE, _LARGEST_PAGE = 100, 5_000
_PAGE_LENGTH = 4_000_000
"""Of an answer: every page has a cost of its own, and is held in memory whole, here and by the server."""
_SOURCE = '"_source":'


def read(server: Server, alias: str, keys: Sequence[str]) -> pa.RecordBatch:
    """Sees every acknowledged write, refreshed or not."""
    rows: list[tuple[str, int, str]] = []
    wanted = {document_id(key): key for key in keys}
    ids = list(wanted)
    for start in range(0, len(ids), _PAGE):
        _, answer = server.call("POST", f"/{alias}/_mget", {"ids": ids[start : start + _PAGE]})
        for entry, document in hits(answer, "docs"):
            if "error" in entry:
                raise SinkUnavailable(f"`{alias}` cannot be read now: {reason(entry['error'])}")
            if document is not None:
                rows.append((wanted[entry["_id"]], entry["_version"], document))
    return batch(rows)


def scan(server: Server, alias: str, shards: int) -> Iterator[pa.RecordBatch]:
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


def _pages(server: Server, moment: str) -> Iterator[pa.RecordBatch]:
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
            raise SinkUnavailable("OpenSearch forgot the moment that was scanned; scan again from the start")
        rows: list[tuple[str, int, str]] = []
        for entry, document in hits(answer, "hits"):
            rows.append((entry["_id"], entry["_version"], document or ""))
            body["search_after"] = entry["sort"]
        if not rows:
            return
        yield batch(rows)
        body["size"] = max(1, min(_LARGEST_PAGE, _PAGE_LENGTH * len(rows) // len(answer)))


def _integer(digits: str) -> int | str:
    # Versions must be exact; Python refuses to read integers of more than 4300 digits, which documents may hold.
    return int(digits) if len(digits) < 20 else digits


_read = JSONDecoder(parse_int=_integer, strict=False).raw_decode


def hits(answer: str, name: str) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Each entry of the array `name` of a `_mget` or `_search` answer, and its document's text (None: no document).

    The server copies a stored document into its answer byte by byte, so cutting it out there keeps every digit;
    reading and writing it anew would not. Inside a JSON string a quote is escaped, so `"_source":` first appears where
    an entry's own document starts.
    """
    at = answer.index(f'"{name}":[') + len(name) + 4
    while answer[at] != "]":
        entry, end = _read(answer, at)
        if "_source" in entry:
            start = answer.index(_SOURCE, at) + len(_SOURCE)
            stop = answer.rindex(',"sort":', start, end) if "sort" in entry else end - 1
            yield entry, answer[start:stop]
        else:
            yield entry, None
        at = end + (answer[end] == ",")
