"""What happens to a `verify` that runs: documents that are spoiled meanwhile, and its own death while it mends."""

from __future__ import annotations

import random
import time

import pytest

from tests.chain.commands.altered import Altered
from tests.chain.commands.doomed_repair import STEPS
from tests.chain.support.corrupt import InCache, InSearch, InTopic
from tests.chain.verify.test_verify import QUIET, found, pipeline, verify
from tests.support.compare import OpenSearch, Redis
from tests.support.pipeline import Pipeline
from tests.support.writer import Writer

__all__ = ["pipeline"]
pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(900), pytest.mark.usefixtures("job")]

NAMES = ("thing-search", "thing-cache")
GAP_SECONDS = 0.3
PAUSE = 0.2
"""Between two transactions of a writer: what is tested here is no load."""


def stores(pipeline: Pipeline) -> tuple[InSearch, InCache]:
    search, cache = (pipeline.stores[name] for name in NAMES)
    assert isinstance(search, OpenSearch)
    assert isinstance(cache, Redis)
    return InSearch(search), InCache(cache)


def test_what_is_spoiled_while_it_runs_is_named_by_it_or_by_the_next(pipeline: Pipeline) -> None:
    search, cache = stores(pipeline)
    spoiled: dict[str, set[str]] = {name: set() for name in NAMES}
    with Writer(pipeline.dsn, seed := random.randrange(10**6), pause=PAUSE):
        job = pipeline.here.start("verify", *NAMES, "--samples", str(QUIET), "--json")
        try:
            for number in range(1000, 1000 + QUIET):
                if not job.running:
                    break
                name = NAMES[number % 2]
                store: InSearch | InCache = search if name == "thing-search" else cache
                if number % 4 < 2:
                    store.change(str(number), note="spoiled")
                else:
                    store.drop(str(number))
                spoiled[name].add(str(number))
                time.sleep(GAP_SECONDS)
            assert job.wait(300) in (0, 1), job.output()
        finally:
            job.destroy()
        said = verify(pipeline, *NAMES, "--samples", str(QUIET))
        assert {name: found(follower).keys() for name, follower in said.items()} == spoiled, f"seed {seed}"
        said = verify(pipeline, *NAMES, "--samples", str(QUIET), "--repair")
    assert {name: follower["repaired"] for name, follower in said.items()} == {n: len(s) for n, s in spoiled.items()}
    pipeline.assert_in_step(*NAMES)


@pytest.mark.parametrize("step", STEPS)
def test_a_repair_that_is_killed(pipeline: Pipeline, step: str) -> None:
    topic = InTopic(pipeline.endpoints.kafka, f"{pipeline.name}.public.things")
    search, cache = stores(pipeline)
    topic.change(b'{"id":1001}', note="flipped")
    topic.drop(b'{"id":1002}')
    partition, value = topic.newest(b'{"id":1003}')
    assert value is not None
    topic.put(b'{"id":1999}', value.replace(b"1003", b"1999"), partition)
    pipeline.wait()
    with Writer(pipeline.dsn, seed := random.randrange(10**6), pause=PAUSE):
        search.change("1011", note="flipped")
        search.drop("1012")
        cache.change("1013", note="flipped")
        cache.drop("1014")
        Altered(pipeline, "doomed_repair", step, "verify", *NAMES, "--repair").die(400)
        said = verify(pipeline, *NAMES, "--repair")
    assert all(follower["in_sync"] for follower in said.values()), f"seed {seed}: {said}"
    mended = {name: found(follower).keys() for name, follower in said.items()}
    if step == "when a store is mended":  # the log, and the first of the two
        assert mended == {"thing-search": set(), "thing-cache": {"1013", "1014"}}
    pipeline.assert_in_step(*NAMES)
