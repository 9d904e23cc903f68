"""The one Spark session of a process, with the settings that following a log needs."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import psutil
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from driftless.config.kafka_security import KafkaSecurity, java_properties
from driftless.errors import ConfigError
from jobs.spark.private import (
    is_private_spark_known,
    jvm_of,
    report_private_spark,
    running_gateway,
)
from jobs.spark.quiet import quiet_children, quiet_start

_LOGGING = Path(__file__).parent.with_name("log4j2.properties")
_PATIENCE = 16
_JIT = " ".join(
    f"-XX:Tier4{threshold}={_PATIENCE * default}"
    for threshold, default in (
        ("InvocationThreshold", 5_000),
        ("MinInvocationThreshold", 600),
        ("CompileThreshold", 15_000),
        ("BackEdgeThreshold", 40_000),
    )
)
"""The second compiler waits sixteen times as long as it would: it took a third of the CPU of the first minute, and a
run of half a million changes ends within that (docs/benchmarks.md)."""
JAVA_OPTIONS = "DRIFTLESS_JAVA_OPTIONS"
"""The variable with an operator's own options for the JVM."""
ARCHIVE = Path(sys.prefix) / "share" / "driftless" / "spark.jsa"
"""Spark's classes, ready to be mapped; see jobs/spark/class_archive.py."""
ARROW_ROWS = 5_000
"""Rows of an Arrow batch on the executors: bounds the memory of a Python worker and the size of one write."""
ARROW_BYTES = 8 << 20
"""The same in bytes, but for the last row."""


_GATEWAY = "PYSPARK_GATEWAY_PORT"

HERE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
"""Where a session of our own is; one that was submitted to a cluster is where spark-submit says."""

SETTINGS = {
    "spark.app.name": "driftless",
    "spark.ui.showConsoleProgress": "false",
    "spark.speculation": "false",  # a second copy of a task would only write everything twice
    "spark.scheduler.mode": "FAIR",  # one follower's bulk load must not hold back another's single change
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BYTES),
    # The second version of the Kafka source plans a batch 20 ms faster than the first (docs/benchmarks.md).
    "spark.sql.sources.useV1SourceList": "",
    # Our plans differ only in offsets and literals; there is nothing to adapt in one stage.
    "spark.sql.adaptive.enabled": "false",
    # A JSON number must come out as the text that went in.
    "spark.sql.json.enableExactStringParsing": "true",
    # Of a key that an object has twice, `to_jsonb` keeps the last.
    "spark.sql.variant.allowDuplicateKeys": "true",
    # A column may be called ${HOME}.
    "spark.sql.variable.substitute": "false",
    # What Spark's parser learns of each text that it reads, which it would keep without bound: percent of the heap.
    # A bound below what the text of one wide table takes makes Spark parse that text from nothing each time.
    "spark.sql.parser.manageParserCaches": "true",
    "spark.sql.parser.parserDfaCacheFlushRatio": "20",
    # Nobody looks at what ended slices were; with Spark's own numbers the heap grows for the first thousand.
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "5",
    # Options of the Kafka source are shown in plans, and so in Spark's UI and event log: passwords and keys are not.
    "spark.redaction.regex": r"(?i)secret|password|token|access[.]?key|jaas|keystore|ssl\.key",
    # A misread date must be an error, not null.
    "spark.sql.ansi.enabled": "true",
}


def submitted() -> bool:
    """Whether spark-submit started this process: then it says where to run, with which jars and how much memory."""
    return _GATEWAY in os.environ


def session(
    jars: Sequence[Path],
    *,
    security: KafkaSecurity | None = None,
    master: str = "local[2]",
    memory: str = "1g",
    java_options: str | None = None,
) -> SparkSession:
    """Start Spark in this process, or join the cluster that spark-submit names.

    `jars`: the Kafka source, which the Python package lacks; `security`: how it logs in. `java_options`: in place of
    those that use the archive. They, `master` and `memory` mean nothing where this process was submitted.
    """
    settings = dict(SETTINGS)
    if not submitted():
        # Workers must run this interpreter: with another one they die at once ("worker exited unexpectedly").
        os.environ["PYSPARK_PYTHON"] = sys.executable
        settings |= HERE | {"spark.master": master}
        # Not `spark.jars`: those are loaded by a class loader whose classes no archive can hold.
        settings["spark.driver.extraClassPath"] = os.pathsep.join(str(jar) for jar in jars)
        settings["spark.driver.memory"] = memory
        logging = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
        archive = f'"-XX:SharedArchiveFile={ARCHIVE}" "-Xlog:cds*=off"' if ARCHIVE.exists() else ""
        options = archive if java_options is None else java_options
        options += "".join(f' "{option}"' for option in java_properties(security))
        more = os.environ.get(JAVA_OPTIONS, "")
        settings["spark.driver.extraJavaOptions"] = f"-XX:+UseSerialGC {_JIT} {logging} {options} {more}"
    # It would write the values that an error of Spark quotes into the log.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        context = _context(SparkConf().setAll(list(settings.items())))
        with _without_extensions(context) if is_private_spark_known() and not submitted() else nullcontext():
            spark = SparkSession.builder.getOrCreate()
    except KeyboardInterrupt:
        # A JVM whose start is interrupted does not notice that nobody waits for it, and would outlive this process.
        for child in psutil.Process().children():
            with suppress(psutil.NoSuchProcess):
                child.kill()
        raise
    if threading.current_thread() is threading.main_thread():
        # Spark puts its own handler in place, which cancels every job; how to end is the caller's affair.
        signal.signal(signal.SIGINT, interrupt)
    if submitted() and not _has_kafka_source(spark):
        spark.stop()
        raise ConfigError("Spark was submitted without its Kafka source", hint="add `--jars $(python -m stack spark)`")
    report_private_spark(spark)
    return spark


def _has_kafka_source(spark: SparkSession) -> bool:
    """Spark looks for it before it asks which topic is meant, and says of each in another way."""
    try:
        spark.read.format("kafka").load()
    except AnalysisException:
        return False
    except PySparkException:
        pass
    return True


def _context(conf: SparkConf) -> SparkContext:
    """In a JVM of its own, where there is none yet."""
    if submitted():
        return SparkContext.getOrCreate(conf)
    if not is_private_spark_known():  # another Spark may have no gateway to ask for
        with quiet_children():
            return SparkContext.getOrCreate(conf)
    if running_gateway() is not None:
        return SparkContext.getOrCreate(conf)
    with quiet_start() as stderr:
        gateway = launch_gateway(conf, {"stderr": stderr})  # type: ignore[no-untyped-call]
    return SparkContext(conf=conf, gateway=gateway)


@contextmanager
def _without_extensions(context: SparkContext) -> Iterator[None]:
    """A session that is made meanwhile looks for no extensions in jars.

    The only ones are two functions of Spark's MLlib, for which it would start Scala's reflection: 0.9 s of every start.
    """
    jvm = jvm_of(context)
    # Py4J must find classes all the same.
    jvm.py4j.reflection.ReflectionUtil.setClassLoadingStrategy(jvm.py4j.reflection.RootClassLoadingStrategy())
    thread = jvm.java.lang.Thread.currentThread()
    before = thread.getContextClassLoader()
    thread.setContextClassLoader(jvm.java.lang.ClassLoader.getPlatformClassLoader())
    try:
        yield
    finally:
        thread.setContextClassLoader(before)


GONE = (Py4JNetworkError, ConnectionError)
"""What whoever asks Spark for something meets where its JVM has ended."""


def cancel(spark: SparkSession, group: str) -> None:
    """Cancel a group's jobs. A JVM that is gone, as when a whole process group is told to end, runs none."""
    with suppress(Py4JError, OSError):
        spark.sparkContext.cancelJobGroup(group)


def stop(spark: SparkSession) -> None:
    """End Spark, if it has not ended already."""
    with suppress(Py4JError, OSError):
        spark.stop()


def name_jobs(spark: SparkSession, group: str, what: str, pool: str) -> None:
    """Have what this thread asks of Spark bear a name, by which it can be cancelled, and share the machine fairly."""
    spark.sparkContext.setJobGroup(group, what, interruptOnCancel=True)
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
