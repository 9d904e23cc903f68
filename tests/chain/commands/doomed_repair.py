"""`python -m tests.chain.commands.doomed_repair STEP COMMAND...`: the command, killed at one step of mending what is
wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

from cli import main
from driftless.verify import proof
from driftless.verify.subject import Subject
from tests.chain.commands.doomed import die

STEPS = {
    "before a log is mended": ("mend_log", "before"),
    "between its deletes and its rows": ("mend_log", "in"),
    "when a log is mended": ("mend_log", "after"),
    "before a store is mended": ("mend", "before"),
    "when a store is mended": ("mend", "after"),
}
"""Step -> what is called there, and when."""


def doom(step: str) -> None:
    """Have the process die at the first such call."""
    name, when = STEPS[step]
    call: Callable[..., Any] = getattr(proof, name)

    @wraps(call)
    def wrapped(subject: Subject, *arguments: Any) -> None:
        if when == "before":
            die()
        call(replace(subject, again=lambda _: die()) if when == "in" else subject, *arguments)
        die()

    setattr(proof, name, wrapped)


if __name__ == "__main__":
    doom(sys.argv[1])
    sys.argv = ["driftless", *sys.argv[2:]]
    main()
