"""The references: a follower's very writes, prepared beforehand, sent by the barest client of each store."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from http.client import HTTPConnection
from urllib.parse import urlsplit

import orjson
import pyarrow as pa

from bench.rows import Change
from driftless.sink import WRITES
from driftless.version import make_version
from jobs.follow.apply import newest_per_key
from jobs.log.fitting import SLICE_OFFSETS
from jobs.spark.session import ARROW_ROWS
from sinks._arrow import slices
from sinks.opensearch.bulk import ANSWER, bulk_body
from sinks.redis.sink import RedisSink
from sinks.redis.write import CAS

_AHEAD = 10
"""Calls that are on their way to Redis before an answer is waited for, as many as the sink has."""


def prepared(changes: Iterable[Change], partitions: int, *, epoch: int = 1) -> list[pa.RecordBatch]:
    """What a follower would give its sink for these changes, batch by batch: nothing but the sending is left.

    `epoch`: of their versions, a higher one where they come after others.
    """
    logs: list[list[tuple[str, int, str | None]]] = [[] for _ in range(partitions)]
    for change in changes:
        log = logs[change.id % partitions]
        log.append((str(change.id), make_version(epoch, len(log)), change.document))
    share = SLICE_OFFSETS // partitions
    batches = []
    for start in range(0, max(map(len, logs)), share):
        for log in logs:
            for first in range(start, min(start + share, len(log)), ARROW_ROWS):
                rows = log[first : min(first + ARROW_ROWS, start + share)]
                columns = zip(*rows, strict=True)
                arrays = [pa.array(column, field.type) for column, field in zip(columns, WRITES, strict=True)]
                batches.append(newest_per_key(pa.record_batch(arrays, schema=WRITES)))
    return batches


def bodies(batches: Sequence[pa.RecordBatch], documents: int) -> list[bytes]:
    """Requests for `_bulk`, with so many documents each."""
    whole = pa.Table.from_batches(batches).combine_chunks()
    return [bulk_body(batch) for batch in whole.to_batches(max_chunksize=documents)]


def bulk(url: str, alias: str, requests: Sequence[bytes], *, connections: int = 2) -> float:
    """Seconds to send all requests. Raises AssertionError when an item was refused for another reason than its age."""
    address = urlsplit(url)
    assert address.hostname is not None
    path = f"/{alias}/_bulk?require_alias=true&filter_path={ANSWER}"
    left = deque(requests)

    def send() -> None:
        connection = HTTPConnection(str(address.hostname), address.port, timeout=120)
        while left:
            connection.request("POST", path, left.popleft(), {"Content-Type": "application/x-ndjson"})
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == 200, f"_bulk answered {answer.status}: {text[:200]!r}"
            if not text.startswith(b'{"errors":false'):
                items = (next(iter(item.values())) for item in orjson.loads(text)["items"])
                # 404: a delete of what was not there. 409: the other connection was faster with a newer version.
                wrong = [item for item in items if "error" in item and item["status"] not in (404, 409)]
                assert not wrong, f"_bulk refused {len(wrong)} items: {wrong[0]}"
        connection.close()

    return _timed([send] * connections)


def calls(sink: RedisSink, batches: Iterable[pa.RecordBatch]) -> list[bytes]:
    """The commands that the sink would send for generation 1, call by call."""
    sink._server.once(lambda client: client.script_load(CAS.text))
    sink._writer.look()
    pieces = (piece for batch in batches for piece in slices(batch, rows=2_500, size=5_000_000))
    return [b"".join(call.command) for piece in pieces for call in sink._writer.calls(1, piece)]


def pipelined(sink: RedisSink, commands: Sequence[bytes], *, connections: int) -> float:
    """Seconds to send all commands, each connection several ahead of the answers."""

    def send(share: Sequence[bytes]) -> None:
        with sink._server.connection() as connection:
            waiting = 0
            for command in share:
                connection.send_packed_command([command], check_health=False)
                waiting += 1
                if waiting == 2 * _AHEAD:
                    waiting -= _hear(connection.read_response, _AHEAD)
            _hear(connection.read_response, waiting)

    return _timed([lambda at=at: send(commands[at::connections]) for at in range(connections)])  # type: ignore[misc]


def _hear(read: Callable[[], bytes], answers: int) -> int:
    for _ in range(answers):
        letters = read()
        assert not letters.strip(b"ws"), "a write was refused"
    return answers


def _timed(threads: Sequence[Callable[[], None]]) -> float:
    """Seconds that these take side by side; raises the first error of one."""
    errors: list[BaseException] = []

    def guarded(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as exc:  # noqa: BLE001 - raised again below, by the caller's own thread
            errors.append(exc)

    running = [threading.Thread(target=guarded, args=(call,)) for call in threads]
    begun = time.perf_counter()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    seconds = time.perf_counter() - begun
    if errors:
        raise errors[0]
    return seconds
