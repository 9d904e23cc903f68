"""Writing to generations in Redis while one takes the other's place, held against a plain model."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from driftless.errors import SinkUnavailable
from driftless.sink import Applied, Sink
from tests.sinks.redis.redis_case import Killed, RedisCase, killed_at
from tests.sinks.store_case import Opener, Write, delete, upsert, writes

pytestmark = pytest.mark.server

SWITCHES = 6
KEYS = [f"k{number}" for number in range(40)]


class Model:
    """What one generation has: the newest write of each key."""

    def __init__(self) -> None:
        self.newest: dict[str, Write] = {}

    def apply(self, write: Write) -> Applied:
        key, version, _ = write
        if key in self.newest and self.newest[key][1] >= version:
            return Applied(stale=1)
        self.newest[key] = write
        return Applied(written=1)

    def documents(self) -> dict[str, Write]:
        return {key: write for key, write in self.newest.items() if write[2] is not None}


class TestWritesInASwitch(RedisCase):
    @pytest.mark.parametrize("form", ["json", "hash"])
    @pytest.mark.parametrize("ttl", [None, "1h"])
    @pytest.mark.parametrize("seed", range(4))
    def test_every_generation_takes_writes_at_every_step(
        self, opened: Opener, plain: Any, name: str, monkeypatch: pytest.MonkeyPatch, seed: int, form: str, ttl: str
    ) -> None:
        monkeypatch.setattr("sinks.redis.generations._PAGE", 7)
        rng = random.Random(f"{seed} {form} {ttl}")
        settings = {"format": form, "ttl": ttl}
        sink, writers = opened(**settings), [opened(**settings) for _ in range(2)]
        models = {n: Model() for n in (1, 2, 3)}
        for n in models:
            sink.create(n)
        sink.promote(1)
        live = 1
        for _ in range(SWITCHES):
            coming = rng.choice([n for n in models if n != live])
            self._write(rng, writers, models)
            while True:
                try:
                    with killed_at(rng.randrange(1, 14), monkeypatch):
                        opened(**settings).promote(coming)
                    break
                except Killed:
                    self._write(rng, writers, models)
                    self._seen(plain, name, models[live].documents(), models[coming].documents())
            live = coming
            self._whole(sink, plain, name, models, live)

    def test_no_write_waits_for_the_end_of_a_switch(
        self, opened: Opener, plain: Any, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """New keys too, and a reader has them at once from the generation that comes."""
        sink = opened(retry_seconds=0)
        for n in (1, 2):
            sink.create(n)
            sink.apply(n, writes(*(upsert(key, 1, {"of": n}) for key in KEYS)))
        with killed_at(1, monkeypatch), pytest.raises(Killed):
            opened().promote(2)
        assert plain.get(f"{name}:k1") == '{"of": 1}'
        for n in (1, 2):
            hurried = opened()
            written = hurried.apply(n, writes(upsert("k1", 2, {"at": 2}), delete("k2", 2), upsert("new", 2, {"of": n})))
            assert written == Applied(written=3)
        assert plain.get(f"{name}:k1") == '{"at": 2}'
        assert plain.get(f"{name}:k2") is None
        assert plain.get(f"{name}:k3") == '{"of": 1}'
        assert plain.get(f"{name}:new") == '{"of": 2}'
        with pytest.raises(SinkUnavailable, match="being switched to generation 2"):
            sink.read(1, ["k1"])  # of which one would be told twice, or not at all
        sink.promote(2)
        assert plain.get(f"{name}:k3") == plain.get(f"{name}:new") == '{"of": 2}'
        assert [sink.count(n) for n in (1, 2)] == [40, 40]

    def _write(self, rng: random.Random, writers: list[Sink], models: Mapping[int, Model]) -> None:
        """Newer and older versions, documents and deletes, each by a writer that may have missed a switch."""
        for _ in range(rng.randrange(1, 25)):
            n, key, version = rng.choice(list(models)), rng.choice(KEYS), rng.randrange(1, 60)
            write = delete(key, version) if rng.random() < 0.3 else upsert(key, version, f'{{"v":"{n} {version}"}}')
            assert rng.choice(writers).apply(n, writes(write)) == models[n].apply(write), (n, write)

    def _seen(self, plain: Any, name: str, *either: Mapping[str, Write]) -> None:
        """In the course of a switch a reader finds what the one or the other has under a name."""
        for key in KEYS:
            allowed = {documents[key][2] if key in documents else None for documents in either}
            assert self._get(plain, f"{name}:{key}") in allowed, key

    def _whole(self, sink: Sink, plain: Any, name: str, models: Mapping[int, Model], live: int) -> None:
        self._seen(plain, name, models[live].documents())
        for n, model in models.items():
            documents = model.documents()
            assert self.scanned(sink, n) == self.kept(documents.values()), n
            assert sink.count(n) == len(documents), n

    @staticmethod
    def _get(plain: Any, name: str) -> str | None:
        if plain.type(name) == "hash":
            return f'{{"v":"{plain.hget(name, "v")}"}}'
        found: str | None = plain.get(name)
        return found
