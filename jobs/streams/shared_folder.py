"""Whether a folder is one and the same for all machines of a cluster."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import SparkSession

from driftless.errors import ConfigError

_TASKS_A_CORE = 2
_TASK_SECONDS = 0.2
"""How long a task stays, so that the others go to other executors."""


def assert_shared(spark: SparkSession, folder: Path) -> None:
    """Raise ConfigError unless what the driver writes there is read by executors, and what they write by the driver."""
    name = f".driftless-{uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    except OSError as exc:
        raise ConfigError(f"nothing can be written to {folder}: {exc.strerror}", hint=_HINT) from None
    tasks = _TASKS_A_CORE * max(1, spark.sparkContext.defaultParallelism)
    try:
        found = spark.range(0, tasks, 1, tasks).mapInArrow(partial(_answers, str(folder / name)), "id long, at string")
        answers = found.toArrow().to_pylist()
        lost = sorted({row["at"] for row in answers if not (folder / f"{name}-{row['id']}").exists()})
    finally:
        for path in folder.glob(f"{name}*"):
            path.unlink(missing_ok=True)
    if lost:
        raise ConfigError(f"executors on {', '.join(lost)} do not see what is in {folder} here", hint=_HINT)


_HINT = "give `--checkpoints` a folder that all machines of the cluster have mounted at the same place"


def _answers(path: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On an executor: write beside the file, if it is there."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            if Path(path).exists():
                Path(f"{path}-{number}").write_text("")
        time.sleep(_TASK_SECONDS)
        yield pa.RecordBatch.from_arrays(
            [batch.column(0), pa.array([socket.gethostname()] * batch.num_rows)], names=["id", "at"]
        )
