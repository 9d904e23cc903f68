"""Redis: a document per key, as JSON text under the name that the application asks for."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator
from redis.exceptions import ResponseError

from driftless.errors import SinkMisconfigured, SinkUnavailable
from driftless.sink import Applied, Rejected, SinkContext
from sinks import HORIZON_SECONDS, SinkConfig
from sinks._arrow import Texts, batch, join, slices, text
from sinks._redis_names import CLAIMS, Names, Template
from sinks._redis_switch import switch
from sinks._redis_wire import Script, Server, command, meaning, words
from sinks._retry import attempts

_CAS, _SAVE = Script("cas.lua"), Script("save.lua")
# Writes in one call of the script: no other client of the server waits longer than about a millisecond.
_CALL_ROWS, _CALL_BYTES = 250, 500_000
# Writes whose commands are prepared and sent while the server works on those before.
_AHEAD_ROWS, _AHEAD_BYTES = 2_500, 5_000_000
_PAGE = 1000


class Config(SinkConfig):
    """A Redis server, 6.2 or newer, without eviction."""

    url: str = Field(repr=False, description="`redis://user:password@host:6379/0`, or `rediss://` for TLS.")
    key: str = Field(
        description="Name readers use for a document, with every key column once: `product:{id}`. In a value, `%`, "
        "`{`, `}`, `:`, control characters and what separates two columns are written as `%XX`. Names of this form "
        "belong to this follower alone."
    )
    ca_certs: str | None = Field(default=None, description="File of certificates to trust for `rediss`.")

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        if urlsplit(url).scheme not in ("redis", "rediss", "unix"):
            raise ValueError("must look like `redis://user:password@host:6379/0`")
        return url

    def open(self, context: SinkContext) -> RedisSink:
        return RedisSink(self, context)

    def validate_for(self, context: SinkContext) -> None:
        Template.parse(self.key, context.key_columns)


class RedisSink:
    """Documents in Redis: `GET product:42` is the document as JSON text and nothing else.

    Beside each document, in the same cluster slot, is its version under a name of ours. One script compares and writes
    both, so whatever the order and however often writes are delivered, the newest stays. A deleted key's version is
    kept for the horizon.

    The first generation is written straight under the readers' names: a cache fills as it goes, and a name it does not
    have yet is a miss. A later one is staged under shadow names in the same slots, and `promote` switches.

    The checkpoint is in the same Redis, so a server that forgot documents (restarted without its data, restored, failed
    over, flushed) has forgotten or turned back the checkpoint with them. `apply` then goes on; `save` says False.
    """

    def __init__(self, config: Config, context: SinkContext) -> None:
        self._config = config
        self._context = context
        self._template = Template.parse(config.key, context.key_columns)
        self._names = Names(context.pipeline, context.follower)
        self._server = Server(
            config.url,
            ca_certs=config.ca_certs,
            request_seconds=config.request_seconds,
            retry_seconds=config.retry_seconds,
        )
        self._live: int | None = None  # as last seen; the script checks it with every call

    # -- the place ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Also refuses a server that evicts: a version or a delete that it forgot would let an older write win."""
        info = self._server.call("INFO")
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

    def create(self, generation: int) -> None:
        self._claim()

        def begin(client: Any) -> None:
            with client.pipeline(transaction=True) as both:
                both.delete(self._names.dropped(generation))
                both.hsetnx(self._names.follower, "live", generation)
                both.hsetnx(self._names.generation(generation), "documents", 0)
                both.execute()

        self._server.ask(begin)

    def promote(self, generation: int) -> None:
        """In slices, when another generation is under the readers' names; see `switch`."""
        self._settle()
        switch(self._server, self._names, generation)

    def promoted(self) -> int | None:
        found = self._server.call("HGET", self._names.follower, "promoted")
        return None if found is None else int(found)

    def drop(self, generation: int) -> None:
        """In pages; may be given again after a crash. Writers are held off first."""
        self._settle()
        place = self._place(generation)

        def hold_off(client: Any) -> None:
            with client.pipeline(transaction=True) as both:
                both.set(self._names.dropped(generation), "", ex=HORIZON_SECONDS)
                both.delete(self._names.generation(generation))
                both.execute()

        self._server.ask(hold_off)
        before, after = self._names.version(place)
        around = self._names.document(place)
        for page in self._server.scan(before, page=_PAGE):
            names = [name[len(before) : -len(after)] for name in page]
            both = page + [around[0] + name + around[1] for name in names]
            self._server.call("UNLINK", *both)
        if place is None:
            self._server.call("HDEL", self._names.follower, "live", "promoted")
            self._server.call("HDEL", CLAIMS, self._template.prefix)
            self._live = None

    def close(self) -> None:
        self._server.close()

    def _place(self, generation: int) -> int | None:
        """None for the generation under the readers' names, else its number: what `Names` takes."""
        return self._server.ask(lambda client: self._look(client, generation))

    def _claim(self) -> None:
        """Two followers that wrote the same names would undo each other's work for ever."""
        mine = self._template.prefix
        for name, owner in self._server.call("HGETALL", CLAIMS).items():
            start, follower = name.decode(), owner.decode()
            if follower != self._names.follower and (start.startswith(mine) or mine.startswith(start)):
                raise SinkMisconfigured(
                    f"Names that start with `{mine}` would meet those of another follower, `{follower}`, `{start}`",
                    hint="Give each follower a `key` with a start of its own, or another database of the server.",
                )
        self._server.call("HSET", CLAIMS, mine, self._names.follower)

    def _settle(self) -> None:
        """Finish a switch that crashed."""
        begun = self._server.call("HGET", self._names.follower, "switching")
        if begun:
            switch(self._server, self._names, int(begun))

    def _look(self, client: Any, generation: int) -> int | None:
        live, switching = client.hmget(self._names.follower, "live", "switching")
        if switching:
            raise SinkUnavailable(f"`{self._context.follower}` is being switched to generation {int(switching)}")
        self._live = None if live is None else int(live)
        return None if self._live == generation else generation

    # -- writes -------------------------------------------------------------------------------------------------

    def apply(self, generation: int, writes: pa.RecordBatch) -> Applied:
        done = Applied()
        left = deque(slices(writes, rows=_AHEAD_ROWS, size=_AHEAD_BYTES))
        if not left:
            return done
        why = SinkUnavailable("")
        for _ in attempts(self._config.retry_seconds):
            turn = _Turn(left)
            try:
                self._turn(generation, turn)
            except SinkUnavailable as busy:
                turn.failed = busy
            done += turn.applied()
            left = turn.left()
            if not left:
                return done
            why = turn.failed or why
        raise SinkUnavailable(f"{why}; gave up after {self._config.retry_seconds:g} s", hint=why.hint) from why

    def _turn(self, generation: int, turn: _Turn) -> None:
        """Send all that is left once. The server always has a group of calls to work on while we prepare the next."""
        if self._live is None:
            self._server.once(lambda client: self._look(client, generation))
        with self._server.connection() as connection:
            while turn.unsent:
                calls = self._calls(generation, turn.unsent[0])
                connection.send_packed_command(chain.from_iterable(call.command for call in calls), check_health=False)
                turn.unsent.popleft()
                before = len(turn.sent)
                turn.sent.extend(calls)
                self._hear(generation, connection, turn, before)
            self._hear(generation, connection, turn, len(turn.sent))

    def _hear(self, generation: int, connection: Any, turn: _Turn, answers: int) -> None:
        for _ in range(answers):
            try:
                turn.judge(connection.read_response().decode())
            except ResponseError as exc:
                # The answers to the other calls still come: read on, and give this one call again.
                turn.put_back(self._cure(generation, exc))

    def _cure(self, generation: int, exc: ResponseError) -> SinkUnavailable:
        """Do what makes a refused call worth giving again, or raise."""
        said = str(exc)
        if getattr(exc, "status_code", "") == "NOSCRIPT":
            self._server.once(lambda client: client.script_load(_CAS.text))
        elif said.startswith("GENERATION moved"):
            self._server.once(lambda client: self._look(client, generation))
        elif said.startswith("GENERATION missing"):
            if self._server.call("EXISTS", self._names.dropped(generation)):
                raise SinkMisconfigured(
                    f"Generation {generation} of `{self._context.follower}` was dropped",
                    hint="Another runner dropped it while this one still wrote to it: stop this one.",
                ) from exc
            self.create(generation)  # the server lost its data: `save` will say so
            self._server.once(lambda client: self._look(client, generation))
        elif not said.startswith("GENERATION switching"):
            problem = meaning(exc)
            if not isinstance(problem, SinkUnavailable):
                raise problem from exc
            return problem
        return SinkUnavailable(said)

    def _calls(self, generation: int, writes: pa.RecordBatch) -> list[_Call]:
        place = None if self._live == generation else generation
        names = self._template.names(writes.column("key"))
        document, version = self._names.document(place), self._names.version(place)
        keys = Texts(join(*words(document[0], names, document[1]), *words(version[0], names, version[1])))
        documents = writes.column("document")
        deleted: Any = pc.is_null(documents)
        digits = pc.ascii_lpad(text(writes.column("version")), 19, "0")
        records = join(digits, pc.if_else(deleted, pa.scalar("-"), pa.scalar("+")), str(generation))
        if len(self._context.key_columns) > 1:
            records = join(records, " ", writes.column("key"))
        values = Texts(join(*words("", records), *words("", pc.fill_null(documents, pa.scalar("")))))
        fixed = command(self._names.follower, self._names.generation(generation))
        settings = command(str(generation), "live" if place is None else "shadow", str(HORIZON_SECONDS))
        calls, start = [], 0
        for piece in slices(writes, rows=_CALL_ROWS, size=_CALL_BYTES):
            stop, count = start + piece.num_rows, 2 * piece.num_rows
            head = b"*%d\r\n" % (3 + 2 + count + 3 + count) + command("EVALSHA", _CAS.sha, str(2 + count))
            # In pieces: putting them together would cost as much as making them.
            calls.append(_Call(piece, (head + fixed, keys[start:stop], settings, values[start:stop])))
            start = stop
        return calls

    # -- reads --------------------------------------------------------------------------------------------------

    def read(self, generation: int, keys: Sequence[str]) -> pa.RecordBatch:
        rows: list[tuple[str, int, str]] = []
        keys = list(dict.fromkeys(keys))
        place = self._place(generation)
        for start in range(0, len(keys), _PAGE):
            page = keys[start : start + _PAGE]
            names = self._template.names(pa.array(page, pa.string())).to_pylist()
            for key, (document, version, _) in zip(page, self._pairs(place, names), strict=True):
                if document is not None:
                    rows.append((key, version, document))
        return batch(rows)

    def scan(self, generation: int) -> Iterator[pa.RecordBatch]:
        """Every document under a name of this follower's form, also one that somebody else put there (version 0).

        A document that is there from beginning to end is given, now and then twice; one that comes or goes meanwhile
        may or may not be.
        """
        place = self._place(generation)
        before, after = self._names.document(place)
        for page in self._server.scan(before + self._template.prefix, page=_PAGE):
            names = [name[len(before) : len(name) - len(after)] for name in page]
            known = [(name, key) for name in names if (key := self._template.key(name)) is not None]
            pairs = self._pairs(place, [name for name, _ in known])
            rows = [
                (stored_key or key, version, document)
                for (_, key), (document, version, stored_key) in zip(known, pairs, strict=True)
                if document is not None
            ]
            if rows:
                yield batch(rows)

    def count(self, generation: int) -> int:
        """One look at a counter that every write keeps up; it does not see what others put or deleted."""
        found = self._server.call("HGET", self._names.generation(generation), "documents")
        return int(found or 0)

    def _pairs(self, place: int | None, names: Sequence[str]) -> Iterator[tuple[str | None, int, str]]:
        """Document, version and the key's text of each name; documents and versions as of the same moment."""
        if not names:
            return
        around, version = self._names.document(place), self._names.version(place)
        wanted = [around[0] + name + around[1] for name in names] + [version[0] + name + version[1] for name in names]
        found = self._server.call("MGET", *wanted)
        for document, record in zip(found[: len(names)], found[len(names) :], strict=True):
            stored = (record or b"").decode()
            yield document if document is None else document.decode(), int(stored[:19] or 0), stored.partition(" ")[2]

    # -- the checkpoint -----------------------------------------------------------------------------------------

    def load(self, generation: int) -> str | None:
        found = self._server.call("HGET", self._names.generation(generation), "checkpoint")
        return None if found is None else str(found, "utf-8")

    def save(self, generation: int, checkpoint: str, *, expected: str | None) -> bool:
        args = [checkpoint] if expected is None else [checkpoint, expected]
        return bool(self._server.run(_SAVE, [self._names.generation(generation)], args))


@dataclass(frozen=True)
class _Call:
    writes: pa.RecordBatch
    command: tuple[bytes | memoryview, ...]


class _Turn:
    """One time through what is left of a batch: what was sent and is not answered yet, and what became of the rest."""

    def __init__(self, left: deque[pa.RecordBatch]) -> None:
        self.unsent = left
        self.sent: deque[_Call] = deque()
        self.failed: SinkUnavailable | None = None
        self._again: list[pa.RecordBatch] = []
        self._letters: Counter[str] = Counter()
        self._rejected: list[Rejected] = []

    def judge(self, letters: str) -> None:
        writes = self.sent.popleft().writes
        self._letters.update(letters)
        if "x" in letters:
            keys, versions = writes.column("key"), writes.column("version")
            for place in [place for place, letter in enumerate(letters) if letter == "x"]:
                why = "WRONGTYPE: the name is held by something that is not a document"
                self._rejected.append(Rejected(keys[place].as_py(), versions[place].as_py(), why))

    def put_back(self, why: SinkUnavailable) -> None:
        self._again.append(self.sent.popleft().writes)
        self.failed = why

    def applied(self) -> Applied:
        return Applied(self._letters["w"], self._letters["s"], tuple(self._rejected))

    def left(self) -> deque[pa.RecordBatch]:
        return deque([*self._again, *(call.writes for call in self.sent), *self.unsent])
