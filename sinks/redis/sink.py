"""Redis: a document per key, under the name that the application asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from secrets import token_hex
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

import pyarrow as pa
from pydantic import Field, field_validator, model_validator
from redis.connection import parse_url

from driftless.config.address import certificates_problem, url_problem
from driftless.config.duration import Duration, milliseconds
from driftless.errors import SinkMisconfigured
from driftless.sink import Applied, Progress, SinkContext, in_silence
from sinks import ACCESS, SinkConfig, Unfit
from sinks.redis.format import Format, HashOfColumns, JsonText
from sinks.redis.generations import Generations
from sinks.redis.names import Names, Template, columns_in
from sinks.redis.read import GenerationReader
from sinks.redis.wire import ACCESS_HINT, RedisServer, Script
from sinks.redis.write import Writer

_LOAD, _SAVE = (Script("instance.lua", file) for file in ("load.lua", "save.lua"))
_REHEARSE = Script("rehearse.lua")


class Config(SinkConfig):
    """A Redis server, 6.2 or newer, without eviction."""

    url: Annotated[str, ACCESS] = Field(
        repr=False,
        description="`redis://user:password@host:6379/0`, or `rediss://` for TLS.",
        examples=["rediss://shop:secret@cache:6379/0"],
    )
    key: str = Field(
        description="Name readers use for a document, with every key column once: `product:{id}`. In a value, `%`, "
        "`{`, `}`, `:`, control characters and what separates two columns are written as `%XX`. Names of this form "
        "belong to this follower alone.",
        examples=["product:{id}"],
    )
    format: Literal["json", "hash"] = Field(
        default="json",
        description="`json`: `GET` gives the document as JSON text. `hash`: `HGETALL` gives a field for each column, "
        "texts as they are, everything else as its JSON text; null has no field.",
        examples=["hash"],
    )
    ttl: Duration | None = Field(
        default=None,
        description="How long after its last change was applied a document expires (`30m`), up to a thousandth "
        "later. A document that has expired is no difference. Left out: never.",
        examples=["30m"],
    )
    ca_certs: Annotated[str | None, ACCESS] = Field(
        default=None, description="File of certificates to trust for `rediss`.", examples=["/etc/ssl/cache-ca.pem"]
    )
    client_cert: Annotated[str | None, ACCESS] = Field(
        default=None, description="File of the client certificate for `rediss`.", examples=["/etc/ssl/shop.pem"]
    )
    client_key: Annotated[str | None, ACCESS] = Field(
        default=None,
        description="File of its key; not needed where `client_cert` holds it too.",
        examples=["/etc/ssl/shop.key"],
    )

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        like = "redis://user:password@host:6379/0"
        if not url.startswith("unix://") and (problem := url_problem(url, ("redis", "rediss"), like)):
            raise ValueError(problem)
        try:
            parse_url(url)  # type: ignore[no-untyped-call]
        except ValueError:  # its text quotes parts of the URL
            raise ValueError(f"must look like `{like}`") from None
        return url

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if problem := certificates_problem(self.url, "rediss", self):
            raise ValueError(problem)
        return self

    @field_validator("key")
    @classmethod
    def _is_template(cls, key: str) -> str:
        """Whatever the table's key is; that it names those columns, `validate_for` sees."""
        Template.parse(key, columns_in(key) or ("id",))
        return key

    @field_validator("ttl")
    @classmethod
    def _is_seconds(cls, ttl: str | None) -> str | None:
        if ttl is not None and (milliseconds(ttl) < 1000 or milliseconds(ttl) % 1000):
            raise ValueError("must be whole seconds, and at least one")
        return ttl

    @property
    def expires(self) -> bool:
        return self.ttl is not None

    @property
    def keeps_text(self) -> bool:
        return self.format == "json"

    @property
    def place(self) -> tuple[str, ...]:
        """Names that begin alike: `product:{id}` and `product:{sku}` would meet."""
        parts = urlsplit(self.url)
        columns = columns_in(self.key)
        return (parts.netloc.rpartition("@")[2], parts.path.strip("/") or "0", Template.parse(self.key, columns).prefix)

    @staticmethod
    def reaches(place: tuple[str, ...], other: tuple[str, ...]) -> bool:
        """Names that start with `a:b:` start with `a:`."""
        return place[:-1] == other[:-1] and other[-1].startswith(place[-1])

    def open(self, context: SinkContext) -> RedisSink:
        return RedisSink(self, context)

    def validate_for(self, context: SinkContext) -> None:
        try:
            Template.parse(self.key, context.key_columns)
        except ValueError as exc:
            raise Unfit("key", str(exc)) from None


class RedisSink:
    """Documents in Redis: `GET product:42` is the document as JSON text and nothing else; see `HashOfColumns` for
    `format: hash`.

    Beside each document, in the same cluster slot, is its version under a name of ours. One script compares and writes
    both, so whatever the order and however often writes are delivered, the newest stays. The version of a key that was
    deleted, or whose document expired, is kept for the horizon after that.

    The first generation is written straight under the readers' names: a cache fills as it goes, and a name it does not
    have yet is a miss. A later one is staged under shadow names in the same slots, and `promote` switches: what
    somebody else has put under a name of this follower's form does not survive that.

    The checkpoint is in the same Redis, so a server that forgot documents (restarted without its data, restored,
    flushed) has forgotten or turned back the checkpoint with them. One that was restarted or failed over may have lost
    what it was given after the checkpoint that it still has, so another instance is like another checkpoint. `apply`
    then goes on; `save` says False until the next `load`.

    A full server (`maxmemory`) takes deletes, switches and drops, and no document, until there is memory again.
    """

    def __init__(self, config: Config, context: SinkContext) -> None:
        template = Template.parse(config.key, context.key_columns)
        form: Format = JsonText() if config.format == "json" else HashOfColumns()
        self._names = Names(context.pipeline, context.follower)
        self._prefix = template.prefix
        self._server = RedisServer(
            config.url,
            certificates=(config.ca_certs, config.client_cert, config.client_key),
            request_seconds=config.request_seconds,
            retry_seconds=config.retry_seconds,
        )
        ttl = milliseconds(config.ttl) // 1000 if config.ttl else 0
        self._generations = Generations(self._server, self._names, template, context)
        self._reader = GenerationReader(self._server, self._names, template, form, self._generations)
        self._writer = Writer(self._server, self._names, template, form, ttl, self._generations)
        self._instances: dict[int, str] = {}
        """Of the server: generation -> the one that its checkpoint was loaded from."""

    # -- the place ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Also refuses a server that evicts: a version or a delete that it forgot would let an older write win."""
        info = self._server.once(lambda client: client.execute_command("INFO"))
        if not isinstance(info, dict) or not {"redis_version", "maxmemory_policy"} <= info.keys():
            what = f"The server at {self._server.address} is not a Redis that keeps documents"
            raise SinkMisconfigured(what, hint="Give the `url` of a Redis server, not of a Sentinel.")
        if tuple(map(int, info["redis_version"].split(".")[:2])) < (6, 2):
            raise SinkMisconfigured(f"Redis {info['redis_version']} is too old", hint="Use 6.2 or newer.")
        if info.get("cluster_enabled"):
            raise SinkMisconfigured(
                "Redis Cluster cannot be written to yet", hint="Use a single server, with replicas."
            )
        if info["maxmemory_policy"] != "noeviction":
            raise SinkMisconfigured(
                f"Redis has maxmemory-policy {info['maxmemory_policy']}: it would throw documents and versions away",
                hint="Run `CONFIG SET maxmemory-policy noeviction`, and set it in redis.conf.",
            )
        self._generations.check()

    def rehearse(self) -> None:
        """Writes and deletes, in one step, a name of ours and one of the form that readers use; tries all rights."""
        token = token_hex(4)
        names = f"{self._names.generation(0)}:{token}", f"{self._prefix}{token}"
        answer = self._server.once(lambda client: client.eval(_REHEARSE.text, len(names), *names))
        if answer:
            said = ", ".join(sorted({command.decode() for command in answer})).lower()
            raise SinkMisconfigured(f"Redis denies access: the user may not give {said}", hint=ACCESS_HINT)

    def create(self, generation: int) -> None:
        """Also raises where a copy beside the live generation would not fit into memory."""
        self._generations.create(generation)

    def promote(self, generation: int, progress: Progress = in_silence) -> None:
        """In slices, when another generation is under the readers' names; each document in one step."""
        self._generations.promote(generation, progress)

    def promoted(self) -> int | None:
        return self._generations.promoted()

    def drop(self, generation: int, *, also_live: bool = False) -> None:
        """In pages; may be given again after a crash. Writers are held off first.

        What is under the readers' names is refused also before the first `promote`: a cache is read as it fills.
        """
        self._generations.drop(generation, also_live=also_live)

    def close(self) -> None:
        self._server.close()

    # -- writes and reads ---------------------------------------------------------------------------------------

    def apply(self, generation: int, writes: pa.RecordBatch) -> Applied:
        return self._writer.apply(generation, writes)

    def read(self, generation: int, keys: Sequence[str]) -> pa.RecordBatch:
        return self._reader.read(generation, keys)

    def scan(self, generation: int) -> Iterator[pa.RecordBatch]:
        """Every document under a name of this follower's form, also one that somebody else put there (version 0).

        A document that is there from beginning to end is given, now and then twice; one that comes or goes meanwhile
        may or may not be.
        """
        return self._reader.scan(generation)

    def scan_keys(self, keys: pa.StringArray) -> pa.StringArray:
        """The keys themselves: a name, or what is kept beside it, tells the whole key."""
        return keys

    def count(self, generation: int) -> int:
        """One look at a counter that every write keeps up; it does not see what others put or deleted."""
        return self._generations.count(generation)

    # -- the checkpoint -----------------------------------------------------------------------------------------

    def load(self, generation: int) -> str | None:
        instance, found = self._server.run(_LOAD, [self._names.generation(generation)], [])
        self._instances[generation] = str(instance, "ascii")
        return None if found is None else str(found, "utf-8", "replace")

    def save(self, generation: int, checkpoint: str, *, expected: str | None) -> bool:
        args = [checkpoint, self._instances.get(generation, ""), *(() if expected is None else (expected,))]
        return bool(self._server.run(_SAVE, [self._names.generation(generation)], args))
