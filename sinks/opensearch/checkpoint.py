"""A follower's checkpoint, kept beside its index in OpenSearch, and lost when the index is."""

from __future__ import annotations

from urllib.parse import quote

import orjson

from driftless.errors import SinkUnavailable
from driftless.sink import SinkContext
from sinks._retry import attempts
from sinks.opensearch.server import SHARDS, OpenSearchServer


class Checkpoints:
    """Text in the hidden index `.driftless-<pipeline>`, replaced by compare-and-set.

    It names the index it speaks of by its UUID and the history of its shards. An index that was recreated or restored
    from a snapshot has others, and so has no checkpoint.
    """

    def __init__(self, server: OpenSearchServer, context: SinkContext) -> None:
        self._server = server
        self._follower = context.follower
        self._index = f".driftless-{context.pipeline}"
        self._histories: dict[str, str] = {}

    def create(self) -> None:
        hidden = {"index.hidden": True, "number_of_shards": 1, "auto_expand_replicas": "0-1"}
        self._server.create(self._index, {"settings": hidden, "mappings": {"enabled": False}})

    def load(self, generation: int, alias: str) -> str | None:
        self._histories.clear()  # an index restored over itself keeps its UUID: look again
        store = self._store(alias)
        return self._read(generation, store)[0] if store else None

    def save(self, generation: int, alias: str, checkpoint: str, *, expected: str | None) -> bool:
        while store := self._store(alias):
            current, condition = self._read(generation, store)
            if current == checkpoint:
                return True
            if current != expected:
                return False
            body = {"store": store, "checkpoint": checkpoint}
            status, _ = self._server.call("PUT", f"{self._path(generation)}?{condition}", body, ok={404, 409})
            if status in (200, 201):
                return True
            # Somebody else was faster, or this landed and the answer was lost: look again.
        return False

    def remove(self, generation: int) -> None:
        self._server.call("DELETE", self._path(generation), ok={404})

    def remove_index(self) -> None:
        """Where no follower of the pipeline has a checkpoint any more. Who needs the index makes it again."""
        self._server.call("POST", f"/{self._index}/_refresh", ok={404})
        status, answer = self._server.call("GET", f"/{self._index}/_count", ok={404})
        if status == 200 and orjson.loads(answer)["count"] == 0:
            self._server.call("DELETE", f"/{self._index}", ok={404})

    def _path(self, generation: int) -> str:
        return f"/{self._index}/_doc/{quote(f'{self._follower}-{generation}', safe='')}"

    def _read(self, generation: int, store: str) -> tuple[str | None, str]:
        """The checkpoint of that store, and the condition under which it may be replaced."""
        status, answer = self._server.call("GET", self._path(generation), ok={404})
        entry = orjson.loads(answer)
        if "error" in entry:  # there is no index, or no longer
            self.create()
        if status == 404:
            return None, "op_type=create"
        condition = f"if_seq_no={entry['_seq_no']}&if_primary_term={entry['_primary_term']}"
        source = entry["_source"]
        return (source["checkpoint"] if source["store"] == store else None), condition

    def _store(self, alias: str) -> str | None:
        """What tells this index from another of its name, and from an older state of itself. None: no such index."""
        index = self._server.index(alias)
        if index is None:
            return None
        if index.uuid not in self._histories:
            self._histories[index.uuid] = self._history(alias, index.shards)
        return f"{index.uuid} {self._histories[index.uuid]}"

    def _history(self, alias: str, shards: int) -> str:
        """Changes when a shard is restored or emptied by force, not when it moves or a replica takes over."""
        path = f"/{alias}/_stats/docs?level=shards&filter_path=indices.*.shards"
        for _ in attempts(self._server.retry_seconds):
            _, answer = self._server.call("GET", path)
            found = [
                f"{number}:{copy['commit']['user_data']['history_uuid']}"
                for index in orjson.loads(answer).get("indices", {}).values()
                for number, copies in index["shards"].items()
                for copy in copies
                if copy["routing"]["primary"] and "commit" in copy
            ]
            if len(found) == shards:
                return " ".join(sorted(found))
        raise SinkUnavailable(f"Not all shards behind `{alias}` have started", hint=SHARDS)
