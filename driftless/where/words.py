"""The words and signs of a `where`, looked at one by one before it is read: that tells most mistakes exactly."""

from __future__ import annotations

import re

from sqlglot.tokenizer_core import Token, TokenType

Problems = list[tuple[int, str]]
"""Each where it begins in the text, and what."""

SIGNS = {"=", "<>", "!=", "<", "<=", ">", ">=", "(", ")", ",", "+", "-", "*", "/", "%", "||", "->", "->>"}
_WORDS = {"and", "or", "not", "in", "is", "null", "true", "false", "between", "like", "any"}
_WORDS |= {"case", "when", "then", "else", "end"}
_INSTEAD = {
    **{
        name: f"{name} is over rows: write it in a relation of `many`, as `{name}: ...`"
        for name in ("count", "sum", "min", "max", "avg")
    },
    "concat": "write a || b, and coalesce(a, '') for what may be null",
}
"""Functions that somebody would look for, and what there is for them."""
_FUNCTIONS = ("lower", "upper", "length", "coalesce", "nullif", "replace")
# What may not be a bare column in Postgres: the words that pg_get_keywords() has as R and T. And `if`, which sqlglot
# takes for the beginning of a statement.
_LIST = """
    all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate collation
    column concurrently constraint create cross current_catalog current_date current_role current_schema current_time
    current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign freeze
    from full grant group having if ilike in initially inner intersect into is isnull join lateral leading left like
    limit localtime localtimestamp natural not notnull null offset on only or order outer overlaps placing primary
    references returning right select session_user similar some symmetric system_user table tablesample then to
    trailing true union unique user using variadic verbose when where window with
"""
KEYWORDS = frozenset(_LIST.split())
WORD = re.compile(r"[^\W\d][\w$]*")
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?")


def screen(text: str, tokens: list[Token]) -> Problems:
    """Words and signs that the grammar does not have."""
    raw = [text[token.start : token.end + 1] for token in tokens]
    kinds = [token.token_type for token in tokens]
    problems = []
    for index, token in enumerate(tokens):
        # What stands around it; nothing beyond the ends.
        before, after = raw[index - 1] if index else "", [*raw, ""][index + 1]
        kind_after = [*kinds, None][index + 1]
        named = kinds[index] == TokenType.IDENTIFIER
        problem = None
        if named or WORD.fullmatch(raw[index]):
            is_ = [word.lower() for word in raw[max(0, index - 2) : index] if word.lower() != "not"][-1:] == ["is"]
            problem = None if named else _keyword(raw[index], after_is=is_)
            if problem is None and (named or raw[index].lower() not in _WORDS):
                problem = _call(raw[index], after, kind_after)
        elif kinds[index] == TokenType.NUMBER:
            problem = None if _NUMBER.fullmatch(raw[index]) else "this is no plain number; write 12 or 0.5"
        elif not (kinds[index] == TokenType.STRING and raw[index].startswith("'")):
            problem = _sign(raw[index], before, kind_after)
        if problem is not None:
            problems.append((token.start, problem))
    return problems


def _keyword(raw: str, *, after_is: bool) -> str | None:
    word = raw.lower()
    if (word == "null" and not after_is) or (word == "unknown" and after_is):
        return "write IS NULL or IS NOT NULL" if after_is else "nothing equals NULL; write IS NULL or IS NOT NULL"
    if word in KEYWORDS - _WORDS:
        return f'the keyword {raw} is not admitted here; a column of that name is written "{word}"'
    return None


def _call(name: str, after: str, kind_after: TokenType | None) -> str | None:
    if after == "(" and name.lower() in _INSTEAD:
        return _INSTEAD[name.lower()]
    if after == "(" and name.lower() not in _FUNCTIONS:
        return f"there is no function {name} here, but {', '.join(_FUNCTIONS)}"
    if after == ".":
        return f"name the column alone, without {name} before it"
    if kind_after == TokenType.STRING:
        return f"{name} before a literal is not admitted; write the literal alone"
    return None


def _sign(raw: str, before: str, kind_after: TokenType | None) -> str | None:
    if raw == "." and (before.endswith('"') or WORD.fullmatch(before)):
        return None  # told at the name before it
    if raw == "." and kind_after == TokenType.NUMBER:
        return "write the number with a digit before the point"
    if raw == "==":
        return "write ="
    if raw in SIGNS:
        return None
    if re.fullmatch(r"[^\w\s'\"$]+", raw):
        return f"{raw} is not admitted; there is = <> < <= > >= IN BETWEEN LIKE IS AND OR NOT + - * / % || -> ->>"
    return "literals are written 'text', 12.5, TRUE or FALSE"
