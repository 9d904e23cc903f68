"""Somebody who reads all the time: of rows that never change, every document must be there, and be right."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

import redis

from tests.support.compare import OpenSearch, Redis, Store, parse, same


class Witness:
    """Looks at these rows in every store until it ends. `looks`: how often, of each; `wrong`: what was wrong at one."""

    def __init__(self, stores: Mapping[str, Store], rows: Mapping[tuple[Any, ...], Mapping[str, Any]]) -> None:
        self.looks = dict.fromkeys(stores, 0)
        self.wrong: list[str] = []
        self._rows = rows
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._look, args=each, daemon=True) for each in stores.items()]
        for thread in self._threads:
            thread.start()

    def _look(self, follower: str, store: Store) -> None:
        wanted = {store.name(key): parse(json.dumps(row)) for key, row in self._rows.items()}
        while not self._ended.wait(0.02):
            found = _read(store, list(wanted))
            missing = [name for name in wanted if found.get(name) is None]
            other = [name for name in wanted if name not in missing and not same(found[name], wanted[name])]
            if (missing or other) and len(self.wrong) < 20:
                sample = (missing or other)[0]
                self.wrong.append(
                    f"{follower}, look {self.looks[follower]}: of {len(wanted)} documents {len(missing)} are missing "
                    f"and {len(other)} are others, as {sample!r}: {found.get(sample)!r:.200}"
                )
            self.looks[follower] += 1

    def end(self) -> None:
        """Fails where anything was wrong at any look."""
        self._ended.set()
        for thread in self._threads:
            thread.join(30)
        assert not self.wrong, "\n".join(self.wrong)
        assert min(self.looks.values()) > 0, self.looks


def _read(store: Store, names: list[str]) -> dict[str, Any]:
    """By name, each document as of one moment: what was written is there without a refresh."""
    if isinstance(store, OpenSearch):
        answer = store.call("POST", f"/{store.index}/_mget", {"ids": names}, missing=True)
        return {doc["_id"]: doc.get("_source") for doc in answer["docs"]} if answer else {}
    assert isinstance(store, Redis)
    with redis.Redis.from_url(store.url, decode_responses=True) as client:
        values: list[Any] = client.mget(names)
    return {name: None if text is None else parse(text) for name, text in zip(names, values, strict=True)}
