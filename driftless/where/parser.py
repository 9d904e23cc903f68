"""Read a `where`, or what is computed, with sqlglot. What is not in the small grammar is refused at its place.

First the words and signs one by one, which tells most mistakes exactly; then the tree that sqlglot makes of them. A
node or an argument of a node that is not named here is refused, so a newer sqlglot can only refuse more.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import TypeVar

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token

from driftless.where.ast import (
    Among,
    AmongElements,
    Case,
    Compare,
    Condition,
    Is,
    IsNull,
    Junction,
    Like,
    Name,
    Not,
    Operation,
    Term,
    Truth,
)
from driftless.where.literals import Literal, like_pattern
from driftless.where.words import KEYWORDS, SIGNS, WORD, Problems, screen

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
_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.DPipe: "||",
    exp.Nullif: "nullif",
}
_OF_ONE: dict[type[exp.Expr], str] = {
    exp.Neg: "negate",
    exp.Lower: "lower",
    exp.Upper: "upper",
    exp.Length: "length",
}
_PATHS: dict[type[exp.Expr], str] = {exp.JSONExtract: "->", exp.JSONExtractScalar: "->>"}
_LONGEST = 20_000
_Read = TypeVar("_Read")


def read(text: str) -> tuple[Condition | None, Problems]:
    """The condition, or None; and every mistake with its place in the text."""
    reader, tree, problems = _tree(text)
    return (None, problems) if tree is None else reader.read(tree, reader.condition)


def read_term(text: str) -> tuple[Term | None, Problems]:
    """The same of a value that is computed."""
    reader, tree, problems = _tree(text)
    return (None, problems) if tree is None else reader.read(tree, reader.term)


def _tree(text: str) -> tuple[_Reader, exp.Expr | None, Problems]:
    reader = _Reader([])
    if not text.strip():
        return reader, None, [(0, "is empty")]
    if len(text) > _LONGEST:
        return reader, None, [(0, f"is longer than {_LONGEST} characters")]
    odd = next((i for i, c in enumerate(text) if c == "\0" or "\ud800" <= c <= "\udfff"), None)
    if odd is not None:
        return reader, None, [(odd, "has a character that no text in Postgres can have")]
    try:
        tokens = Postgres().tokenize(text)
    except TokenError:
        rest = _COMPLETE.sub(lambda match: " " * len(match[0]), text)
        return reader, None, [(min((rest.find(c) for c in "'\"/" if c in rest), default=0), "this is never closed")]
    problems = screen(text, tokens)
    if problems:
        return reader, None, problems
    try:
        trees = Postgres().parse_into(exp.Condition, text)
    except ParseError as exc:
        return reader, None, [_syntax(text, exc)]
    except RecursionError:
        return reader, None, [(0, "has too many parentheses within each other")]
    tree = trees[0] if len(trees) == 1 else None
    what = "is empty" if not tokens else f"{tokens[0].text} is not expected here"
    return _Reader(tokens), tree, [] if tree is not None else [(0, what)]


def _syntax(text: str, exc: ParseError) -> tuple[int, str]:
    error = exc.errors[0]
    lines = text.splitlines(keepends=True)
    found = str(error.get("highlight") or "")
    at = sum(map(len, lines[: int(error["line"]) - 1])) + int(error["col"]) - len(found)
    shown = found if WORD.fullmatch(found) or found in SIGNS else "this"
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

    def read(self, tree: exp.Expr, reading: Callable[[exp.Expr], _Read | None]) -> tuple[_Read | None, Problems]:
        try:
            return reading(tree), self._problems
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

    def condition(self, node: exp.Expr) -> Condition | None:
        negated = bool(node.args.get("negate"))
        found = self._positive(node)
        return Not(found) if negated and found is not None else found

    def _positive(self, node: exp.Expr) -> Condition | None:
        match node:
            case exp.Paren() if self._only(node, "this"):
                return self.condition(node.this)
            case exp.And() | exp.Or() if self._only(node, "this", "expression"):
                parts = [self.condition(part) for part in node.flatten()]
                word = "AND" if isinstance(node, exp.And) else "OR"
                return Junction(word, tuple(part for part in parts if part is not None))
            case exp.Not() if self._only(node, "this"):
                inner = self.condition(node.this)
                return None if inner is None else Not(inner)
            case exp.Is() if self._only(node, "this", "expression", "negate"):
                return self._is(node)
            case exp.In() if self._only(node, "this", "expressions", "negate") and node.expressions:
                return self._in(node)
            case exp.Between() if self._only(node, "this", "low", "high"):
                return self._between(node)
            case exp.Like() if self._only(node, "this", "expression", "negate"):
                return self._like(node)
            case exp.Column() | exp.Case() | exp.Coalesce() | exp.Nullif():
                term = self.term(node)
                return None if term is None else Truth(term)
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
        if isinstance(right, exp.Any):
            return self._element(left, operator, right)
        first, second = self.term(left), self.term(right)
        if first is None or second is None:
            return None
        if isinstance(first, Literal):
            if isinstance(second, Literal):
                self._refuse(left, "compare a column with a literal or with another column")
                return None
            first, second, operator = second, first, turned
        return Compare(first, operator, second)

    def _element(self, left: exp.Expr, operator: str, right: exp.Any) -> Condition | None:
        if operator != "=":
            self._refuse(right, "before ANY stands =")
            return None
        term, array = self.term(left), self._name(right.this)
        return None if term is None or array is None else AmongElements(term, array)

    def _is(self, node: exp.Is) -> Condition | None:
        match node.expression:
            case exp.Null():
                term = self._left(node.this)
                return None if term is None else IsNull(term)
            case exp.Boolean():
                inner = self.condition(node.this)
                return None if inner is None else Is(inner, bool(node.expression.this))
        self._refuse(node.expression, "IS is for NULL, TRUE and FALSE")
        return None

    def _like(self, node: exp.Like) -> Condition | None:
        term, literal = self._left(node.this), self._literal(node.expression)
        if term is None or literal is None:
            return None
        pattern = like_pattern(literal.text) if literal.form == "string" else None
        if pattern is None:
            what = "the pattern ends with a single backslash" if literal.form == "string" else "a pattern is text"
            self._refuse(node.expression, what)
            return None
        return Like(term, pattern)

    def _in(self, node: exp.In) -> Condition | None:
        term = self._left(node.this)
        values = [self._literal(value) for value in node.expressions]
        given = tuple(value for value in values if value is not None)
        return None if term is None or len(given) < len(values) else Among(term, given)

    def _between(self, node: exp.Between) -> Condition | None:
        term = self._left(node.this)
        low, high = self._literal(node.args["low"]), self._literal(node.args["high"])
        if term is None or low is None or high is None:
            return None
        return Junction("AND", (Compare(term, ">=", low), Compare(term, "<=", high)))

    def _left(self, node: exp.Expr) -> Term | None:
        term = self.term(node)
        if isinstance(term, Literal):
            self._refuse(node, "a column is expected here")
            return None
        return term

    def term(self, node: exp.Expr) -> Term | None:
        node = _bare(node)
        match node:
            case exp.Column():
                return self._name(node)
            case exp.Literal() | exp.Boolean():
                return self._literal(node)
            case exp.Neg() if isinstance(node.this, exp.Literal):
                return self._literal(node)
            case exp.Coalesce() if self._only(node, "this", "expressions"):
                return self._call("coalesce", node, [node.this, *node.expressions])
            case exp.Replace() if self._only(node, "this", "expression", "replacement") and len(node.args) >= 3:
                return self._call("replace", node, [node.this, node.expression, node.args["replacement"]])
            case exp.Case() if self._only(node, "this", "ifs", "default"):
                return self._case(node)
        if type(node) in _PATHS and self._only(node, "this", "expression", "only_json_types"):
            return self._path(node)
        if type(node) in _OPERATORS and self._only(node, "this", "expression", "typed", "safe"):
            return self._call(_OPERATORS[type(node)], node, [node.this, node.expression])
        if type(node) in _OF_ONE and self._only(node, "this"):
            return self._call(_OF_ONE[type(node)], node, [node.this])
        self._refuse(node, "a column, a literal or what is computed of them is expected here")
        return None

    def _call(self, function: str, node: exp.Expr, parts: list[exp.Expr]) -> Term | None:
        terms = [self.term(part) for part in parts]
        given = tuple(term for term in terms if term is not None)
        if len(given) < len(terms):
            return None
        if function in "/%" and not _never_zero(given[1]):
            self._refuse(parts[1], "this can be 0, which ends the statement in Postgres: write nullif(..., 0)")
            return None
        return Operation(function, given, self._at(node))

    def _path(self, node: exp.Expr) -> Term | None:
        of, step = self.term(node.this), node.expression
        if isinstance(step, exp.JSONPath):
            (*_, last) = step.expressions
            key = last.this if isinstance(last, exp.JSONPathKey | exp.JSONPathSubscript) else None
        else:
            literal = self._literal(step)
            key = None if literal is None or literal.form != "number" else literal.text
        if of is None or key is None or isinstance(of, Literal):
            self._refuse(node, "a path begins at a column and has names in quotes, or numbers: data -> 'a' ->> 0")
            return None
        text = isinstance(key, str) and isinstance(step, exp.JSONPath)
        return Operation(_PATHS[type(node)], (of, Literal(str(key), "string" if text else "number", 0)), self._at(node))

    def _case(self, node: exp.Case) -> Term | None:
        of = node.args.get("this")
        branches: list[tuple[Condition, Term]] = []
        for branch in node.args["ifs"]:
            when = branch.this
            if of is not None:
                when = exp.EQ(this=of.copy(), expression=when.copy())
            condition, value = self.condition(when), self.term(branch.args["true"])
            if condition is None or value is None:
                return None
            branches.append((condition, value))
        last = node.args.get("default")
        otherwise = None if last is None else self.term(last)
        if last is not None and otherwise is None:
            return None
        return Case(tuple(branches), otherwise, self._at(node))

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


def _never_zero(divisor: Term) -> bool:
    match divisor:
        case Literal():
            return divisor.form == "number" and Decimal(divisor.text) != 0
        case Operation("nullif", (_, Literal() as excluded)):
            return excluded.form == "number" and Decimal(excluded.text) == 0
    return False


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node
