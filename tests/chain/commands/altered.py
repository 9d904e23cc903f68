"""A command in which something is altered before it begins."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tests.support.files import ROOT
from tests.support.machine import Job
from tests.support.pipeline import Pipeline


class Altered(Job):
    """Run by way of one of the modules here, with these arguments."""

    command = Path(sys.executable)

    def __init__(self, pipeline: Pipeline, module: str, *arguments: str) -> None:
        environment = {**pipeline.here.environ(), "PYTHONPATH": str(ROOT)}
        log = pipeline.here.folder / f"{'-'.join((module, *arguments)).replace(' ', '-')}.log"
        command = ["-m", f"tests.chain.commands.{module}", *arguments]
        super().__init__(command, folder=pipeline.here.folder, environment=environment, log=log)
        pipeline.here.jobs.append(self)

    def die(self, seconds: float = 120) -> None:
        """Return when it has died where it was to; what it started must end by itself."""
        code = self.wait(seconds)
        assert code == -signal.SIGKILL, f"it was never at its step, and ended with {code}: {self.output()}"
