"""Redis as a store: the kind `redis` of sync.yaml."""

from sinks.redis.sink import Config

__all__ = ["Config"]
