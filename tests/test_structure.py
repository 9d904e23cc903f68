"""The rules of the house that a program can check: who may import whom, and how large a file and a folder may be."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.files import ROOT

COMMAND, CLIENT = "cli", "driftless/client"
ALLOWED = {
    "driftless": set[str](),
    "sinks": {"driftless"},
    "connectors": {"driftless"},
    "jobs": {"driftless", "sinks"},
    "stack": {"driftless"},
    CLIENT: {"driftless", "sinks", "connectors"},
    "serve": {"driftless", "sinks", "connectors", CLIENT},
    COMMAND: {"driftless", "sinks", "connectors", "jobs", "stack", "serve", CLIENT},
    "bench": {"driftless", "sinks", "connectors", "jobs", "stack", CLIENT},
}
"""What each part may import of the others. Nothing imports the command, nor what measures it."""
LOGS = ("jobs/threads", "jobs/decode", "jobs/spark", "jobs/brokers", "jobs/log")
WITHIN = {
    "driftless": (),
    "driftless/where": ("driftless",),
    "driftless/streams": ("driftless",),
    "driftless/transport": (),
    "driftless/config_file": ("driftless",),
    "driftless/config": ("driftless", "driftless/where", "driftless/streams", "driftless/config_file"),
    "driftless/views": ("driftless", "driftless/where", "driftless/config"),
    "driftless/kafka": ("driftless", "driftless/config"),
    "driftless/facts": (
        "driftless",
        "driftless/where",
        "driftless/streams",
        "driftless/config",
        "driftless/views",
        "driftless/kafka",
    ),
    "driftless/control": ("driftless", "driftless/config", "driftless/kafka", "driftless/facts"),
    "driftless/metrics": (
        "driftless",
        "driftless/config",
        "driftless/kafka",
        "driftless/facts",
        "driftless/control",
    ),
    "driftless/verify": ("driftless", "driftless/views", "driftless/kafka", "driftless/facts", "driftless/control"),
    CLIENT: (),
    "sinks": (),
    "sinks/opensearch": ("sinks",),
    "sinks/redis": ("sinks",),
    "connectors": (),
    "connectors/postgres": (),
    "connectors/debezium": ("connectors/postgres",),
    "connectors/failover": ("connectors/postgres", "connectors/debezium"),
    "connectors/pipeline": ("connectors/postgres", "connectors/debezium", "connectors/failover"),
    "connectors/removal": ("connectors/postgres", "connectors/debezium", "connectors/failover", "connectors/pipeline"),
    "stack/machine": (),
    "stack/servers": ("stack/machine",),
    "stack": ("stack/machine", "stack/servers"),
    "jobs/threads": (),
    "jobs/decode": (),
    "jobs/spark": ("jobs/decode",),
    "jobs/brokers": ("jobs/threads",),
    "jobs/log": LOGS[:-1],
    "jobs/supervise": ("jobs/threads", "jobs/spark", "jobs/brokers", "jobs/log"),
    "jobs/views/values": ("jobs/decode",),
    "jobs/views/store": ("jobs/decode", "jobs/views/values"),
    "jobs/views": ("jobs/views/store", *LOGS, "jobs/supervise"),
    "jobs/streams/rows": ("jobs/decode",),
    "jobs/streams/patterns": ("jobs/decode", "jobs/streams/rows"),
    "jobs/streams/lookups": ("jobs/decode", "jobs/streams/rows"),
    "jobs/streams/sql": ("jobs/decode", "jobs/streams/rows", "jobs/streams/patterns", "jobs/streams/lookups"),
    "jobs/streams/log": (),
    "jobs/streams/late": ("jobs/streams/rows", "jobs/streams/sql", "jobs/streams/log"),
    "jobs/streams": (
        *("jobs/streams/rows", "jobs/streams/sql", "jobs/streams/log", "jobs/streams/late"),
        *LOGS,
        "jobs/supervise",
    ),
    "jobs/follow": (*LOGS, "jobs/supervise", "jobs/views"),
    "jobs": ("jobs/spark", "jobs/brokers", "jobs/log", "jobs/supervise", "jobs/views", "jobs/streams", "jobs/follow"),
    "serve/facts": (),
    "serve/http": (),
    "serve/alerting": ("serve/facts",),
    "serve/page": ("serve/facts",),
    "serve": ("serve/facts", "serve/http", "serve/alerting", "serve/page"),
    "cli/comparison": (),
    "cli/output": (),
    "cli/pages": (),
    "cli/proposal": (),
    "cli/removal": (),
    COMMAND: ("cli/comparison", "cli/output", "cli/proposal", "cli/removal"),
    "bench": (),
    "bench/claims": ("bench",),
    "bench/demo": (),
}
"""For every folder, which others of its own part it may import."""
ELSEWHERE = {
    "driftless/__init__.py": CLIENT,  # gives applications the `Waiter`, when they ask for it
    "driftless/client.py": CLIENT,
    "driftless/pipeline.py": CLIENT,
    "jobs/main.py": COMMAND,  # the command again, under the path that spark-submit is given
}
"""Files that belong to another folder than the one they stand in."""
MOST_FILES = 15
MOST_LINES = 400


def _imports(path: Path) -> Iterator[tuple[int, str, str | None]]:
    """(line, module, name) of every import, inside functions and for types only as well."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, node.module, alias.name) for alias in node.names)


def _folder(name: str) -> str:
    return ELSEWHERE.get(name) or name.rpartition("/")[0]


def _part(folder: str) -> str:
    return folder if folder in ALLOWED else folder.partition("/")[0]


def _tests() -> dict[str, Path]:
    return {str(p.relative_to(ROOT)): p for p in (ROOT / "tests").rglob("*.py")}


def _modules(names: Iterable[str]) -> dict[str, str]:
    """Module -> file."""
    return {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name for name in names}


def _edges(files: Mapping[str, Path], modules: Mapping[str, str]) -> Iterator[tuple[str, int, str]]:
    """(file, line, file that it imports) within the project."""
    for name, path in files.items():
        for line, module, part in _imports(path):
            target = modules.get(f"{module}.{part}") or modules.get(module)
            if target is not None and target != name:
                yield name, line, target


def offences(files: Mapping[str, Path], others: Iterable[str] = ()) -> list[str]:
    """Imports that are not allowed. `others`: further files that there are."""
    found = []
    for name, line, target in _edges(files, _modules([*files, *others])):
        here, there = _folder(name), _folder(target)
        same = _part(here) == _part(there)
        if here != there and (there not in WITHIN[here] if same else _part(there) not in ALLOWED[_part(here)]):
            found.append(f"{name}:{line}: {here} may not import {target}")
    return found


def circle(files: Mapping[str, Path]) -> list[str]:
    """Files that import each other in a ring; empty where there is none."""
    graph: dict[str, set[str]] = {name: set() for name in files}
    for name, _, target in _edges(files, _modules(files)):
        graph[name].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as exc:
        return list(exc.args[1])
    return []


def _sources() -> dict[str, Path]:
    folders = {part.partition("/")[0] for part in ALLOWED}
    return {str(p.relative_to(ROOT)): p for folder in sorted(folders) for p in (ROOT / folder).rglob("*.py")}


def test_imports_point_one_way() -> None:
    assert offences(_sources()) == []


def test_every_folder_says_what_it_imports() -> None:
    assert {_folder(name) for name in _sources()} == set(WITHIN)
    assert ELSEWHERE.keys() <= _sources().keys()


def test_no_import_leads_back() -> None:
    assert circle({**_sources(), **_tests()}) == []
    TopologicalSorter({**ALLOWED}).prepare()
    TopologicalSorter({**WITHIN}).prepare()


def test_no_folder_of_tests_leads_back() -> None:
    """What several folders need stands above them, or in a `support`, which needs none of them."""
    files = _tests()
    graph: dict[str, set[str]] = {_folder(name): set() for name in files}
    for name, _, target in _edges(files, _modules(files)):
        if _folder(name) != _folder(target):
            graph[_folder(name)].add(_folder(target))
    TopologicalSorter(graph).prepare()
    assert graph["tests/support"] == set()


def test_an_import_the_wrong_way_is_found(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("import json\nfrom jobs.follow.apply import Slice\n")
    (tmp_path / "y.py").write_text("def f():\n    from driftless.control import topic\n")
    files = {"sinks/x.py": tmp_path / "x.py", "driftless/where/y.py": tmp_path / "y.py"}
    assert offences(files, ["jobs/follow/apply.py", "driftless/control/topic.py"]) == [
        "sinks/x.py:2: sinks may not import jobs/follow/apply.py",
        "driftless/where/y.py:2: driftless/where may not import driftless/control/topic.py",
    ]


def test_a_circle_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from jobs.log import b\n")
    (tmp_path / "b.py").write_text("def f():\n    from jobs.log.a import x\n")
    assert set(circle({"jobs/log/a.py": tmp_path / "a.py", "jobs/log/b.py": tmp_path / "b.py"})) == {
        "jobs/log/a.py",
        "jobs/log/b.py",
    }


def test_an_application_loads_no_more_than_it_needs() -> None:
    """In an interpreter of its own: this one has loaded everything."""
    code = (
        "import sys; from driftless import Waiter; from connectors.pipeline.token import emit_marker; import sinks\n"
        "for kind in sinks.kinds(): sinks.config_model(kind)\n"
        "loaded = {module.partition('.')[0] for module in sys.modules}\n"
        "print(*sorted(loaded & {'typer', 'rich', 'pyspark', 'py4j', 'cli', 'jobs'}))"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    assert told.stdout.split() == []


@pytest.mark.parametrize(
    ("library", "door"),
    [
        ("pyspark", {"jobs"}),
        ("py4j", {"jobs/spark"}),
        ("opensearchpy", {"sinks/opensearch"}),
        ("redis", {"sinks/redis", "stack/servers"}),
        ("psycopg", {"connectors/postgres", "stack/servers"}),
        ("sqlglot", {"driftless/where", "driftless/streams"}),
        ("ruamel", {"driftless/config_file"}),
        ("typer", {"cli"}),
        ("rich", {"cli"}),
    ],
)
def test_an_outside_system_has_one_door(library: str, door: set[str]) -> None:
    users = {
        _folder(name)
        for name, path in _sources().items()
        if not name.startswith("bench/") and any(m.partition(".")[0] == library for _, m, _ in _imports(path))
    }
    assert {user for user in users if user not in door and _part(user) not in door} == set()


def test_what_spark_does_not_promise_to_keep_has_one_door() -> None:
    """Its members that lead to the JVM. Other names there are reached by these alone."""
    everything = [*_sources().values(), *_tests().values()]
    private = re.compile(r"\._(?:jvm|jsparkSession|jdf|jsc|gateway)\b|[\"']_(?:jvm|jsparkSession|jdf|jsc|gateway)[\"']")
    assert [str(p.relative_to(ROOT)) for p in everything if private.search(p.read_text())] == ["jobs/spark/private.py"]


def test_no_file_is_longer_than_a_sitting() -> None:
    lengths = {name: len(p.read_text().splitlines()) for name, p in {**_sources(), **_tests()}.items()}
    assert {name: n for name, n in lengths.items() if n > MOST_LINES} == {}


def test_no_folder_has_more_files_than_a_reader_can_survey() -> None:
    counts = Counter(name.rpartition("/")[0] for name in {**_sources(), **_tests()})
    assert {folder: n for folder, n in counts.items() if n > MOST_FILES} == {}


def _named() -> Iterator[tuple[str, str]]:
    """(where, path) of every file of the code that a text names."""
    texts = ["Makefile", "docker-compose.yml", "stack/images/Dockerfile", *_sources()]
    texts += [str(p.relative_to(ROOT)) for p in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))]
    folders = "|".join(sorted({part.partition("/")[0] for part in ALLOWED} | {"tests"}))
    for text in texts:
        for path in re.findall(rf"(?<![\w/.-])(?:{folders})/[\w/]+\.(?:py|lua|xml)\b", (ROOT / text).read_text()):
            yield text, path


def test_every_file_that_is_named_is_there() -> None:
    assert [f"{text}: {path}" for text, path in _named() if not (ROOT / path).is_file()] == []


def test_every_test_that_is_named_by_its_file_alone_is_there() -> None:
    """In the pages and the code; the guarantees name functions too (test_guarantees.py)."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "docker-compose.yml", *_sources().values()]
    there = {path.name for path in _tests().values()}
    named = {(p, file) for p in pages for file in re.findall(r"(?<![\w/.-])test_\w+\.py\b", p.read_text())}
    assert [f"{p.relative_to(ROOT)}: {file}" for p, file in sorted(named) if file not in there] == []
    assert len(named) > 70


def test_no_two_classes_have_the_same_name() -> None:
    """But for the configuration: every kind of store calls its own `Config`."""
    classes = [
        node.name
        for name, path in _sources().items()
        if not name.startswith(("bench/", "stack/"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    ]
    assert [name for name, count in Counter(classes).items() if count > 1] == ["Config"]


def test_no_two_test_files_have_the_same_name() -> None:
    """They are no packages: pytest imports each by its bare name."""
    names = Counter(path.name for path in _tests().values() if path.name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []


def test_every_package_is_installed() -> None:
    """A folder that is not named would only be there where the project is installed in place."""
    named = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    there = {name.rpartition("/")[0].replace("/", ".") for name in _sources() if not name.startswith("bench/")}
    assert named == there
