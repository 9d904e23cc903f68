"""A part of a log that is applied once more."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from driftless.kafka.client import Offsets
from driftless.sink import Applied


@dataclass
class Replay:
    """A stretch of the log to be applied once more, beside what is new. `only`: the keys; None for all.

    `at`, `to`: what is left of it. `done` is set when nothing is; `total` then says what became of it.
    """

    at: Offsets
    to: Offsets
    only: pa.StringArray | None = None
    total: Applied = field(default_factory=Applied)
    done: bool = False
