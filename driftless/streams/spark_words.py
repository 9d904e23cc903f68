"""The words of a text in Spark's SQL, where they stand: what a text names, whatever it means."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType


@dataclass(frozen=True)
class SqlWord:
    """`start`: of its first character in the text. `quoted`: it is a string, or a name in quotes."""

    text: str
    start: int
    quoted: bool


def spark_words(sql: str) -> list[SqlWord]:
    """Every word and sign but comments; none where it ends within a string: whoever parses it says so."""
    try:
        tokens = Spark().tokenize(sql)
    except TokenError:
        return []
    return [SqlWord(t.text, t.start, t.token_type in (TokenType.STRING, TokenType.IDENTIFIER)) for t in tokens]
