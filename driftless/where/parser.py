"""Read a `where` with sqlglot. What is not in the small grammar is refused at its place, never guessed at.

First the words and signs one by one, which tells most mistakes exactly; then the tree that sqlglot makes of them. A
node or an argument of a node that is not named here is refused, so a newer sqlglot can only refuse more.
"""

from __future__ import annotations

import re

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from driftless.where.ast import Among, Compare, Condition, Is, IsNull, Junction, Like, Name, Not, Truth
from driftless.where.literals import Literal, like_pattern

Problems = list[tuple[int, str]]

_SIGNS = {"=", "<>", "!=", "<", "<=", ">", ">=", "(", ")", ",", "-"}
_WORDS = {"and", "or", "not", "in", "is", "null", "true", "false", "between", "like"}
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
_WORD = re.compile(r"[^\W\d][\w$]*")
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?")
_COMPLETE = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_COMPARISONS: dict[type[exp.Expr], tuple[str, str]] = {
    # The operator, and the same with its sides exchanged.
    exp.EQ: ("=", "="),
    exp.NEQ: ("<>", "<>"),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
}
_LONGEST = 20_000


def read(text: str) -> tuple[Condition | None, Problems]:
    """The condition, or None; and every mistake with its place in the text."""
    if not text.strip():
        return None, [(0, "is empty")]
    if len(text) > _LONGEST:
        return None, [(0, f"is longer than {_LONGEST} characters")]
    odd = next((i for i, c in enumerate(text) if c == "\0" or "\ud800" <= c <= "\udfff"), None)
    if odd is not None:
        return None, [(odd, "has a character that no text in Postgres can have")]
    try:
        tokens = Postgres().tokenize(text)
    except TokenError:
        rest = _COMPLETE.sub(lambda match: " " * len(match[0]), text)
        return None, [(min((rest.find(c) for c in "'\"/" if c in rest), default=0), "this is never closed")]
    problems = _screen(text, tokens)
    if problems:
        return None, problems
    try:
        (tree,) = Postgres().parse_into(exp.Condition, text)
    except ParseError as exc:
        return None, [_syntax(text, exc)]
    except RecursionError:
        return None, [(0, "has too many parentheses within each other")]
    if tree is None:
        return None, [(0, "is empty")]
    return _Reader(tokens).read(tree)


def _screen(text: str, tokens: list[Token]) -> Problems:
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
        if named or _WORD.fullmatch(raw[index]):
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
    if after == "(":
        return f"functions are not admitted: {name}"
    if after == ".":
        return f"name the column alone, without {name} before it"
    if kind_after == TokenType.STRING:
        return f"{name} before a literal is not admitted; write the literal alone"
    return None


def _sign(raw: str, before: str, kind_after: TokenType | None) -> str | None:
    if raw == "." and (before.endswith('"') or _WORD.fullmatch(before)):
        return None  # told at the name before it
    if raw == "." and kind_after == TokenType.NUMBER:
        return "write the number with a digit before the point"
    if raw == "==":
        return "write ="
    alone = not before or before[-1] in "=<>(," or before.lower() in _WORDS
    if raw in _SIGNS and (raw != "-" or (alone and kind_after == TokenType.NUMBER)):
        return None
    if re.fullmatch(r"[^\w\s'\"$]+", raw):
        return f"{raw} is not admitted; there is = <> < <= > >= IN BETWEEN LIKE IS AND OR NOT"
    return "literals are written 'text', 12.5, TRUE or FALSE"


def _syntax(text: str, exc: ParseError) -> tuple[int, str]:
    error = exc.errors[0]
    lines = text.splitlines(keepends=True)
    found = str(error.get("highlight") or "")
    at = sum(map(len, lines[: int(error["line"]) - 1])) + int(error["col"]) - len(found)
    shown = found if _WORD.fullmatch(found) or found in _SIGNS else "this"
    if str(error["description"]).startswith("Expecting )"):
        return at, "a parenthesis is not closed behind this"
    if str(error["description"]).startswith("Required keyword"):
        return at, f"something is missing next to {shown}"
    return at, f"{shown} is not expected here"


class _Reader:
    """From sqlglot's tree to ours, with every mistake on the way."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._problems: Problems = []

    def read(self, tree: exp.Expr) -> tuple[Condition | None, Problems]:
        try:
            return self._condition(tree), self._problems
        except RecursionError:
            return None, [(0, "has too many parentheses within each other")]

    def _refuse(self, node: exp.Expr, what: str) -> None:
        self._problems.append((self._at(node), what))

    def _at(self, node: exp.Expr) -> int:
        """Where a node begins. TRUE and FALSE do not know: the next such word behind what stands before them."""
        starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        if starts:
            return int(min(starts))
        parent = node.parent
        behind = -1
        while parent is not None and behind < 0:
            behind = min((part.meta["start"] for part in parent.walk() if "start" in part.meta), default=-1)
            parent = parent.parent
        words = (t.start for t in self._tokens if t.start > behind and t.text.lower() in ("true", "false"))
        return next(words, 0)

    def _only(self, node: exp.Expr, *names: str) -> bool:
        """Whether a node has no arguments but these; others would be lost without a word."""
        return {name for name, value in node.args.items() if value not in (None, False, [])} <= set(names)

    def _condition(self, node: exp.Expr) -> Condition | None:
        negated = bool(node.args.get("negate"))
        found = self._positive(node)
        return Not(found) if negated and found is not None else found

    def _positive(self, node: exp.Expr) -> Condition | None:
        match node:
            case exp.Paren() if self._only(node, "this"):
                return self._condition(node.this)
            case exp.And() | exp.Or() if self._only(node, "this", "expression"):
                parts = [self._condition(part) for part in node.flatten()]
                word = "AND" if isinstance(node, exp.And) else "OR"
                return Junction(word, tuple(part for part in parts if part is not None))
            case exp.Not() if self._only(node, "this"):
                inner = self._condition(node.this)
                return None if inner is None else Not(inner)
            case exp.Is() if self._only(node, "this", "expression", "negate"):
                return self._is(node)
            case exp.In() if self._only(node, "this", "expressions", "negate") and node.expressions:
                return self._in(node)
            case exp.Between() if self._only(node, "this", "low", "high"):
                return self._between(node)
            case exp.Like() if self._only(node, "this", "expression", "negate"):
                return self._like(node)
            case exp.Column():
                column = self._name(node)
                return None if column is None else Truth(column)
            case exp.Literal() | exp.Boolean() | exp.Neg():
                self._refuse(node, "a literal alone is no condition; compare a column with it")
                return None
        if type(node) in _COMPARISONS and self._only(node, "this", "expression"):
            return self._comparison(node)
        self._refuse(node, "this is not in the grammar of `where`")
        return None

    def _comparison(self, node: exp.Expr) -> Condition | None:
        operator, turned = _COMPARISONS[type(node)]
        left, right = _bare(node.this), _bare(node.expression)
        if not isinstance(left, exp.Column) and isinstance(right, exp.Column):
            left, right, operator = right, left, turned
        if not isinstance(left, exp.Column):
            self._refuse(left, "compare a column with a literal or with another column")
            return None
        column = self._name(left)
        other = self._name(right) if isinstance(right, exp.Column) else self._literal(right)
        return None if column is None or other is None else Compare(column, operator, other)

    def _is(self, node: exp.Is) -> Condition | None:
        match node.expression:
            case exp.Null():
                column = self._name(node.this)
                return None if column is None else IsNull(column)
            case exp.Boolean():
                inner = self._condition(node.this)
                return None if inner is None else Is(inner, bool(node.expression.this))
        self._refuse(node.expression, "IS is for NULL, TRUE and FALSE")
        return None

    def _like(self, node: exp.Like) -> Condition | None:
        column, literal = self._name(node.this), self._literal(node.expression)
        if column is None or literal is None:
            return None
        pattern = like_pattern(literal.text) if literal.form == "string" else None
        if pattern is None:
            what = "the pattern ends with a single backslash" if literal.form == "string" else "a pattern is text"
            self._refuse(node.expression, what)
            return None
        return Like(column, pattern)

    def _in(self, node: exp.In) -> Condition | None:
        column = self._name(node.this)
        values = [self._literal(value) for value in node.expressions]
        given = tuple(value for value in values if value is not None)
        return None if column is None or len(given) < len(values) else Among(column, given)

    def _between(self, node: exp.Between) -> Condition | None:
        column = self._name(node.this)
        low, high = self._literal(node.args["low"]), self._literal(node.args["high"])
        if column is None or low is None or high is None:
            return None
        return Junction("AND", (Compare(column, ">=", low), Compare(column, "<=", high)))

    def _name(self, node: exp.Expr) -> Name | None:
        node = _bare(node)
        if not (isinstance(node, exp.Column) and self._only(node, "this") and isinstance(node.this, exp.Identifier)):
            self._refuse(node, "a column is expected here")
            return None
        text = str(node.this.this)
        if not node.this.args.get("quoted"):
            # As Postgres does: ASCII alone, whatever the language.
            text = "".join(c.lower() if c.isascii() else c for c in text)
            if text in KEYWORDS:
                self._refuse(node, f'a column that is called so is written "{text}"')
                return None
        return Name(text, self._at(node))

    def _literal(self, node: exp.Expr) -> Literal | None:
        node = _bare(node)
        at = self._at(node)
        match node:
            case exp.Boolean():
                return Literal("true" if node.this else "false", "boolean", at)
            case exp.Literal() if node.is_string:
                return Literal(str(node.this), "string", at)
            case exp.Literal():
                return Literal(str(node.this), "number", at)
            case exp.Neg() if isinstance(node.this, exp.Literal) and not node.this.is_string:
                sign = max(token.start for token in self._tokens if token.start < at and token.text == "-")
                return Literal(f"-{node.this.this}", "number", sign)
        self._refuse(node, "a literal is expected here")
        return None


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node
