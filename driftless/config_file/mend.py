"""YAML that cannot be read: what is wrong with it in plain words, and the line as it was probably meant.

What was meant is only read on with, so that the other mistakes of the file can be named too. No value is ever quoted in
a message: it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import Node

_KEY = r"(?:- +)?[^\s:#'\"\[\]{}-][^:#'\"\[\]{}]*"
_BRACED_IN_FLOW = re.compile(r"""(?<=[:,\[] )[^\s'"{}\[\],]+(?:\{[^{}]*\}[^\s,'"\]}{]*)+""")
_BRACED_START = re.compile(rf"""^(\s*{_KEY}: +)(\{{[^{{}}]*\}}[^\s}}].*?)(\s+#.*|\s*)$""")
_TWO_COLONS = re.compile(rf"""^(\s*{_KEY}: +)([^\s'"\[{{&*!|>].*?: .*?)(\s+#.*|\s*)$""")
_GLUED = re.compile(r"^(\s*(?:- +)?[A-Za-z_][\w.-]*:)(?=[^\s:/])")
_NO_COLON = re.compile(r"^(\s*(?:- +)?[A-Za-z_][\w.-]*)( +[^\s:#]\S*\s*)$")
_OPEN_QUOTE = re.compile(r"""(?:: |- |[\[{,] ?)(["'])((?!\1).)*$""")
_INDENT = re.compile(r"[ \t]*")


@dataclass(frozen=True)
class Slip:
    """A mistake in the YAML itself. `line` and `column` count from 1."""

    line: int
    column: int
    what: str


@dataclass(frozen=True)
class _Mended:
    slip: Slip
    line: str
    """What the slip's line was probably meant to be."""


def read(text: str) -> tuple[Node | None, str, list[Slip]]:
    """The tree, the text that it was read from, and the slips. Without a tree, the last slip could not be mended.

    The text differs from what was given only within lines, where there are slips.
    """
    lines, slips = text.split("\n"), list[Slip]()
    while True:
        current = "\n".join(lines)
        try:
            return YAML(typ="safe", pure=True).compose(current), current, slips
        except MarkedYAMLError as exc:
            if tabs := _tabs(lines):
                slips.append(tabs)
                lines = _without_tabs(lines)
                continue
            mended = _mend(lines, exc)
            if isinstance(mended, Slip) or any(mended.slip.line == slip.line for slip in slips):
                # What is found wrong with a line that was mended already says more of the mending than of the line.
                if isinstance(mended, Slip) and not any(mended.line == slip.line for slip in slips):
                    slips.append(mended)
                return None, current, slips
            slips.append(mended.slip)
            lines[mended.slip.line - 1] = mended.line


def _tabs(lines: list[str]) -> Slip | None:
    found = [number for number, line in enumerate(lines, 1) if "\t" in _indent(line) and line.strip()]
    if not found:
        return None
    more = f", as are {len(found) - 1} more lines" if len(found) > 2 else f", as is line {found[-1]}" * (len(found) > 1)
    return Slip(found[0], 1, f"indented with a tab{more}: YAML takes spaces only")


def _without_tabs(lines: list[str]) -> list[str]:
    """With as many spaces for a tab as make the file readable."""
    for width in (2, 4, 8):
        made = [_indent(line).replace("\t", " " * width) + line[len(_indent(line)) :] for line in lines]
        try:
            YAML(typ="safe", pure=True).compose("\n".join(made))
        except MarkedYAMLError:
            continue
        return made
    return [_indent(line).replace("\t", "  ") + line[len(_indent(line)) :] for line in lines]


def _mend(lines: list[str], exc: MarkedYAMLError) -> _Mended | Slip:
    problem, context = str(exc.problem or ""), str(exc.context or "")
    mark = exc.problem_mark or exc.context_mark
    number, column = (mark.line, mark.column) if mark else (0, 0)
    number = min(number, len(lines) - 1)
    if "another document" in problem:
        return Slip(number + 1, 1, "a second document begins here with `---`: the file holds one configuration")
    for attempt in _ATTEMPTS:
        mended = attempt(lines, number, column, problem, exc)
        if mended is not None:
            return mended
    said = problem.splitlines()[0] if problem else context
    return Slip(number + 1, column + 1, f"not valid YAML: {_plain(said)}")


def _special_start(lines: list[str], number: int, column: int, problem: str, exc: MarkedYAMLError) -> _Mended | None:
    """`columns: *`, `url: @x`, `[*]`, `key: %x`."""
    if "alias" in str(exc.context) or "anchor" in str(exc.context):
        number, column = exc.context_mark.line, exc.context_mark.column
    elif "cannot start any token" not in problem and "undefined alias" not in problem:
        return None
    line = lines[number]
    char = line[column : column + 1]
    if char not in tuple("*&@`%"):
        return None
    flow = line.count("[", 0, column) + line.count("{", 0, column) > line.count("]", 0, column) + line.count(
        "}", 0, column
    )
    end = re.search(r"[,\]}]|\s*$" if flow else r"\s+#|\s*$", line[column:])
    assert end is not None
    token = line[column : column + end.start()]
    what = f"`{char}` at the start of a value means something in YAML: put the value in quotes"
    if token == "*":  # noqa: S105 - it is no password
        what = '`*` alone means something in YAML: write `"*"`'
    return _Mended(Slip(number + 1, column + 1, what), _replaced(line, column, column + len(token), _quoted(token)))


def _braces_in_flow(lines: list[str], number: int, _column: int, problem: str, _: MarkedYAMLError) -> _Mended | None:
    """`{url: ${SEARCH_URL}}`, `{key: product:{id}}`."""
    found = _BRACED_IN_FLOW.search(lines[number])
    if "expected ',' or" not in problem or found is None:
        return None
    mended = _BRACED_IN_FLOW.sub(lambda match: _quoted(match[0]), lines[number])
    what = "a value with `{` in it stands in quotes where it is inside of `{ }` or `[ ]`"
    return _Mended(Slip(number + 1, found.start() + 1, what), mended)


def _brace_start(lines: list[str], number: int, _column: int, _problem: str, _: MarkedYAMLError) -> _Mended | None:
    """`key: {id}:product`."""
    found = _BRACED_START.match(lines[number])
    if found is None:
        return None
    what = "a value that begins with `{` stands in quotes: else it is a mapping"
    return _Mended(Slip(number + 1, found.start(2) + 1, what), f"{found[1]}{_quoted(found[2])}{found[3]}")


def _unclosed(lines: list[str], number: int, _column: int, _problem: str, exc: MarkedYAMLError) -> _Mended | None:
    """`key: "product:{id}`, `columns: [id, title`."""
    context = str(exc.context)
    if "quoted scalar" in context:
        number = exc.context_mark.line
    begin = next((n for n in range(number, max(-1, number - 2), -1) if _OPEN_QUOTE.search(lines[n])), None)
    if begin is not None:
        found = _OPEN_QUOTE.search(lines[begin])
        assert found is not None
        what = f"the quote {found[1]} that begins here is not closed"
        return _Mended(Slip(begin + 1, found.start(1) + 1, what), f"{lines[begin].rstrip()}{found[1]}")
    if "flow sequence" in context or "flow mapping" in context:
        at, column = exc.context_mark.line, exc.context_mark.column
        line = lines[at].rstrip()
        closing = "]" if "sequence" in context else "}"
        if closing not in line[column:] and "#" not in line:
            return _Mended(Slip(at + 1, column + 1, f"`{line[column]}` is not closed by `{closing}`"), line + closing)
    return None


def _colon(lines: list[str], number: int, column: int, problem: str, exc: MarkedYAMLError) -> _Mended | None:
    """`root:public.products`, `root public.products`, `text: with: colons`, and a line that is indented too deeply."""
    if "mapping values are not allowed" not in problem and "could not find expected" not in problem:
        return None
    if (two := _TWO_COLONS.match(lines[number])) and column > two.start(2):
        what = "a value with `: ` in it stands in quotes"
        return _Mended(Slip(number + 1, two.start(2) + 1, what), f"{two[1]}{_quoted(two[2])}{two[3]}")
    if "could not find expected" in problem and exc.context_mark:
        number = exc.context_mark.line + 1
    above = next((n for n in range(number - 1, -1, -1) if lines[n].strip() and lines[n].lstrip()[0] != "#"), None)
    if above is None:
        return None
    if glued := _GLUED.match(lines[above]):
        what = "write a space after the `:`"
        return _Mended(Slip(above + 1, glued.end() + 1, what), _replaced(lines[above], glued.end(), glued.end(), " "))
    if bare := _NO_COLON.match(lines[above]):
        what = f"write a `:` after `{bare[1].strip('- ')}`"
        return _Mended(Slip(above + 1, bare.end(1) + 1, what), f"{bare[1]}:{bare[2]}")
    if number < len(lines) and len(_indent(lines[number])) > len(_indent(lines[above])):
        what = f"indented deeper than line {above + 1}, which has a value already and takes nothing below it"
        mended = _indent(lines[above]) + lines[number].lstrip()
        return _Mended(Slip(number + 1, len(_indent(lines[number])) + 1, what), mended)
    return None


def _uneven(lines: list[str], number: int, _column: int, problem: str, _: MarkedYAMLError) -> _Mended | None:
    """A line whose indentation is that of no line above it."""
    if "expected <block end>" not in problem or not lines[number].strip():
        return None
    mine = len(_indent(lines[number]))
    known = {len(_indent(line)) for line in lines[:number] if line.strip() and line.lstrip()[0] != "#"}
    if mine in known or not known:
        return None
    nearest = min(known, key=lambda width: (abs(width - mine), -width))
    what = f"indented by {_spaces(mine)}, as no line above it: probably {nearest} are meant"
    return _Mended(Slip(number + 1, mine + 1, what), " " * nearest + lines[number].lstrip())


_Attempt = Callable[[list[str], int, int, str, MarkedYAMLError], _Mended | None]
_ATTEMPTS: tuple[_Attempt, ...] = (_special_start, _braces_in_flow, _brace_start, _unclosed, _colon, _uneven)


def _plain(problem: str) -> str:
    """Without the library's way to write a tab or a line's end, and without anything that may be a value."""
    return re.sub(r"(?<=got )'.*'|(?<=found )'.*'", "something else", problem)


def _indent(line: str) -> str:
    found = _INDENT.match(line)
    assert found is not None
    return found[0]


def _spaces(count: int) -> str:
    return "1 space" if count == 1 else f"{count} spaces"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _replaced(line: str, begin: int, end: int, text: str) -> str:
    return line[:begin] + text + line[end:]
