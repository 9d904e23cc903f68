"""Redis, as a store that is meant to last."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import redis

from stack.machine import unpack
from stack.machine.home import Report
from stack.machine.ports import LOOPBACK
from stack.servers.server import Server


class Redis(Server):
    """A store. Writes reach the disk within a second, and nothing is evicted to make room."""

    name = "redis"
    port_names = ("redis",)

    def confs(self) -> list[str]:
        return ["redis"]

    def url(self) -> str:
        return f"redis://{self.site.address('redis')}/0"

    def settings(self) -> dict[str, object]:
        return {
            "bind": LOOPBACK,
            "port": self.site.ports["redis"],
            "dir": self.site.make("data", "redis"),
            "daemonize": "no",
            "logfile": "",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
        }

    def prepare(self, report: Report) -> None:
        unpack.redis_tree(report)
        lines = "".join(f'{key} "{value}"\n' for key, value in self.settings().items())
        self.write(self.site.make("conf", "redis"), "redis.conf", lines)

    def command(self) -> Sequence[str | Path]:
        program = unpack.redis_tree(lambda _: None) / "redis-server"
        return [program, self.site.folder / "conf" / "redis" / "redis.conf"]

    def ready(self) -> bool:
        client = redis.Redis.from_url(self.url(), socket_timeout=3, socket_connect_timeout=3)
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
        finally:
            client.close()
