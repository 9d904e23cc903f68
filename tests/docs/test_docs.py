"""The getting-started page, run word by word; and the pages' links."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from ruamel.yaml import YAML

from bench.demo.leftovers import delete_topics, drop_slot, remove_connector
from driftless.sink import SinkContext
from sinks import open_sink
from stack import Endpoints, stack_home
from tests.support.files import ROOT
from tests.support.machine import COMMAND, until

PAGE = ROOT / "docs" / "getting-started.md"
GUIDE = ROOT / "docs" / "operating.md"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
EXITS: dict[Path, dict[str, list[int]]] = {
    # Nobody runs them when it is first looked: they were run until they had caught up.
    PAGE: {"driftless plan": [1], "driftless plan --sql": [1], "driftless status": [1]},
    GUIDE: {
        "driftless plan": [1, 1, 0],
        "driftless status": [1, 0],
        "driftless quarantine list": [1],
        "driftless quarantine retry product-search": [1],
    },
}
"""Exit codes of a command at each place where a page uses it; all others are 0."""

ROLE = {"user": "driftless", "password": "choose-one"}
"""The role that the page makes."""

BEFORE_THE_GUIDE = 9
"""Blocks of the getting-started page that describe the pipeline; the last one takes it away."""
AT_REST = {"live", "stopped", "paused"}

# Stand-ins for two clients that the local stack does not bring along: as much of them as the page uses.
CLIENTS = {
    "psql": "import psycopg; assert sys.argv[2] == '-Atc'; "
    "print(*psycopg.connect(sys.argv[1]).execute(sys.argv[3]).fetchone())",
    "redis-cli": "import redis; assert sys.argv[1] == '-u'; "
    "print(redis.Redis.from_url(sys.argv[2], decode_responses=True).execute_command(*sys.argv[3:]))",
}


@dataclass(frozen=True)
class Block:
    """A fenced block: what its first line names (`sh`, `sql`, `yaml`...), its text, and its line in the page."""

    kind: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    found, text = [], page.read_text(encoding="utf-8")
    for match in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        found.append(Block(match[1], match[2], text.count("\n", 0, match.start()) + 1))
    return found


def exported() -> set[str]:
    """The variables that the page asks its reader to set."""
    shell = next(block for block in blocks(PAGE) if block.kind == "shell")
    return set(re.findall(r"^export (\w+)=", shell.text, re.MULTILINE))


@pytest.fixture
def place(endpoints: Endpoints, database: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The page's variables, for a database of our own; and an end of all that the page makes."""
    clients = tmp_path / "clients"
    clients.mkdir()
    for name, script in CLIENTS.items():
        (clients / name).write_text(f"#!{sys.executable}\nimport sys\n{script}\n")
        (clients / name).chmod(0o755)
    values = {
        "PATH": os.pathsep.join([str(clients), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "SHOP_DSN": make_conninfo(database, **ROLE),
        "SHOP_ADMIN_DSN": database,
        "KAFKA": endpoints.kafka,
        "CONNECT_URL": endpoints.connect,
        "SEARCH_URL": endpoints.opensearch,
        "CACHE_URL": endpoints.redis,
    }
    yield values
    # The page's own removal has left nothing, or everything if it was not reached.
    remove_connector(endpoints.connect, "shop")
    with psycopg.connect(database, autocommit=True) as connection:
        drop_slot(connection, "shop")
        if connection.execute("select from pg_roles where rolname = 'driftless'").rowcount:
            connection.execute("drop owned by driftless")
            connection.execute("drop role driftless")
    for follower, kind, config in (
        ("product-search", "opensearch", {"url": endpoints.opensearch, "index": "products"}),
        ("product-cache", "redis", {"url": endpoints.redis, "key": "product:{id}"}),
        ("customer-cache", "redis", {"url": endpoints.redis, "key": "customer:{id}"}),
        ("customer-search", "opensearch", {"url": endpoints.opensearch, "index": "customers"}),
    ):
        sink = open_sink(kind, config, SinkContext("shop", follower, ("id",)))
        for generation in range(1, 6):
            sink.drop(generation, also_live=True)
        sink.close()
    delete_topics(endpoints.kafka, "shop")


class Reader:
    """Somebody who types what pages say into one shell, and the SQL into the owner's session.

    A block of YAML is put into sync.yaml: its keys replace those that are there.
    """

    def __init__(self, folder: Path, environment: dict[str, str], owner: psycopg.Connection) -> None:
        self._folder = folder
        self._sync = folder / "sync.yaml"
        self._owner = owner
        self._typed: Counter[str] = Counter()
        self._environment = environment
        self._shell = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env={"HOME": str(folder), "DRIFTLESS_HOME": str(stack_home()), "COLUMNS": "200", **environment},
            start_new_session=True,
        )

    def read(self, page: Path, block: Block) -> str:
        """Do what a block says; what it printed."""
        match block.kind:
            case "sh":
                return "".join(self._type(command, page, block) for command in block.text.splitlines())
            case "sql":
                self._owner.execute(block.text.encode())
            case "yaml":
                self._write(block.text)
        return ""

    def _write(self, text: str) -> None:
        if self._sync.exists():
            self.change(YAML(typ="safe").load(text))
        else:
            self._sync.write_text(text)

    def change(self, wanted: Mapping[str, Any]) -> None:
        """Put keys into sync.yaml; None takes one out."""
        found = YAML(typ="safe").load(self._sync.read_text())
        self._sync.write_text(json.dumps(_merged(found, wanted)))

    def status(self) -> dict[str, str]:
        """Follower -> state, from another terminal."""
        done = subprocess.run(
            [COMMAND, "status", "--json"],
            cwd=self._folder,
            env={**os.environ, **self._environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return {follower["name"]: follower["state"] for follower in json.loads(done.stdout)["followers"]}

    def _type(self, command: str, page: Path, block: Block) -> str:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{command}\nprintf '\\n@@ %s\\n' $?\n")
        self._shell.stdin.flush()
        said: list[str] = []
        for line in self._shell.stdout:
            if line.startswith("@@ "):
                expected = EXITS[page].get(command, [])[self._typed[f"{page} {command}"] :][:1] or [0]
                self._typed[f"{page} {command}"] += 1
                where = f"{page.name}:{block.line}: `{command}`"
                assert [int(line.split()[1])] == expected, f"{where} exited with {line.split()[1]}:\n{''.join(said)}"
                break
            said.append(line)
        else:
            pytest.fail(f"the shell ended at `{command}`:\n{''.join(said)}")
        return "".join(said)

    def close(self) -> None:
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait(10)


def _merged(found: Any, wanted: Any) -> Any:
    if not (isinstance(found, dict) and isinstance(wanted, dict)):
        return wanted
    both = {**found, **{key: _merged(found.get(key), value) for key, value in wanted.items()}}
    return {key: value for key, value in both.items() if value is not None}


@pytest.mark.server
@pytest.mark.timeout(900)
def test_the_getting_started_page_works_word_by_word(
    place: dict[str, str], connection: psycopg.Connection, tmp_path: Path
) -> None:
    assert set(place) == exported()
    reader = Reader(tmp_path, place, connection)
    try:
        said = [said for block in blocks(PAGE) if (said := reader.read(PAGE, block))]
    finally:
        reader.close()
    check, plan, apply, run, look, _, follow, *_, end = said
    assert "everything is ready" in check
    assert "create publication driftless_shop for table" in plan
    assert "`driftless run` follows" in apply
    assert "live at" in run
    assert '"title":"Waterproof jacket"' in look
    assert "password_hash" not in "".join(said)
    assert '"state": "live"' in follow
    assert "nothing is left of the pipeline shop, but for what stays" in end


@pytest.mark.server
@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_operators_guide_works_line_by_line(
    place: dict[str, str], connection: psycopg.Connection, tmp_path: Path
) -> None:
    """On the pipeline of the getting-started page, which runs in the background."""
    reader = Reader(tmp_path, place, connection)
    said: list[str] = []
    try:
        for block in blocks(PAGE)[:BEFORE_THE_GUIDE]:
            if block.kind in ("sql", "yaml"):
                reader.read(PAGE, block)
        for command in ("driftless apply", "driftless run --until-caught-up", "driftless run &"):
            reader.read(PAGE, Block("sh", command, 0))
        for block in blocks(GUIDE):
            # As one who reads on when `status` shows that what was begun is done.
            until("all followers to be where they stay", lambda: set(reader.status().values()) <= AT_REST, 120)
            said.append(reader.read(GUIDE, block))
            for removed in re.findall(r"^driftless remove (\S+)", block.text, re.MULTILINE):
                reader.change({"followers": {removed: None}})
        until("all that run to be live", lambda: set(reader.status().values()) == {"live"}, 60)
    finally:
        reader.close()
    everything = "".join(said)
    for told in (
        "create follower customer-search: generation 1 of the view customer in opensearch",
        '"called":"Ada"',
        "rebuild follower product-search: generation 2 of the view product in opensearch, next to the live one",
        "product-search: generation 3 is live",
        "product-search: generation 4 is built, and not promoted",
        "product-search: readers see generation 4",
        "product-search: readers see generation 3",
        "product-cache: paused",
        "product-cache: resumed",
        "product-cache: 3 writes were there already, 0 were missing",
        "product-search: 0 written, 1 still quarantined",
        "product-search: 1 discarded",
        "customer-cache: removed, and its documents",
        "nothing to change",
    ):
        assert told in everything, f"{told!r} is not among:\n{everything}"


def test_every_message_that_the_guide_explains_can_be_said() -> None:
    """Each is in the code, but for the numbers and names in it."""
    code = "\n".join(
        node.value
        for package in ("cli", "driftless", "connectors", "jobs", "sinks")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    table = GUIDE.read_text(encoding="utf-8").partition("| it says |")[2]
    messages = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert len(messages) > 10
    parts = [(message, part) for message in messages for part in re.split(r"\bN\b", message)]
    assert [message for message, part in parts if part.strip() not in code] == []


def test_the_page_is_not_taken_for_empty() -> None:
    """The test above would pass over a page whose blocks are fenced in another way."""
    kinds = [block.kind for block in blocks(PAGE)]
    assert kinds.count("sh") >= 6
    assert kinds.count("yaml") == 1
    assert {"shell", "sql"} <= set(kinds)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        target, _, anchor = link.partition("#")
        if "://" in link:
            continue
        path = (page.parent / target).resolve() if target else page
        if not path.exists() or (anchor and anchor not in _anchors(path)):
            broken.append(link)
    assert not broken


def _anchors(page: Path) -> set[str]:
    """The names that headings have in a link."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= targets
