"""OpenSearch as a store: the kind `opensearch` of sync.yaml."""

from sinks.opensearch.sink import Config

__all__ = ["Config"]
