"""The words of a text in Spark's SQL, where they stand: what a text names, whatever it means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class SqlWord:
    """`start`: of its first character in the text. `quoted`: it is a string, or a name in quotes."""

    text: str
    start: int
    quoted: bool


def spark_words(sql: str) -> list[SqlWord]:
    """Every word and sign but comments; none where it ends within a string: whoever parses it says so."""
    # The library takes 10 MB, and most pipelines have no stream.
    from sqlglot.dialects.spark import Spark
    from sqlglot.errors import TokenError
    from sqlglot.tokenizer_core import TokenType

    try:
        tokens = Spark().tokenize(sql)
    except TokenError:
        return []
    return [SqlWord(t.text, t.start, t.token_type in (TokenType.STRING, TokenType.IDENTIFIER)) for t in tokens]


def outermost(words: Iterable[SqlWord], *texts: str) -> Iterator[SqlWord]:
    """Each of these words that stands outside all brackets. `texts`: in lower case."""
    depth = 0
    for word in words:
        if not word.quoted:
            depth += {"(": 1, ")": -1}.get(word.text, 0)
            if depth == 0 and word.text.lower() in texts:
                yield word


def is_called_outermost(sql: str, function: str) -> bool:
    """Whether it calls a function outside all brackets, as a query does that groups by it."""
    words = spark_words(sql)
    followed = {word.start: after.text for word, after in pairwise(words)}
    return any(followed.get(word.start) == "(" for word in outermost(words, function))
