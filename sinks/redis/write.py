"""Writing to Redis: a batch becomes calls of one script, several of them on their way at once."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from redis.exceptions import ResponseError

from driftless.errors import SinkUnavailable
from driftless.sink import Applied, Rejected
from sinks import HORIZON_SECONDS
from sinks._arrow import Texts, join, slices, text
from sinks._retry import attempts
from sinks.redis.format import Format
from sinks.redis.generations import Generations, ReadersView
from sinks.redis.names import Names, Template
from sinks.redis.wire import RedisServer, Script, command, meaning, words

CAS = Script("tried.lua", "move.lua", "cas.lua")
# Writes in one call of the script: no other client of the server waits longer than about a millisecond.
_CALL_ROWS, _CALL_BYTES = 250, 500_000
# Writes whose commands are prepared and sent while the server works on those before.
_AHEAD_ROWS, _AHEAD_BYTES = 2_500, 5_000_000
_SHARE = 1000
"""A document's end is rounded up to this part of its time to live, so that few different ends are counted."""


class Writer:
    """Gives writes again while what fails may pass; a call of the script is all or nothing."""

    def __init__(
        self, server: RedisServer, names: Names, template: Template, form: Format, ttl: int, generations: Generations
    ) -> None:
        self._server = server
        self._names = names
        self._template = template
        self._format = form
        self._lasts = (str(ttl), str(max(1, ttl // _SHARE)))
        self._generations = generations
        self._readers_view: ReadersView | None = None  # as last seen; the script checks it with every call

    def apply(self, generation: int, writes: pa.RecordBatch) -> Applied:
        writes, refused = self._format.pack(writes)
        done = Applied(rejected=refused)
        left = deque(slices(writes, rows=_AHEAD_ROWS, size=_AHEAD_BYTES))
        if not left:
            return done
        why = SinkUnavailable("")
        for tries in attempts(self._server.retry_seconds):
            turn = _Turn(left)
            try:
                self._turn(generation, turn)
            except SinkUnavailable as busy:
                turn.failed = busy
            done += turn.applied()
            left = turn.left()
            if not left:
                return done + Applied(retries=tries)
            why = turn.failed or why
        raise SinkUnavailable(f"{why}; tried for {self._server.retry_seconds:g} s", hint=why.hint) from why

    def look(self) -> None:
        """Find out which generation is under the readers' names."""
        self._readers_view = self._server.once(self._generations.readers_view)

    def calls(self, generation: int, writes: pa.RecordBatch) -> list[Call]:
        """The calls that these writes become, for where the generation was last seen."""
        where, places = (self._readers_view or ReadersView()).of(generation)
        names = self._template.names(writes.column("key"))
        around = self._names.around(*places)
        keys = Texts(join(*(word for before, after in around for word in words(before, names, after))))
        documents = writes.column("document")
        values = Texts(
            join(*words("", self._records(generation, writes)), *words("", pc.fill_null(documents, pa.scalar(""))))
        )
        fixed = command(self._names.follower, self._names.generation(generation))
        settings = (str(generation), where, str(HORIZON_SECONDS), self._format.name, *self._lasts)
        calls, start = [], 0
        for piece in slices(writes, rows=_CALL_ROWS, size=_CALL_BYTES):
            stop, count = start + piece.num_rows, 2 + len(around) * piece.num_rows
            words_in_all = 3 + count + len(settings) + 2 * piece.num_rows
            head = b"*%d\r\n" % words_in_all + command("EVALSHA", CAS.sha, str(count))
            # In pieces: putting them together would cost as much as making them.
            calls.append(Call(piece, (head + fixed, keys[start:stop], command(*settings), values[start:stop])))
            start = stop
        return calls

    def _records(self, generation: int, writes: pa.RecordBatch) -> Any:
        """The version records; see cas.lua. Behind the blank: the key's text, if the name does not tell it, and the
        document's shape, if it has one.
        """
        deleted: Any = pc.is_null(writes.column("document"))
        digits = pc.ascii_lpad(text(writes.column("version")), 19, "0")
        about: list[Any] = [writes.column("key")] if len(self._template.columns) > 1 else []
        if "shape" in writes.schema.names:
            about.append(writes.column("shape"))
        blank = (" ", *about) if about else ()
        return join(digits, pc.if_else(deleted, pa.scalar("-"), pa.scalar("+")), str(generation), *blank)

    def _turn(self, generation: int, turn: _Turn) -> None:
        """Send all that is left once. The server always has a group of calls to work on while we prepare the next."""
        if self._readers_view is None:
            self.look()
        with self._server.connection() as connection:
            while turn.unsent:
                calls = self.calls(generation, turn.unsent[0])
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
            self._server.once(lambda client: client.script_load(CAS.text))
        elif said.startswith("GENERATION moved"):
            self.look()
        elif said.startswith("GENERATION missing"):
            self._generations.revive(generation)
            self.look()
        else:
            problem = meaning(exc)
            if not isinstance(problem, SinkUnavailable):
                raise problem from exc
            return problem
        return SinkUnavailable(said)


@dataclass(frozen=True)
class Call:
    """Some writes, and the command that makes them."""

    writes: pa.RecordBatch
    command: tuple[bytes | memoryview, ...]


class _Turn:
    """One time through what is left of a batch: what was sent and is not answered yet, and what became of the rest."""

    def __init__(self, left: deque[pa.RecordBatch]) -> None:
        self.unsent = left
        self.sent: deque[Call] = deque()
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
