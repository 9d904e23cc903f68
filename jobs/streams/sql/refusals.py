"""What a stream's SQL may not call: its answer would depend on the time or the order, and the proof fail by chance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import pairwise

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from driftless.streams.spark_words import SqlWord, spark_words
from jobs.streams.sql.place import place
from jobs.streams.sql.query import plan_text

_CLOCK = "another answer at another time; use the events' own time"
_CHANCE = "another answer each time"
_ORDER = "another answer in another order of the events"
_ABOUT = f"{_ORDER}: it is no exact number"
_SKETCH = f"{_ORDER}; theta sketches and approx_count_distinct do not"
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("now", "current_timestamp", "current_date", "curdate", "localtimestamp"), _CLOCK),
    **dict.fromkeys(("current_time", "unix_timestamp", "localtime"), _CLOCK),
    **dict.fromkeys(("rand", "random", "randn", "uuid", "shuffle", "randstr", "uniform"), _CHANCE),
    **dict.fromkeys(("monotonically_increasing_id", "spark_partition_id", "input_file_name"), _CHANCE),
    **dict.fromkeys(("first", "first_value", "last", "last_value", "any_value", "mode"), f"{_ORDER}; use min or max"),
    **dict.fromkeys(("max_by", "min_by"), f"{_ORDER} where two are equal; use max or min of a struct"),
    **dict.fromkeys(("collect_list", "array_agg", "listagg", "string_agg"), f"{_ORDER}; put it within sort_array"),
    **dict.fromkeys(("approx_percentile", "percentile_approx"), f"{_ABOUT}; use percentile"),
    **dict.fromkeys(("approx_top_k", "approx_top_k_accumulate", "approx_top_k_combine", "histogram_numeric"), _ABOUT),
    **dict.fromkeys(("hll_sketch_agg", "hll_union_agg"), _SKETCH),
    **dict.fromkeys((f"kll_sketch_agg_{kind}" for kind in ("bigint", "float", "double")), f"{_ABOUT}; use percentile"),
    **dict.fromkeys((f"kll_merge_agg_{kind}" for kind in ("bigint", "float", "double")), f"{_ABOUT}; use percentile"),
    **dict.fromkeys(("double", "float", "real"), f"{_ORDER}, once such numbers are added; use decimal"),
    **dict.fromkeys(("collect_set",), f"{_ORDER}; put it within sort_array"),
    **dict.fromkeys(("stddev", "stddev_pop", "stddev_samp", "std", "variance", "var_pop", "var_samp"), _ORDER),
    **dict.fromkeys(("corr", "covar_pop", "covar_samp", "skewness", "kurtosis"), _ORDER),
    **dict.fromkeys((f"regr_{what}" for what in ("slope", "r2", "intercept", "sxx", "sxy", "syy")), _ORDER),
    **dict.fromkeys(("regr_avgx", "regr_avgy"), _ORDER),
    "limit": f"{_ORDER}; use HAVING, or a key that holds what you want",
    "tablesample": _CHANCE,
    "watermark": "what is late is said by `lateness` of the events",
}
_BARE = ("current_timestamp", "current_date", "current_time", "localtimestamp", "localtime", "watermark", "tablesample")
"""Those that are written without brackets, too."""
_SORTABLE = ("collect_set", "collect_list", "array_agg")
"""Those that are the same in any order once they are within sort_array."""
_TYPES = ("double", "float", "real")
_NUMBERED = ("limit",)
"""Those that a number follows: a column may have such a name."""
_ADDS = frozenset({"sum", "avg", "mean", "try_sum", "try_avg"})
_PROBE = -8_470_913


def refused(sql: str) -> Iterator[str]:
    """Each such call, with its place."""
    words = spark_words(sql)
    for number, (word, after) in enumerate(zip(words, [*words[1:], None], strict=True)):
        name = word.text.lower()
        if name in _SORTABLE and number > 1 and words[number - 2].text.lower() == "sort_array":
            continue
        called = name in _BARE or name in _TYPES or (after is not None and after.text == "(")
        called = called or (name in _NUMBERED and after is not None and after.text.isdigit())
        if name in _REFUSED and called and not word.quoted:
            yield f"{place(sql, word.start)}: `{word.text}` gives {_REFUSED[name]}"


def sums_of_fractions(spark: SparkSession, sql: str) -> Iterator[str]:
    """Each sum of binary fractions, with its place: the order of events decides what it is. A division of integers
    gives such, and so does a root.

    Of what type a summand is, Spark says by what its optimizer leaves of a condition on that.
    """
    words = spark_words(sql)
    for word, after in pairwise(words):
        if word.quoted or word.text.lower() not in _ADDS or after.text != "(":
            continue
        begin, end = after.start + 1, _closing(words, after)
        summand = sql[begin:end]
        condition = f"typeof({summand}) IN ('double', 'float')"
        probed = f"{sql[:begin]} if({condition}, nullif({summand}, {_PROBE}), {summand}\n) {sql[end:]}"
        with suppress(PySparkException):
            if str(abs(_PROBE)) in plan_text(spark.sql(probed)):
                what = f"`{word.text}` of binary fractions gives {_ORDER}; have it add decimals, by CAST(... AS decimal"
                yield f"{place(sql, word.start)}: {what}(18,6))"


def _closing(words: list[SqlWord], opening: SqlWord) -> int:
    """Where the bracket ends that begins there."""
    depth = 0
    for word in words:
        if word.start >= opening.start and not word.quoted:
            depth += {"(": 1, ")": -1}.get(word.text, 0)
            if depth == 0:
                return word.start
    return opening.start + 1
