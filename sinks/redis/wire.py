"""The one door to a Redis server: prepared commands, scripts, and what each failure means for the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha1
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.compute as pc
import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from driftless.config.address import shown_url
from driftless.errors import SinkError, SinkMisconfigured, SinkUnavailable
from driftless.transport.tls import CERTIFICATES, refusal
from sinks import client_tls
from sinks._arrow import length, text
from sinks._retry import attempts

T = TypeVar("T")

# What passes by itself or by the operator's hand: starting, failing over, a long script, a full disk.
_PASSING = {"LOADING", "BUSY", "TRYAGAIN", "MASTERDOWN", "READONLY", "MISCONF", "NOREPLICAS", "CLUSTERDOWN"}
# Names that the server looks at in one step: a fraction of a millisecond.
_SCAN_STEP = 1000
_ACCESS = {"NOAUTH", "WRONGPASS", "NOPERM"}
_IN_SCRIPT = "can't run this command"
"""What Redis says of a script that gives a command for which its user lacks the right."""
ACCESS_HINT = "Check the user, its password and its permissions: docs/security.md lists what it needs."


class Refused(SinkMisconfigured):
    """One of our scripts says `GENERATION ...`: things are not as the caller believed."""

    HINT = "Another process promotes or drops generations of this follower: see `driftless status`, then start again."


class Script:
    """Lua files beside this one, put together, and called by their hash."""

    def __init__(self, *files: str) -> None:
        self.text = b"".join((Path(__file__).parent / "lua" / file).read_bytes() for file in files)
        self.sha = sha1(self.text, usedforsecurity=False).hexdigest()


_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


class RedisServer:
    """Sends commands over connections that are kept. redis-py's own retries are off: they would know no bound."""

    def __init__(
        self,
        url: str,
        *,
        certificates: tuple[str | None, str | None, str | None] = (None, None, None),
        request_seconds: float,
        retry_seconds: float,
    ) -> None:
        """`certificates`: files, for `rediss`: those to trust, the client's own, and its key."""
        self._url = url
        self.address = shown_url(url)
        self._certificates = certificates
        self._request_seconds = request_seconds
        self.retry_seconds = retry_seconds

    @cached_property
    def client(self) -> Any:
        """redis-py's client, whose answers have no useful types. For calls inside `ask` and `once` only."""
        if self._url.startswith("rediss://"):
            client_tls(*self._certificates)  # what redis-py says of a file does not name it
        return redis.Redis.from_url(
            self._url,
            socket_timeout=self._request_seconds,
            socket_connect_timeout=min(10.0, self._request_seconds),
            retry=Retry(NoBackoff(), 0),
            **{name: path for name, path in zip(_FILES, self._certificates, strict=True) if path},
        )

    def call(self, *command: Any) -> Any:
        """A command that is safe to repeat, tried again while what fails may pass."""
        return self.ask(lambda client: client.execute_command(*command))

    def ask(self, question: Callable[[Any], T]) -> T:
        """The same for something made of several commands."""
        why: SinkUnavailable | None = None
        for _ in attempts(self.retry_seconds):
            try:
                return self.once(question)
            except SinkUnavailable as busy:
                why = busy
        raise SinkUnavailable(f"{why}; tried for {self.retry_seconds:g} s", hint=why.hint if why else "") from why

    def once(self, question: Callable[[Any], T]) -> T:
        try:
            return question(self.client)
        except (exceptions.RedisError, OSError) as exc:
            raise meaning(exc, self.address) from exc

    @contextmanager
    def connection(self) -> Iterator[Any]:
        """One connection, to send prepared commands and read their answers in order. Thrown away on any error."""
        pool = self.client.connection_pool
        try:
            connection = pool.get_connection()
            try:
                yield connection
            except BaseException:
                connection.disconnect()
                raise
            finally:
                pool.release(connection)
        except (exceptions.RedisError, OSError) as exc:
            raise meaning(exc, self.address) from exc

    def scan(self, prefix: str, *, page: int) -> Iterator[list[str]]:
        """All names that start so, in pages of this size; one that is there from beginning to end is given, at times
        twice. The server goes through all its names, so few of a step may be ours: pages are filled from several.

        A name that is no UTF-8 is somebody else's, whatever it starts with: it is left out.
        """
        pattern = "".join(f"\\{char}" if char in "*?[]\\" else char for char in prefix) + "*"
        cursor, names = None, list[str]()
        while cursor != 0:
            cursor, found = self.call("SCAN", cursor or 0, "MATCH", pattern, "COUNT", _SCAN_STEP)
            names += [name for raw in found if (name := _text(raw)) is not None]
            while len(names) >= page or (names and cursor == 0):
                yield names[:page]
                del names[:page]

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str]) -> Any:
        """Run a script that is safe to repeat."""

        def call(client: Any) -> Any:
            try:
                return client.evalsha(script.sha, len(keys), *keys, *args)
            except exceptions.NoScriptError:
                return client.eval(script.text, len(keys), *keys, *args)

        return self.ask(call)

    def close(self) -> None:
        self.client.close()
        del self.client


def _text(name: bytes) -> str | None:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None


def meaning(exc: Exception, address: str = "") -> SinkError:
    """What the program does next. Redis's own messages name commands and settings, never values."""
    text = str(exc)
    code = getattr(exc, "status_code", None) or text.partition(" ")[0]
    if _IN_SCRIPT in text:
        code = "NOPERM"
    if isinstance(exc, exceptions.AuthenticationError) or code in _ACCESS:
        return SinkMisconfigured(f"Redis denies access: {code}", hint=ACCESS_HINT)
    if code == "OOM":
        return SinkUnavailable("Redis is full (maxmemory)", hint="Give it more memory; writing then resumes by itself.")
    if code in _PASSING:
        what = f"Redis cannot do this now: {code} {text.removeprefix(code)}"
        return SinkUnavailable(what, hint="Its log says why; it is tried again by itself.")
    if isinstance(exc, (exceptions.ConnectionError, exceptions.TimeoutError, OSError)):
        if address.startswith("rediss") and (refused := refusal(text)):
            return SinkMisconfigured(f"Redis at {address}: {refused}", hint=f"{CERTIFICATES}.")
        where = f" at {address}" if address else ""
        hint = "Is the server running, and is `url` right?"
        return SinkUnavailable(f"Redis{where} does not answer: {type(exc).__name__}", hint=hint)
    if isinstance(exc, exceptions.InvalidResponse):
        return SinkMisconfigured(f"The server at {address} is not Redis", hint="Give the `url` of a Redis server.")
    if code == "GENERATION":
        return Refused(text)
    what = f"Redis{f' at {address}' * bool(address)} refuses: {text}"
    return SinkMisconfigured(what, hint="Correct that in the server, or give the `url` of another one.")


def command(*parts: str | bytes) -> bytes:
    """The start of a prepared command, or all of a short one; `$` lengths are bytes."""
    return b"".join(_word(part.encode() if isinstance(part, str) else part) for part in parts)


def _word(word: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(word), word)


def words(before: str, texts: Any, after: str = "") -> tuple[Any, ...]:
    """A column of texts, each as a word of a prepared command; to be joined."""
    around = len(before.encode()) + len(after.encode())
    return "$", text(pc.add(length(texts), around)), f"\r\n{before}", texts, f"{after}\r\n"
