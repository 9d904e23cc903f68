"""Log in to the brokers with the Java client, which Spark reads the log with, before anything rests on it."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # type: ignore[import-untyped]
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from driftless.config.kafka_security import KafkaSecurity, java_properties
from driftless.errors import ConfigError, SourceUnavailable
from driftless.kafka.client import TIMEOUT, Kafka
from jobs.spark.consumer import BYTES
from jobs.spark.java_key import unlock
from jobs.spark.private import is_private_spark_usable, jvm_of
from jobs.spark.refused import refusal
from jobs.spark.session import JAVA_OPTIONS

_NEEDED = (
    "py4j-*.jar",
    "slf4j-api-*.jar",
    "lz4-java-*.jar",
    "jackson-core-2*.jar",
    "jackson-databind-*.jar",
    "jackson-annotations-*.jar",
)
"""Of Spark's own jars, what Kafka's client and the way to it need."""


def log_in(jvm: Any, kafka: Kafka) -> None:
    """Connect, as all that comes after it does. Raises SourceMisconfigured where brokers refuse that, and
    SourceUnavailable where none answers.
    """
    unlock(jvm, kafka)
    settings = jvm.java.util.HashMap()
    for name, value in {**kafka.java_settings(), "key.deserializer": BYTES, "value.deserializer": BYTES}.items():
        settings.put(name, value)
    try:
        consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(settings)
        try:
            # Of a topic that there is not: to learn of all would take long where there are thousands.
            consumer.partitionsFor("", jvm.java.time.Duration.ofMillis(int(TIMEOUT * 1000)))
        finally:
            consumer.close(jvm.java.time.Duration.ZERO)
    except Py4JJavaError as exc:
        # A broker says so to whom it knows: there can be no such topic, and so no right to one.
        if exc.java_exception.getClass().getSimpleName() in ("InvalidTopicException", "TopicAuthorizationException"):
            return
        cause = exc.java_exception
        raise refusal(str(exc)) or SourceUnavailable(
            f"Spark's client of Kafka does not reach the brokers: {cause.getClass().getSimpleName()}: "
            f"{cause.getMessage()}",
            hint="are the addresses that the brokers advertise reachable from this machine?",
        ) from None


def log_in_as_spark(spark: SparkSession, kafka: Kafka, jars: Sequence[Path]) -> None:
    """The same, where brokers ask for it, with the client of Spark's own JVM, or one like it. `jars`: of Spark's Kafka
    source.
    """
    if kafka.security is None:
        return
    if is_private_spark_usable(spark):
        log_in(jvm_of(spark), kafka)
    else:
        log_in_without_spark(kafka, jars)


def log_in_without_spark(kafka: Kafka, jars: Sequence[Path]) -> None:
    """The same, with the client of a JVM that is started for it."""
    with small_jvm(jars, kafka.security) as jvm:
        log_in(jvm, kafka)


@contextmanager
def small_jvm(jars: Sequence[Path], security: KafkaSecurity | None = None) -> Iterator[Any]:
    """A JVM with Kafka's client and without Spark, which starts in a second. `jars`: of Spark's Kafka source;
    `security`: how its client logs in.
    """
    own = Path(pyspark.__file__).parent / "jars"
    classpath = [*jars, *(jar for pattern in _NEEDED for jar in sorted(own.glob(pattern)))]
    options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    options += java_properties(security)
    options += shlex.split(os.environ.get(JAVA_OPTIONS, ""))
    try:
        port, token, process = launch_gateway(
            classpath=os.pathsep.join(map(str, classpath)),
            javaopts=options,
            die_on_exit=True,
            java_path=None,
            enable_auth=True,
            return_proc=True,
            redirect_stderr=subprocess.DEVNULL,
        )
    except (OSError, ValueError, Py4JError) as exc:
        raise ConfigError(f"Java cannot be started: {exc}", hint="set JAVA_HOME to a JDK, 17 or newer") from exc
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway.jvm
    finally:
        with suppress(Py4JError, OSError):
            gateway.shutdown()
        process.kill()
        process.wait(10)
