"""The one Spark session of a process, with the settings that following a log needs."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

_LOGGING = Path(__file__).with_name("log4j2.properties")
ARROW_ROWS = 5_000
"""Rows of an Arrow batch on the executors: bounds the memory of a Python worker and the size of one write."""


def session(jars: Sequence[Path], *, master: str = "local[2]", memory: str = "1g") -> SparkSession:
    """Start Spark in this process. `jars`: the Kafka source, which the Python package lacks."""
    # Workers must run this interpreter: with another one they die at once ("worker exited unexpectedly").
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.app.name": "driftless",
        "spark.jars": ",".join(str(jar) for jar in jars),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.speculation": "false",  # a second copy of a task would only write everything twice
        "spark.scheduler.mode": "FAIR",  # one follower's bulk load must not hold back another's single change
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
        # The second version of the Kafka source plans a batch 20 ms faster than the first (docs/benchmarks.md).
        "spark.sql.sources.useV1SourceList": "",
        # Our plans differ only in offsets and literals; there is nothing to adapt in one stage.
        "spark.sql.adaptive.enabled": "false",
        # A JSON number must come out as the text that went in.
        "spark.sql.json.enableExactStringParsing": "true",
        # Of a key that an object has twice, `to_jsonb` keeps the last.
        "spark.sql.variant.allowDuplicateKeys": "true",
        # A misread date must be an error, not null.
        "spark.sql.ansi.enabled": "true",
    }
    builder = SparkSession.builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    interrupt = signal.getsignal(signal.SIGINT)
    spark = builder.getOrCreate()
    if threading.current_thread() is threading.main_thread():
        # Spark puts its own handler in place, which cancels every job; how to end is the caller's affair.
        signal.signal(signal.SIGINT, interrupt)
    return spark
