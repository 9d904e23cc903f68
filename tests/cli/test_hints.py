"""Every error that stops somebody says what to do next, and names only commands and options that there are."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import typer.main

from cli import base
from driftless.errors import Fenced, Internal, SinkUnavailable, SourceError, SourceUnavailable
from tests.support.files import ROOT as HERE

ROOT: Any = typer.main.get_command(base.app)
SPARKS_OWN = {"--driver-memory"}
"""An option of spark-submit."""
_COMMAND = re.compile(r"`driftless ([^`]*)`")
_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


def sources() -> dict[str, ast.AST]:
    folders = ("cli", "driftless", "connectors", "jobs", "sinks", "stack")
    found = [path for folder in folders for path in sorted((HERE / folder).rglob("*.py"))]
    return {str(path.relative_to(HERE)): ast.parse(path.read_text()) for path in found}


def _name(node: ast.expr) -> str:
    """Of a class, wherever it is imported from."""
    return ast.unparse(node).rpartition(".")[2]


def error_classes(files: Mapping[str, ast.AST]) -> dict[str, bool]:
    """Every class of an error by its name, and whether it has a hint for all its errors."""
    classes = {n.name: n for tree in files.values() for n in ast.walk(tree) if isinstance(n, ast.ClassDef)}

    def line(name: str) -> list[ast.ClassDef]:
        """The class, and those that it is made of; none where SyncError is not among them."""
        if name not in classes:
            return []
        above = [line(_name(parent)) for parent in classes[name].bases]
        return [classes[name], *(c for some in above for c in some)]

    def says(node: ast.ClassDef) -> bool:
        return any(
            isinstance(n, ast.Assign) and [_name(t) for t in n.targets] == ["HINT"] and not _is_empty(n.value)
            for n in node.body
        )

    lines = {name: line(name) for name in classes}
    return {name: any(map(says, own)) for name, own in lines.items() if any(c.name == "SyncError" for c in own)}


def _is_empty(value: ast.expr) -> bool:
    """Whether it is no text, or may be none."""
    if isinstance(value, ast.IfExp):
        return _is_empty(value.body) or _is_empty(value.orelse)
    return isinstance(value, ast.Constant) and not value.value


def without_hint(files: Mapping[str, ast.AST]) -> list[str]:
    """Where an error is made that says nothing of what to do."""
    found, classes = [], error_classes(files)
    for path, tree in files.items():
        for node in ast.walk(tree):
            made, given = None, list[ast.keyword]()
            if isinstance(node, ast.Call):
                made, given = node.func, node.keywords
            elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name):
                made = node.exc
            if made is None or classes.get(_name(made), True):
                continue
            if not any(keyword.arg == "hint" and not _is_empty(keyword.value) for keyword in given):
                found.append(f"{path}:{made.lineno}: a {_name(made)} without a hint")
    return found


def test_every_error_says_what_to_do_next() -> None:
    files = sources()
    assert {"ConfigError", "SinkUnavailable", "StackError", "SnapshotFailed", "RowsLost"} <= error_classes(files).keys()
    assert without_hint(files) == []


_ERRORS = """
class SyncError(Exception):
    HINT = ""
class Away(SyncError):
    HINT = "is it up?"
class Wrong(SyncError): ...
class Worse(base.Wrong): ...
class Farther(Away): ...
"""


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("raise Wrong('a') from None", "Wrong"),
        ("raise Wrong", "Wrong"),
        ("raise SyncError('a')", "SyncError"),
        ("error = errors.Worse('a')", "Worse"),
        ("raise Worse('a', hint='')", "Worse"),
        ("raise Worse('a', hint=exc.hint if exc else '')", "Worse"),
        ("raise Wrong('a', hint='b')", None),
        ("raise Away('a')", None),
        ("raise Farther", None),
        ("raise ValueError('a')", None),
        ("raise\nexcept Wrong as exc: raise exc", None),
    ],
)
def test_an_error_without_a_hint_is_found(line: str, found: str | None) -> None:
    body = f"try: {line}\n" if "except" in line else f"{line}\n"
    files = {"errors.py": ast.parse(_ERRORS), "jobs/x.py": ast.parse(body)}
    assert without_hint(files) == ([] if found is None else [f"jobs/x.py:1: a {found} without a hint"])


def test_what_a_class_says_is_said_where_an_error_says_nothing_itself() -> None:
    assert SourceUnavailable("away").hint == SourceUnavailable.HINT
    assert SourceUnavailable("away", hint="start it").hint == "start it"
    for kind in (SourceUnavailable, SinkUnavailable, Fenced, Internal):
        assert kind("what").hint
    error = pickle.loads(pickle.dumps(SinkUnavailable("away")))  # noqa: S301 - as from an executor
    assert (str(error), error.hint) == ("away", SinkUnavailable.HINT)
    assert base.told(SourceError("no", hint="yes")) == "error: no\n  yes"


# -- what hints name -----------------------------------------------------------------------------------------------


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every text, with `{}` for what is put into it."""
    inner: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inner.update(id(part) for part in node.values)
            parts = [str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.lineno, node.value


def hints(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The texts of hints: given to an error, kept under such a name, or said by a class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "hint":
            yield from texts(node.value)
        elif isinstance(node, ast.Assign):
            name, is_text = _name(node.targets[0]), isinstance(node.value, ast.Constant | ast.JoinedStr)
            if name.lower() == "hint" or (is_text and name.strip("_").isupper()):
                yield from texts(node.value)


def wrong_command(said: str) -> str:
    """What is wrong with `said` after `driftless`; nothing where it can be typed."""
    command, words = ROOT, said.split()
    while hasattr(command, "commands"):
        if not words or words[0] not in command.commands:
            return f"there is no `driftless {said}`"
        command = command.commands[words.pop(0)]
    there = _options(command)
    wrong = [word for word in words if _OPTION.match(word) and word.partition("=")[0] not in there]
    return f"`driftless {said}` has no {', '.join(wrong)}" if wrong else ""


def _options(command: Any) -> set[str]:
    return {"--help"}.union(*(set(p.opts) | set(p.secondary_opts) for p in command.params))


def _all_options(command: Any) -> set[str]:
    return _options(command).union(*map(_all_options, getattr(command, "commands", {}).values()))


def wrong_names(files: Mapping[str, ast.AST]) -> list[str]:
    """Where a text names a command that there is not, or a hint an option that no command has."""
    found, anywhere = [], _all_options(ROOT) | SPARKS_OWN
    for path, tree in files.items():
        for line, text in texts(tree):
            found += [f"{path}:{line}: {wrong}" for said in _COMMAND.findall(text) if (wrong := wrong_command(said))]
        for line, text in hints(tree):
            named = _OPTION.findall(_COMMAND.sub("", re.sub("`(?!driftless)[^`]*`", "", text)))
            found += [f"{path}:{line}: no command has {word}" for word in named if word not in anywhere]
    return sorted(set(found))


def test_what_is_told_names_commands_and_options_that_there_are() -> None:
    files = sources()
    named = [said for tree in files.values() for _, text in texts(tree) for said in _COMMAND.findall(text)]
    assert len(named) > 100
    assert wrong_names(files) == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("x = 'see `driftless statsu`'", "there is no `driftless statsu`"),
        ("x = 'see `driftless quarantine`'", "there is no `driftless quarantine`"),
        ("x = f'`driftless quarantine lost {name}`'", "there is no `driftless quarantine lost {}`"),
        ("x = f'`driftless apply --force {name}`'", "`driftless apply --force {}` has no --force"),
        ("raise SinkError('a', hint='give it with --farce')", "no command has --farce"),
        ("raise SinkError('a', hint='give it with --force')", None),
        ("x = f'`driftless promote {name} --generation N`'", None),
        ("x = 'what `driftless` means, --farce or not'", None),
    ],
)
def test_a_command_that_there_is_not_is_found(line: str, wrong: str | None) -> None:
    assert wrong_names({"x.py": ast.parse(line)}) == ([] if wrong is None else [f"x.py:1: {wrong}"])
