"""The one Spark session of a process."""

from __future__ import annotations

from pyspark.sql import SparkSession

from jobs.spark.private import jvm_of


def test_a_session_takes_no_extensions_from_jars_and_finds_classes_all_the_same(spark: SparkSession) -> None:
    jvm = jvm_of(spark)
    registry = getattr(getattr(jvm.org.apache.spark.sql.catalyst.analysis, "FunctionRegistry$"), "MODULE$")
    known = registry.internal().listFunction()
    assert "array_binary_search" in known.mkString(" ")  # of Spark itself
    assert "vector_to_array" not in known.mkString(" ")  # of MLlib, which is among its jars
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    assert loader.loadClass("org.apache.spark.ml.functions").getName() == "org.apache.spark.ml.functions"
