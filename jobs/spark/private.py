"""The one door to what Spark does not promise to keep: its JVM, and classes and methods there.

Nothing else names `_jvm`, `_jsparkSession`, `_jdf`, `_jsc` or `_gateway`. Who uses what is behind it asks first whether
it is there (`is_private_spark_usable`); where it is not, logs are read by Kafka's own client, and decoded by what Spark
makes public: slower, and the same (docs/decisions/0020-private-spark-behind-one-door.md).
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)
PUBLIC_ONLY = "DRIFTLESS_PUBLIC_SPARK_ONLY"
"""The variable that keeps the door closed, whatever is behind it."""
VERSION = "4.2"
"""Of Spark: what is below was written against it, and is not used with another."""
_METHODS = {
    "org.apache.spark.sql.kafka010.KafkaRecordToRowConverter": {
        "toInternalRowWithHeaders": 0,
        "toInternalRowWithoutHeaders": 0,
        "kafkaSchema": 1,
    },
    "org.apache.spark.sql.execution.arrow.ArrowConverters$": {
        "createEmptyArrowBatch": 4,
        "toBatchWithSchemaIterator": 7,
    },
    "org.apache.spark.sql.catalyst.expressions.UnsafeProjection": {"create": 2},
    "org.apache.spark.sql.execution.QueryExecution": {"executedPlan": 0},
    "org.apache.spark.sql.execution.ProjectExec": {"projectList": 0, "child": 0},
    "org.apache.spark.sql.execution.RDDScanExec": {"output": 0},
    "org.apache.spark.sql.classic.SparkSession": {"createDataFrame": 2},
    "org.apache.spark.sql.SparkSession": {"setActiveSession": 1},
    "org.apache.spark.api.java.JavaSparkContext": {"emptyRDD": 0},
    "org.apache.spark.api.python.PythonRDD": {"serveIterator": 2},
    "scala.jdk.javaapi.CollectionConverters": {"asScala": 1, "asJavaCollection": 1},
    "org.apache.kafka.clients.consumer.KafkaConsumer": {"poll": 1, "position": 1, "seek": 2, "assign": 1, "metrics": 0},
}
"""Class -> method -> how many arguments it is given."""


def is_private_spark_known() -> bool:
    """Whether it may be used, as far as can be said before Spark has started."""
    return _reason(pyspark.__version__) is None


def is_private_spark_usable(spark: SparkSession) -> bool:
    return is_private_spark_known() and _lacking(spark.sparkContext) is None


def report_private_spark(spark: SparkSession) -> None:
    """Log why nothing private is used, where that is so. To be called once, when Spark has started."""
    found = _reason(pyspark.__version__) or _lacking(spark.sparkContext)
    if found is not None:
        _log.warning("this driftless speaks to Spark %s; %s: it reads by public jobs, which is slower", VERSION, found)


def jvm_of(spark: SparkSession | SparkContext) -> Any:
    return spark._jvm


def java_session_of(spark: SparkSession) -> Any:
    return spark._jsparkSession


def java_frame_of(frame: DataFrame) -> Any:
    return frame._jdf


def java_context_of(spark: SparkSession) -> Any:
    return spark.sparkContext._jsc


def gateway_of(spark: SparkSession) -> Any:
    return spark.sparkContext._gateway


def running_gateway() -> Any:
    """Of this process; None where there is no JVM yet."""
    return SparkContext._gateway


def _reason(version: str) -> str | None:
    """Why nothing private is used with this version of Spark."""
    if os.environ.get(PUBLIC_ONLY, "") not in ("", "0"):
        return f"{PUBLIC_ONLY} is set"
    return None if re.match(rf"{re.escape(VERSION)}\b", version) else f"found {version}"


@cache
def _lacking(context: SparkContext) -> str | None:
    """What of all this is not as it was in the Spark that it was written against."""
    if (reason := _reason(context.version)) is not None:  # a cluster's may be another than ours
        return reason
    try:
        lacking = [*_lacking_members(jvm_of(context))]
    except (AttributeError, TypeError, Py4JError) as exc:
        lacking = [type(exc).__name__]
    return f"found {context.version} without {', '.join(lacking)}" if lacking else None


def _lacking_members(jvm: Any) -> Iterator[str]:
    loader, reflection = jvm.java.lang.Thread.currentThread().getContextClassLoader(), jvm.py4j.reflection
    engine = reflection.ReflectionEngine()
    for name, methods in _METHODS.items():
        try:
            there = loader.loadClass(name)
        except Py4JError:
            yield name
            continue
        for method, count in methods.items():
            if engine.getMethodsByNameAndLength(there, method, count).isEmpty():
                yield f"{name}.{method}"
