"""The ground that a campaign is fought on, and the operator who does what the messages say, and nothing else."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from decimal import Decimal

from stack import Stack
from tests.chain.support.monitor import Monitor
from tests.chaos.load import Load
from tests.support.compare import View
from tests.support.machine import Job, until
from tests.support.pipeline import Pipeline
from tests.support.proxy import Proxy

OPERATED_SECONDS = 420.0
COUNTER = View("counter", "public.counters")


class Campaign:
    """A pipeline under load, with a run of all followers. `proxies`: by which driftless reaches a server."""

    def __init__(self, stack: Stack, pipeline: Pipeline, rng: random.Random, proxies: Mapping[str, Proxy]) -> None:
        self.stack = stack
        self.pipeline = pipeline
        self.rng = rng
        self.proxies = proxies
        self.operated: list[str] = []
        self._load: Load | None = None
        source = pipeline.connection
        Monitor.create(source)
        pipeline.add(View("customer", "public.customers"))
        pipeline.sync["source"]["tables"]["public.counters"] = {}
        pipeline.add(COUNTER)
        for follower in pipeline.sync["followers"].values():
            follower["keep"] = "1s"
        pipeline.apply()
        self.job: Job = pipeline.run()
        pipeline.assert_in_step()

    def loaded(self) -> None:
        """Writers write."""
        if self._load is None:
            self._load = Load(self.pipeline.dsn, self.rng.randrange(10**6))

    def quiet(self) -> None:
        """Writers end; then every follower equals the source, as an independent comparer and `verify` both say, and no
        order shows another sum than that of its lines.
        """
        load, self._load = self._load, None
        if load is not None:
            load.end()
            assert load.done["orders"], "nothing was written"
        self.pipeline.connect()
        self.pipeline.assert_in_step()
        for name in ("order-search", "order-cache"):
            for document in self.pipeline.stores[name].documents().values():
                assert document["total"] == sum((line["amount"] for line in document["lines"]), Decimal(0)), document
        done = self.pipeline.here("verify", seconds=300)
        assert done.code == 0, f"verify ended with {done.code}\n{done.out}{done.err}"

    def restart(self) -> None:
        """End the run, whatever state it is in, and start it again."""
        if self.job.running:
            self.job.stop(60)
        self._run()

    def _run(self) -> None:
        self.job.destroy()  # what has ended is not waited for any more
        self.job = self.pipeline.run()
        # Until it has begun, `status` tells of what was before.
        until("the run to begin", lambda: " records" in self.job.output() or not self.job.running, 120)

    def operate(self) -> None:
        """Do what the run and `status` say, until neither says anything more."""
        self.pipeline.connect()
        deadline = time.monotonic() + OPERATED_SECONDS
        while said := self._said():
            assert time.monotonic() < deadline, f"after {OPERATED_SECONDS:g} s still: {said}\n{self.pipeline.explain()}"
            if "driftless apply" in said:
                self._apply(anew="apply --anew" in said)
                self.restart()
            elif rebuild := re.search(r"driftless rebuild ([\w-]+)", said):
                if not self.job.running:
                    self._run()
                self._note(f"rebuild {rebuild[1]}")
                self.pipeline.here("rebuild", rebuild[1], seconds=240)
            elif not self.job.running:
                self._note("run")
                self._run()
            else:
                time.sleep(1)

    def _apply(self, *, anew: bool) -> None:
        arguments = ("apply", *(["--anew"] if anew else []))
        self._note(" ".join(arguments))
        done = self.pipeline.here(*arguments, seconds=300)
        if done.code != 0:
            print(f"    {done.err.strip()}", flush=True)

    def _note(self, what: str) -> None:
        self.operated.append(what)
        print(f"    operator: {what}", flush=True)

    def _said(self) -> str:
        """Everything that asks for something to be done; empty where all is well."""
        status = self.pipeline.status()
        parts = [str(status["source"]["trouble"] or "")]
        parts += [f"{table}: `driftless apply`" for table in status["source"]["changed"]]
        standing = (*status["followers"], *status["views"])
        wrong = [f for f in standing if f["state"] in ("failed", "stopped") or f.get("trouble")]
        parts += [f"{f['name']} is {f['state']}: {f.get('trouble')}" for f in wrong]
        if not self.job.running:
            parts.append(f"the run has ended: {self.job.output()[-600:]}")
        return "; ".join(filter(None, parts))


def begin(stack: Stack, pipeline: Pipeline, rng: random.Random, proxies: Mapping[str, Proxy]) -> Campaign:
    """The campaign's ground, where everything is in step."""
    campaign = Campaign(stack, pipeline, rng, proxies)
    until("no trouble", lambda: not campaign._said(), 60)
    return campaign
