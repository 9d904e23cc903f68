"""A seed's faults, one after the other under load, and between them every document compared."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from confluent_kafka import KafkaException
from psycopg.conninfo import make_conninfo

from stack import Stack
from tests.chain.views.test_views import SUMMED, make_orders
from tests.chaos.campaign import begin
from tests.chaos.faults import FAULTS, NETWORK
from tests.conftest import fresh_database
from tests.support.pipeline import Pipeline
from tests.support.proxy import Proxy, broker_apart

AT_A_TIME = 3
"""Faults between two quiet periods."""


def plan(seed: int, count: int = len(FAULTS), only: Sequence[str] = ()) -> list[tuple[str, float]]:
    """Faults and the seconds before each: every one once before any comes again."""
    rng = random.Random(seed)
    names: list[str] = []
    while len(names) < count:
        names += rng.sample(list(only) or sorted(FAULTS), len(only or FAULTS))
    return [(name, round(rng.uniform(1, 6), 1)) for name in names[:count]]


def announce(seed: int, planned: list[tuple[str, float]]) -> None:
    print(f"seed {seed}: {len(planned)} faults, in this order")
    for number, (name, pause) in enumerate(planned, 1):
        print(f"  {number:2}. after {pause:g} s: {name}", flush=True)


def fight(stack: Stack, seed: int, planned: list[tuple[str, float]]) -> None:
    endpoints = stack.endpoints()
    assert endpoints is not None
    with ExitStack() as standing:
        dsn = standing.enter_context(fresh_database(endpoints.postgres))
        folder = Path(tempfile.mkdtemp(prefix="chaos-"))
        servers = {"postgres": endpoints.postgres, "opensearch": endpoints.opensearch, "redis": endpoints.redis}
        proxies = {name: standing.enter_context(Proxy(url)) for name, url in servers.items()}
        secrets = {
            "SOURCE_DSN": make_conninfo(dsn, port=str(urlsplit(proxies["postgres"].url).port)),
            "SEARCH_URL": proxies["opensearch"].url,
            "CACHE_URL": proxies["redis"].url,
        }
        made: list[Pipeline] = []
        within: Sequence[str] = ()
        if NETWORK:
            others = (*(proxy.url for proxy in proxies.values()), endpoints.connect)
            proxies["kafka"] = standing.enter_context(broker_apart(endpoints.kafka, others))
            within = proxies["kafka"].within

        def make(**more: object) -> Pipeline:
            made.append(Pipeline(folder, endpoints, dsn, (), secrets=secrets, **more))  # type: ignore[arg-type]
            made[0].here.within = within
            return made[0]

        with psycopg.connect(dsn, autocommit=True) as source:
            pipeline = make_orders(make, source)
            source.execute(SUMMED)
        try:
            campaign = begin(stack, pipeline, random.Random(seed), proxies)
            for number, (name, pause) in enumerate(planned, 1):
                begun = time.monotonic()
                campaign.loaded()
                time.sleep(pause)
                pipeline.connect()
                print(f"{number:2}. {name}: {FAULTS[name](campaign)}", flush=True)
                campaign.operate()
                if number % AT_A_TIME == 0 or number == len(planned):
                    campaign.quiet()
                    print("    quiet: every follower equals the source", flush=True)
                print(f"    {time.monotonic() - begun:.0f} s", flush=True)
        except BaseException:
            print(f"seed {seed} failed; again with: python -m tests.chaos --seed {seed} --faults {len(planned)}")
            print(f"what each run said, and what the control topic holds: {leave(pipeline, folder)}", flush=True)
            raise
        else:
            shutil.rmtree(folder)
        finally:
            for proxy in proxies.values():
                proxy.heal()
            for each in made:
                each.end_jobs()
            stack.up()
            for each in made:
                each.remove()


def leave(pipeline: Pipeline, folder: Path) -> Path:
    """Beside the logs of the runs, as far as servers answer: the control topic's records by key, and `status`."""
    with suppress(AssertionError, KafkaException):
        told = sorted(pipeline.records("control"), key=lambda record: record[0] or b"")
        lines = [f"{(key or b'').decode()} {(value or b'null').decode()}\n" for key, value in told]
        (folder / "control.txt").write_text("".join(lines))
    with suppress(AssertionError):
        (folder / "status.json").write_text(json.dumps(pipeline.status(), indent=2))
    return folder
