"""Whether a second copy of a follower's documents fits into a Redis server."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from driftless.errors import SinkMisconfigured
from driftless.sink import Applied, Sink
from tests.sinks.redis.redis_case import RedisCase
from tests.sinks.store_case import Opener, rows, upsert, writes

pytestmark = pytest.mark.server


class TestRedisRoom(RedisCase):
    def test_a_second_copy_that_would_not_fit_is_refused_before_it_is_begun(
        self, opened: Opener, sink: Sink, generation: int, plain: Any
    ) -> None:
        items = [upsert(str(n), 1, {"text": f"{n} " * 400}) for n in range(2000)]
        before = _taken(plain)
        sink.apply(generation, writes(*items))
        used = _taken(plain)
        plain.config_set("maxmemory", used + (used - before) // 2)
        try:
            with pytest.raises(SinkMisconfigured, match=r"no room for generation 2 .* its 2000 documents") as raised:
                sink.create(2)
            assert "maxmemory" in raised.value.hint
            assert rows(sink.read(2, ["1"])) == []
            sink.create(1)  # one that is there is not asked about
            plain.config_set("maxmemory", used + 2 * (used - before))
            sink.create(2)
            assert opened().apply(2, writes(*items)) == Applied(written=2000)
            needed = _taken(plain) - used
            plain.config_set("maxmemory", plain.info("memory")["used_memory"])
            sink.create(2)
        finally:
            plain.config_set("maxmemory", 0)
        assert 0.7 < needed / (used - before) < 1.4

    def test_what_the_server_holds_for_a_slow_replica_is_no_part_of_what_is_taken(
        self, sink: Sink, generation: int, plain: Any
    ) -> None:
        """As with what waits for a slow disk: it does not count against `maxmemory`, and is soon gone."""
        sink.apply(generation, writes(*(upsert(str(n), 1, {"text": f"{n} " * 400}) for n in range(100))))
        place = plain.connection_pool.connection_kwargs
        with socket.create_connection((place["host"], place["port"])) as replica:
            replica.sendall(b"PSYNC ? -1\r\n")
            deadline = time.monotonic() + 30
            while plain.info("memory")["mem_not_counted_for_evict"] < 8_000_000:
                assert time.monotonic() < deadline, plain.info("memory")
                plain.set("filler", "x" * 100_000)
            limit = _taken(plain) + 4_000_000
            plain.config_set("maxmemory", limit)
            try:
                assert plain.info("memory")["used_memory"] > limit
                sink.create(2)
            finally:
                plain.config_set("maxmemory", 0)
                plain.delete("filler")


def _taken(plain: Any) -> int:
    """What counts against `maxmemory`: not what waits to be written to a slow disk, up to all that was sent."""
    memory = plain.info("memory")
    return int(memory["used_memory"] - memory["mem_not_counted_for_evict"])
