"""The campaign of two operators, in small: `make chaos` fights it for longer."""

from __future__ import annotations

import psycopg
import pytest

from tests.chain.conftest import MakePipeline
from tests.chaos.operators import fight, plan, prepare
from tests.support.seeds import seeds

SEEDS = seeds("operators", 1)


@pytest.mark.server
@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
def test_readers_lose_nothing_whatever_two_operators_ask_for(
    make_pipeline: MakePipeline, source: psycopg.Connection, seed: int
) -> None:
    fight(prepare(make_pipeline, source), seed, plan(seed, count=4, kills=1))


@pytest.mark.server
@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", seeds("operators for long", 1))
def test_readers_lose_nothing_whatever_two_operators_ask_for_all_day(
    make_pipeline: MakePipeline, source: psycopg.Connection, seed: int
) -> None:
    source.execute("drop table if exists items")
    fight(prepare(make_pipeline, source), seed, plan(seed, count=25, kills=8))
