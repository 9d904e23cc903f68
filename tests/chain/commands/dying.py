"""`python -m tests.chain.commands.dying THREAD COMMAND...`: the command, in which a thread ends by an error, once
all follow.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType

import cli
from cli import main
from jobs.runner import Runner
from jobs.threads import background as threads
from jobs.views.progress import BuildProgress

VALUE = "what is in a row"
ROOT = Path(cli.__file__).parent.parent
OURS = tuple(f"{ROOT / package}/" for package in ("connectors", "driftless", "jobs", "sinks"))


def doom(name: str) -> None:
    """Have the thread of this name end as by a mistake in it, when every follower of the run is live."""
    live = threading.Event()
    watch = Runner._watch

    def watched(self: Runner, *arguments: object) -> None:
        threading.Thread(target=wait, args=(self,), daemon=True).start()
        watch(self, *arguments)  # type: ignore[arg-type]

    def wait(runner: Runner) -> None:
        while not all(p.state == "live" for p in runner.progress if not isinstance(p, BuildProgress)):
            threading.Event().wait(0.1)
        live.set()

    def trace(frame: FrameType, *_: object) -> None:
        """Where one of our functions is called: within the library, locks are half taken."""
        if live.is_set() and frame.f_code.co_filename.startswith(OURS):
            raise ValueError(VALUE)

    run = threads.Background.run

    def traced(self: threads.Background) -> None:
        if self.name == name:
            work = self.work

            def dies() -> None:
                sys.settrace(trace)
                try:
                    work()
                finally:
                    sys.settrace(None)

            self.work = dies  # type: ignore[method-assign]
        run(self)

    Runner._watch = watched  # type: ignore[assignment, method-assign]
    threads.Background.run = traced  # type: ignore[method-assign]


if __name__ == "__main__":
    doom(sys.argv[1])
    sys.argv = ["driftless", *sys.argv[2:]]
    main()
