"""Which of Spark's errors never pass."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from jobs.streams.sql.faults import sql_fault


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("1 / id", "DIVIDE_BY_ZERO"),
        ("9223372036854775807 + 1 + id", "ARITHMETIC_OVERFLOW"),
        ("CAST(concat('x', id) AS INT)", "CAST_INVALID_INPUT"),
        ("array(1)[id + 7]", "INVALID_ARRAY_INDEX"),
        ("CAST(10000000000 + id AS INT)", "CAST_OVERFLOW"),
    ],
)
def test_what_an_expression_cannot_be_computed_of_is_named(spark: SparkSession, expression: str, fault: str) -> None:
    with pytest.raises(PySparkException) as found:
        spark.sql(f"SELECT {expression} AS x FROM range(1)").toArrow()
    assert sql_fault(str(found.value)) == fault


@pytest.mark.parametrize(
    "said", ["", "[STREAM_FAILED] Query terminated", "KafkaException: timed out", "[TASK_FAILED] a worker died"]
)
def test_what_may_pass_is_no_fault_of_the_sql(said: str) -> None:
    assert sql_fault(said) == ""
