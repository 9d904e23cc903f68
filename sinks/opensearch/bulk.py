"""The OpenSearch bulk format: the body of a request from a batch of writes, and the verdict on each of its items."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from driftless.sink import Rejected
from sinks._arrow import Texts, join, text
from sinks.opensearch.id import document_ids
from sinks.opensearch.routing import Routing

ANSWER = "errors,items.*.status,items.*.error.type,items.*.error.reason,items.*.error.caused_by"
"""What is asked of the server's answer: with `errors` false, most of it need not even be looked at."""

_MISSING_RIGHT = re.compile(r"no permissions for \[([a-z][a-z0-9:/_*\[\], -]*?)\] and User ")
_TO_ESCAPE = r'["\\\x00-\x1f]'
_RETRY = {408, 429, 500, 502, 503, 504}
_GONE = {"index_not_found_exception", "invalid_index_name_exception", "index_closed_exception"}


def bulk_body(writes: pa.RecordBatch, routing: Routing | None = None) -> bytes:
    """One request for all of the batch, in order; each item carries its version for the server to judge."""
    ids = document_ids(writes.column("key"))
    versions, documents = writes.column("version"), writes.column("document")
    routed = None if routing is None else routing.of_keys(writes.column("key"))
    shards = [] if routed is None else [',"routing":', _json_text(routed)]
    heads = join('":{"_id":', _json_text(ids), *shards, ',"version":', text(versions), ',"version_type":"external"}}\n')
    lines = join('{"index', heads, _one_line(documents), "\n")
    if documents.null_count:
        lines = pc.coalesce(lines, join('{"delete', heads))
    return bytes(Texts(lines)[:])


def _json_text(keys: Any) -> Any:
    if pc.any(pc.match_substring_regex(keys, _TO_ESCAPE)).as_py():
        return pa.array([orjson.dumps(key).decode() for key in keys.to_pylist()], pa.string())
    return join('"', keys, '"')


def _one_line(documents: Any) -> Any:
    # In JSON a bare newline can only stand between tokens, where a space means the same; in the bulk format it would
    # end the document, and what follows would be read as the next command.
    if b"\n" in Texts(documents):
        return pc.replace_substring(documents, "\n", " ")
    return documents


@dataclass
class BulkResult:
    """What became of one request's items. `again` holds the places of those to send again, `why` the reasons."""

    written: int = 0
    stale: int = 0
    rejected: list[Rejected] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    why: set[str] = field(default_factory=set)
    gone: str = ""
    forbidden: str = ""


def is_bulk_answer(answer: str) -> bool:
    """Whether a server has judged each item: `errors` is asked for, and comes first."""
    return answer.startswith('{"errors":')


def judge(answer: Mapping[str, Any], writes: pa.RecordBatch) -> BulkResult:
    """Judge each item by itself: a version conflict is a stale write, a busy server is asked again, a bad document is
    rejected, and none of them says anything about its neighbours.
    """
    verdict = BulkResult()
    items = answer["items"]
    if len(items) != writes.num_rows:
        raise ValueError(f"{writes.num_rows} writes were sent, {len(items)} were answered")
    if not answer["errors"]:
        verdict.written = len(items)
        return verdict
    for place, item in enumerate(items):
        ((_, result),) = item.items()
        status, error = result["status"], result.get("error")
        if error is None:  # a delete that found nothing has status 404 and has set the version all the same
            verdict.written += 1
        elif status == 409:
            verdict.stale += 1
        elif status in _RETRY:
            verdict.again.append(place)
            verdict.why.add(error["type"])
        elif error["type"] in _GONE:
            verdict.gone = error["type"]
        elif status in (401, 403):
            verdict.forbidden = error["type"] + missing_right(str(error.get("reason")))
        else:
            verdict.rejected.append(reject(writes, place, reason(error)))
    return verdict


def reject(writes: pa.RecordBatch, place: int, why: str) -> Rejected:
    return Rejected(writes.column("key")[place].as_py(), writes.column("version")[place].as_py(), why)


# The server quotes values in many ways ("Preview of field's value", "For input string", "Value [..] is out of range").
# So only what is known to name fields, types and limits is taken over, from the start of its sentence.
_SAYS = re.compile(
    r"failed to parse field \[[^\]]*\] of type \[\w+\]"
    r"|object mapping for \[[^\]]*\] tried to parse field \[[^\]]*\] as object, but found a concrete value"
    r"|mapper \[[^\]]*\] cannot be changed from type \[\w+\] to \[\w+\]"
    r"|mapping set to strict, dynamic introduction of \[[^\]]*\] within \[[^\]]*\] is not allowed"
    r"|Document contains at least one immense term in field=\"[^\"]*\""
    r"|(?:Limit of|The depth of) [\w ]+\[\d+\](?: has been exceeded)?"
    r"|Number value length \(\d+\) exceeds the maximum allowed \(\d+"
    r"|if _id is specified it must not be empty"
    r"|field name cannot [\w ]+"
    r"|Duplicate (?:field|Object property)"
    r"|failed to parse, document is empty"
    r"|Malformed content, found extra data after parsing"
)


def missing_right(said: str) -> str:
    """What the user may not do, as the security plugin names it; "" where it does not say so."""
    found = _MISSING_RIGHT.search(said)
    return f": the user has no right to {found[1]}" if found else ""


def reason(error: Mapping[str, Any]) -> str:
    """The server's reason without the values it quotes: types of error, and sentences known to hold no values."""
    return "; ".join(dict.fromkeys(_sentences(error)))


def _sentences(error: Mapping[str, Any] | None) -> Iterator[str]:
    while error:
        said = _SAYS.match(error.get("reason") or "")
        yield f"{error['type']}: {said.group()}" if said else error["type"]
        error = error.get("caused_by")
