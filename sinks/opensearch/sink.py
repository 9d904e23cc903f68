"""OpenSearch: a follower is an alias that readers use, and one index behind it for each generation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cached_property
from secrets import token_hex
from typing import Annotated, Any, Self, cast
from urllib.parse import urlsplit

import orjson
import pyarrow as pa
from pydantic import Field, JsonValue, field_validator, model_validator

from driftless.config.address import certificates_problem, url_problem
from driftless.errors import SinkMisconfigured, SinkUnavailable
from driftless.sink import Applied, Progress, SinkContext, in_silence
from sinks import ACCESS, HORIZON_SECONDS, SinkConfig, Unfit, drop_of_live
from sinks._arrow import slices
from sinks._retry import attempts
from sinks.opensearch.bulk import ANSWER, BulkResult, bulk_body, judge, reject
from sinks.opensearch.checkpoint import Checkpoints
from sinks.opensearch.faithful import OVERRIDES, ROUTING, Faithful, flatten
from sinks.opensearch.id import document_ids
from sinks.opensearch.mapping import mapping_notes
from sinks.opensearch.read import read, scan
from sinks.opensearch.readers_alias import ReadersAlias
from sinks.opensearch.routing import Routing
from sinks.opensearch.server import TOO_LARGE, Access, OpenSearchServer, error_type

# Settings that would break a guarantee, with what they would break.
_REFUSED_SETTINGS = {
    "gc_deletes": "it must outlast the slowest late writer, so it is set for you",
    "translog.durability": "an acknowledged write must survive a crash",
    "default_pipeline": "the document must be stored as it is",
    "final_pipeline": "the document must be stored as it is",
}


class Config(SinkConfig):
    """An OpenSearch index, 2.x or newer."""

    url: Annotated[str, ACCESS] = Field(
        repr=False,
        description="Base URL of the server; a user and password may stand in it: `https://user:password@host:9200`.",
        examples=["https://search:9200"],
    )
    index: str = Field(
        description="Name readers use: an alias. Generations are the indices `<index>-<n>` behind it.",
        examples=["products"],
    )
    settings: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="Index settings, over these defaults: a replica as soon as there is a second node, and, without a "
        "`mapping`, a value that does not fit the type guessed for its field is kept but not searchable.",
        examples=["{number_of_shards: 3}"],
    )
    mapping: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="Index mapping, as in the index API. With one, a document that does not fit it is quarantined: a "
        "field that it does not name does not fit `dynamic: strict`, is stored and not searchable with `false`, and is "
        "added by its first value with `true`. Without one, the server guesses each field's type from the first value "
        "it sees, except dates, which stay text.",
        examples=["{dynamic: strict, properties: {id: {type: long}, title: {type: text}}}"],
    )
    routing: str | None = Field(
        default=None,
        description="A column of the key whose value chooses the shard, so that a search with this `routing` "
        "asks one shard alone. By the whole key if left out.",
        examples=["tenant_id"],
    )
    ca_certs: Annotated[str | None, ACCESS] = Field(
        default=None, description="File of certificates to trust for `https`.", examples=["/etc/ssl/search-ca.pem"]
    )
    client_cert: Annotated[str | None, ACCESS] = Field(
        default=None, description="File of the client certificate for `https`.", examples=["/etc/ssl/shop.pem"]
    )
    client_key: Annotated[str | None, ACCESS] = Field(
        default=None,
        description="File of its key; not needed where `client_cert` holds it too.",
        examples=["/etc/ssl/shop.key"],
    )
    authorization: Annotated[str | None, ACCESS] = Field(
        default=None,
        repr=False,
        description="What is sent as the header `Authorization` in place of a user in the `url`, as a token.",
        examples=["Bearer ${SEARCH_TOKEN}"],
    )
    request_bytes: Annotated[int, ACCESS] = Field(
        default=5_000_000, ge=1_000, description="About how many bytes one bulk request may have.", examples=["1000000"]
    )
    request_documents: Annotated[int, ACCESS] = Field(
        default=2_500, ge=1, description="How many writes one bulk request may hold.", examples=["1000"]
    )
    connections: Annotated[int, ACCESS] = Field(
        default=2, ge=1, le=16, description="Bulk requests in flight at once for a large batch.", examples=["4"]
    )

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        if problem := url_problem(url, ("http", "https"), "https://user:password@host:9200"):
            raise ValueError(problem)
        return url.rstrip("/")

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if problem := certificates_problem(self.url, "https", self):
            raise ValueError(problem)
        if self.authorization is not None and "@" in self.url:
            raise ValueError("`authorization` and a user in `url` are two logins: keep one")
        return self

    @field_validator("index")
    @classmethod
    def _is_index(cls, index: str) -> str:
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,199}", index):
            near = re.sub(r"[^a-z0-9._-]+", "-", index.lower()).strip("._-")
            meant = f"; did you mean `{near}`?" if 0 < len(near) <= 200 else ""
            raise ValueError(
                "use lower-case letters, digits, `.`, `_` and `-`, begin with a letter or digit, at most 200" + meant
            )
        return index

    @field_validator("settings")
    @classmethod
    def _keeps_guarantees(cls, settings: dict[str, JsonValue]) -> dict[str, JsonValue]:
        settings = flatten(settings)
        for name, why in _REFUSED_SETTINGS.items():
            if name in settings:
                raise ValueError(f"`{name}` cannot be set: {why}")
        return settings

    @field_validator("mapping")
    @classmethod
    def _keeps_source(cls, mapping: dict[str, JsonValue]) -> dict[str, JsonValue]:
        for name in ("_source", "_routing", "_meta"):
            if name in mapping:
                raise ValueError(f"`{name}` cannot be set: documents are found by key and read back whole")
        return mapping

    @property
    def place(self) -> tuple[str, ...]:
        return (urlsplit(self.url).netloc.rpartition("@")[2], self.index)

    def notes(self, document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        yield from (("mapping", what) for what in mapping_notes(self.mapping, document))

    @staticmethod
    def reaches(place: tuple[str, ...], other: tuple[str, ...]) -> bool:
        """A generation of `a` has the name `a-1`."""
        return place[0] == other[0] and re.fullmatch(rf"{re.escape(place[1])}-\d+", other[1]) is not None

    def open(self, context: SinkContext) -> OpenSearchSink:
        return OpenSearchSink(self, context)

    def validate_for(self, context: SinkContext) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9_.-]*", context.pipeline):
            raise Unfit("index", "the pipeline's name becomes part of an index name: use a-z, 0-9, `_`, `.` and `-`")
        try:
            Routing.of_column(self.routing, context.key_columns)
        except ValueError as exc:
            raise Unfit("routing", str(exc)) from None


class OpenSearchSink:
    """Documents in OpenSearch: `_id` is the key's text, or its hash where that cannot be (see `document_id`), `_source`
    the document and nothing else.

    Every write carries its version (`version_type=external`), so the server keeps the newest whatever the order and
    however often it is delivered. A delete leaves its version behind for the horizon (`index.gc_deletes`) - in memory:
    a restart of the server forgets those already flushed, so that in the hour before it only leases hold off a writer
    that was fenced. A replay is right in any case, since the delete comes again after the upsert.

    Writes go through an alias `<index>-<n>-WRITES` of the generation. No index can have a name with capitals, so a
    write to a generation that was deleted fails. Written to `<index>-<n>` it would make the server create an empty one:
    deletes with a version do so even when told `require_alias`.

    The checkpoint is in the hidden index `.driftless-<pipeline>` and names the index it speaks of by its UUID and the
    history of its shards: an index that was recreated, or restored from a snapshot, has no checkpoint.
    """

    def __init__(self, config: Config, context: SinkContext) -> None:
        self._config = config
        self._context = context
        self._server = OpenSearchServer(
            config.url,
            access=Access(config.ca_certs, config.client_cert, config.client_key, config.authorization),
            connections=config.connections,
            request_seconds=config.request_seconds,
            retry_seconds=config.retry_seconds,
        )
        self._routing = Routing.of_column(config.routing, context.key_columns)
        self._readers = ReadersAlias(self._server, config.index, context)
        self._checkpoints = Checkpoints(self._server, context)
        self._faithful = Faithful(self._server, config.index, context, strict=config.mapping.get("dynamic") == "strict")

    # -- the place ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Also refuses a server that is not OpenSearch, and a reader's name that something else holds."""
        self._server.require_opensearch()
        self._readers.holders()
        self._faithful.check()

    def create(self, generation: int) -> None:
        self._readers.holders()
        made = self._server.create(self._name(generation), self._definition(generation))
        if self._mark_of(self._name(generation)) != self._mark(generation):
            raise SinkMisconfigured(
                f"There is an index `{self._name(generation)}` that is not ours",
                hint="Choose another `index` for this follower, or delete that one.",
            )
        self._faithful.check_new(self._name(generation), made=made)
        self._checkpoints.create()

    def rehearse(self) -> None:
        """Makes an index of another name with the same settings and mapping, and deletes it."""
        name, definition = f"{self._config.index}-0-check-{token_hex(4)}", self._definition(0)
        definition["settings"]["hidden"] = True
        try:
            self._server.create(name, {**definition, "aliases": {}})
        finally:
            self._server.call("DELETE", f"/{name}", ok={404})

    def _definition(self, generation: int) -> dict[str, Any]:
        """What the index of a generation is made with."""
        mapping = dict(self._config.mapping)
        settings: dict[str, JsonValue] = {}
        if not mapping:
            mapping["date_detection"] = False
            settings["mapping.ignore_malformed"] = True
        if "number_of_replicas" not in self._config.settings:
            settings["auto_expand_replicas"] = "0-1"
        settings |= self._config.settings
        return {
            "settings": settings | {"gc_deletes": f"{HORIZON_SECONDS}s"} | OVERRIDES,
            "mappings": mapping | {"_meta": {"driftless": self._mark(generation)}, "_routing": ROUTING},
            "aliases": {self._writes(generation): {"is_hidden": True}},
        }

    def promote(self, generation: int, progress: Progress = in_silence) -> None:  # noqa: ARG002
        self._readers.switch(generation)

    def promoted(self) -> int | None:
        return self._readers.generation()

    def drop(self, generation: int, *, also_live: bool = False) -> None:
        mark = self._mark_of(self._name(generation))
        if mark not in (None, self._mark(generation)):
            what = f"The index `{self._name(generation)}` is not ours to drop"
            raise SinkMisconfigured(what, hint="Choose another `index` for this follower, or remove it yourself.")
        if not also_live:
            seen, _ = self._server.call("GET", f"/{self._name(generation)}/_alias/{self._config.index}", ok={404})
            if seen == 200:
                raise drop_of_live(self._context.follower, generation)
        self._server.call("DELETE", f"/{self._name(generation)}", ok={404})
        self._checkpoints.remove(generation)
        if also_live:
            self._checkpoints.remove_index()

    def close(self) -> None:
        self._pool.shutdown()
        del self._pool
        self._server.close()

    # -- writes -------------------------------------------------------------------------------------------------

    def apply(self, generation: int, writes: pa.RecordBatch) -> Applied:
        pieces = list(slices(writes, rows=self._config.request_documents, size=self._config.request_bytes))
        if len(pieces) < 2:
            return sum((self._send(generation, piece) for piece in pieces), Applied())
        sent = [self._pool.submit(self._send, generation, piece) for piece in pieces]
        # Nothing may still be on its way when this returns, whether well or by an error.
        wait(sent)
        return sum((piece.result() for piece in sent), Applied())

    def _send(self, generation: int, writes: pa.RecordBatch) -> Applied:
        done, why, hint = Applied(), "", ""
        for tries in attempts(self._config.retry_seconds):
            try:
                verdict = self._bulk(generation, writes)
            except SinkUnavailable as busy:
                why, hint = str(busy), busy.hint
                continue
            done += Applied(verdict.written, verdict.stale, tuple(verdict.rejected))
            if not verdict.again:
                return done + Applied(retries=tries)
            why, hint = f"{len(verdict.again)} writes were refused for now: {', '.join(sorted(verdict.why))}", ""
            writes = writes.take(pa.array(verdict.again))
        raise SinkUnavailable(f"{why}; tried for {self._config.retry_seconds:g} s", hint=hint)

    def _bulk(self, generation: int, writes: pa.RecordBatch) -> BulkResult:
        # The server waits for a shard half as long as we wait for the server: so it can still say which items it took.
        patience = f"{round(self._config.request_seconds * 500)}ms"
        path = f"/{self._writes(generation)}/_bulk?require_alias=true&timeout={patience}&filter_path={ANSWER}"
        status, answer = self._server.bulk(path, bulk_body(writes, self._routing))
        if status == 200:
            verdict = judge(orjson.loads(answer), writes)
            if verdict.gone:
                raise self._gone(generation, verdict.gone)
            if verdict.forbidden:
                raise SinkMisconfigured(
                    f"OpenSearch forbids writing to `{self._name(generation)}`: {verdict.forbidden}",
                    hint="Look for a block on the index, or for permissions that the user lacks.",
                )
            return verdict
        if status == 404:
            raise self._gone(generation, error_type(answer))
        if writes.num_rows == 1:
            why = "the document is larger than the server takes" if status == TOO_LARGE else error_type(answer)
            return BulkResult(rejected=[reject(writes, 0, why)])
        # The request was refused as a whole, so nothing of it was written: find which part is to blame.
        half = writes.num_rows // 2
        first, second = self._bulk(generation, writes[:half]), self._bulk(generation, writes[half:])
        second.again = [half + place for place in second.again]
        return BulkResult(
            first.written + second.written,
            first.stale + second.stale,
            first.rejected + second.rejected,
            first.again + second.again,
            first.why | second.why,
        )

    # -- reads --------------------------------------------------------------------------------------------------

    def read(self, generation: int, keys: Sequence[str]) -> pa.RecordBatch:
        return read(self._server, self._writes(generation), keys, self._routing)

    def scan(self, generation: int) -> Iterator[pa.RecordBatch]:
        """As of one moment, after a refresh. The key is the `_id`: for a key that is hashed, the hash (`scan_keys`)."""
        alias = self._writes(generation)
        index = self._server.index(alias)
        if index is None:
            raise self._gone(generation, "")
        return scan(self._server, alias, index.shards)

    def scan_keys(self, keys: pa.StringArray) -> pa.StringArray:
        """The `_id` of each: nothing in the index tells the key of one that is hashed."""
        return cast(pa.StringArray, document_ids(keys))

    def count(self, generation: int) -> int:
        """Costs a refresh, which makes a segment of what was written since the last: fit for a poll, not for a loop."""
        self._ask(generation, "POST", "_refresh")
        return int(orjson.loads(self._ask(generation, "GET", "_count"))["count"])

    def _ask(self, generation: int, method: str, what: str) -> str:
        """The answer of a generation's index; raises with what to do where there is none."""
        status, answer = self._server.call(method, f"/{self._writes(generation)}/{what}", ok={404})
        if status == 404:
            raise self._gone(generation, error_type(answer))
        return answer

    # -- the checkpoint -----------------------------------------------------------------------------------------

    def load(self, generation: int) -> str | None:
        return self._checkpoints.load(generation, self._writes(generation))

    def save(self, generation: int, checkpoint: str, *, expected: str | None) -> bool:
        return self._checkpoints.save(generation, self._writes(generation), checkpoint, expected=expected)

    # -- names --------------------------------------------------------------------------------------------------

    def _name(self, generation: int) -> str:
        return f"{self._config.index}-{generation}"

    def _writes(self, generation: int) -> str:
        return f"{self._config.index}-{generation}-WRITES"

    def _mark(self, generation: int) -> dict[str, JsonValue]:
        return {"pipeline": self._context.pipeline, "follower": self._context.follower, "generation": generation}

    def _mark_of(self, name: str) -> object:
        status, answer = self._server.call("GET", f"/{name}/_mapping", ok={404})
        if status == 404:
            return None
        (index,) = orjson.loads(answer).values()
        meta = index["mappings"].get("_meta")
        return meta.get("driftless", "") if isinstance(meta, dict) else ""

    def _gone(self, generation: int, why: str) -> SinkMisconfigured:
        return SinkMisconfigured(
            f"The index `{self._name(generation)}` is gone or closed ({why})",
            hint=f"Someone removed it under a running follower. Rebuild: driftless rebuild {self._context.follower}",
        )

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._config.connections, thread_name_prefix="bulk")
