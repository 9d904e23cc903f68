"""Redis, as a store that is meant to last."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import redis

from stack.machine import unpack
from stack.machine.home import Report
from stack.machine.keys import SERVER, USER, Keys
from stack.machine.ports import LOOPBACK
from stack.servers.server import Server

COMMANDS = (
    *("ping", "info", "select", "eval", "evalsha", "script|load", "scan", "memory|usage", "time"),
    *("get", "set", "mget", "strlen", "del", "unlink", "exists", "expireat", "rename"),
    *("hget", "hset", "hsetnx", "hdel", "hlen", "hmget", "hgetall", "hincrby", "hexists"),
)
"""What driftless asks of Redis; docs/security.md says the same."""


class Redis(Server):
    """A store. Writes reach the disk within a second, and nothing is evicted to make room."""

    name = "redis"
    port_names = ("redis",)

    def confs(self) -> list[str]:
        return ["redis"]

    def url(self) -> str:
        keys = self.site.keys
        if keys is None:
            return f"redis://{self.site.address('redis')}/0"
        return f"{self.url_with(keys.password(self.name))}?ssl_ca_certs={keys.ca}"

    def url_with(self, password: str) -> str:
        """That of a secured server, with this in place of its one user's password."""
        return f"rediss://{USER}:{password}@{self.site.address('redis')}/0"

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

    def _secured(self, keys: Keys) -> str:
        """Further lines of the file. Its one user may do what driftless does, with any key."""
        settings = {
            "port": 0,
            "tls-port": self.site.ports["redis"],
            "tls-cert-file": keys.certificate(SERVER),
            "tls-key-file": keys.key(SERVER),
            "tls-ca-cert-file": keys.ca,
            "tls-auth-clients": "no",
        }
        lines = "".join(f'{key} "{value}"\n' for key, value in settings.items())
        rights = " ".join(f"+{command}" for command in COMMANDS)
        return f"{lines}user default off\nuser {USER} on >{keys.password(self.name)} ~* &* -@all {rights}\n"

    def prepare(self, report: Report) -> None:
        unpack.redis_tree(report)
        lines = "".join(f'{key} "{value}"\n' for key, value in self.settings().items())
        if self.site.keys is not None:
            lines += self._secured(self.site.keys)
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
