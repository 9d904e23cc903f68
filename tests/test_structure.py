"""The rules of the house that a program can check: who may import whom, and how long a file may be."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALLOWED = {
    "driftless": set[str](),
    "sinks": {"driftless"},
    "connectors": {"driftless"},
    "jobs": {"driftless", "sinks"},
    "stack": {"driftless"},
}
COMMAND = "driftless/cli/"
"""The package of the command puts everything together."""


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module


def offences(files: dict[str, Path]) -> list[str]:
    found = []
    for name, path in files.items():
        package = name.split("/")[0]
        for line, module in _imports(path):
            target = module.split(".")[0]
            if (
                target in ALLOWED
                and target != package
                and target not in ALLOWED[package]
                and not name.startswith(COMMAND)
            ):
                found.append(f"{name}:{line}: {package} may not import {module}")
    return found


def _sources() -> dict[str, Path]:
    return {str(p.relative_to(ROOT)): p for package in ALLOWED for p in (ROOT / package).rglob("*.py")}


def test_imports_point_one_way() -> None:
    assert offences(_sources()) == []


def test_an_import_the_wrong_way_is_found(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("import json\nfrom jobs.follow import Follow\n")
    assert offences({"sinks/x.py": tmp_path / "x.py"}) == ["sinks/x.py:2: sinks may not import jobs.follow"]


@pytest.mark.parametrize(
    ("library", "door"),
    [
        ("pyspark", {"jobs"}),
        ("opensearchpy", {"sinks"}),
        ("redis", {"sinks", "stack"}),
        ("psycopg", {"connectors", "stack"}),
        ("sqlglot", {"driftless"}),
    ],
)
def test_an_outside_system_has_one_door(library: str, door: set[str]) -> None:
    users = {
        name.split("/")[0]
        for name, path in _sources().items()
        if any(m.split(".")[0] == library for _, m in _imports(path))
    }
    assert users <= door


def test_no_file_is_longer_than_a_sitting() -> None:
    everything = [p for folder in (*ALLOWED, "bench", "tests") for p in (ROOT / folder).rglob("*.py")]
    lengths = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in everything}
    assert {name: n for name, n in lengths.items() if n > 400} == {}


def test_no_two_test_files_have_the_same_name() -> None:
    """They are no packages: pytest imports each by its bare name."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_every_package_is_installed() -> None:
    """A folder that is not named would only be there where the project is installed in place."""
    named = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    there = {str(p.parent.relative_to(ROOT)).replace("/", ".") for top in ALLOWED for p in (ROOT / top).rglob("*.py")}
    assert named == there
