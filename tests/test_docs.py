"""The getting-started page, run word by word; and the pages' links."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from bench.demo.leftovers import delete_topics, drop_slot, remove_connector
from driftless.sink import SinkContext
from sinks import open_sink
from stack import Endpoints, stack_home

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "getting-started.md"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
SAYS_NO = {"driftless plan", "driftless plan --sql"}
"""Commands that exit with 1 where the page uses them, as it says."""

ROLE = {"user": "driftless", "password": "choose-one"}
"""The role that the page makes."""

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
    # The page's own removal has left the topics and the stores, or everything if it was not reached.
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
    ):
        sink = open_sink(kind, config, SinkContext("shop", follower, ("id",)))
        sink.drop(1)
        sink.close()
    delete_topics(endpoints.kafka, "shop")


class Reader:
    """Somebody who types what the page says into one shell, and the SQL into the owner's session."""

    def __init__(self, folder: Path, environment: dict[str, str], owner: psycopg.Connection) -> None:
        self._folder = folder
        self._environment = environment
        self._owner = owner
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

    def sh(self, block: Block) -> str:
        """Type a block, command by command; what it printed."""
        return "".join(self._type(command, block) for command in block.text.splitlines())

    def _type(self, command: str, block: Block) -> str:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{command}\nprintf '\\n@@ %s\\n' $?\n")
        self._shell.stdin.flush()
        said: list[str] = []
        for line in self._shell.stdout:
            if line.startswith("@@ "):
                expected = 1 if command in SAYS_NO else 0
                where = f"{PAGE.name}:{block.line}: `{command}`"
                assert int(line.split()[1]) == expected, f"{where} exited with {line.split()[1]}:\n{''.join(said)}"
                break
            said.append(line)
        else:
            pytest.fail(f"the shell ended at `{command}`:\n{''.join(said)}")
        return "".join(said)

    def sql(self, block: Block) -> None:
        self._owner.execute(block.text.encode())

    def write(self, name: str, block: Block) -> None:
        (self._folder / name).write_text(block.text)

    def close(self) -> None:
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait(10)


@pytest.mark.server
@pytest.mark.timeout(900)
def test_the_getting_started_page_works_word_by_word(
    place: dict[str, str], connection: psycopg.Connection, tmp_path: Path
) -> None:
    assert set(place) == exported()
    reader = Reader(tmp_path, place, connection)
    said: list[str] = []
    try:
        for block in blocks(PAGE):
            match block.kind:
                case "sh":
                    said.append(reader.sh(block))
                case "sql":
                    reader.sql(block)
                case "yaml":
                    reader.write("sync.yaml", block)
    finally:
        reader.close()
    check, plan, apply, run, look, _, follow, *_ = said
    assert "everything is ready" in check
    assert "create publication driftless_shop for table" in plan
    assert "`driftless run` follows" in apply
    assert "live at" in run
    assert '"title":"Waterproof jacket"' in look
    assert "password_hash" not in "".join(said)
    assert '"state": "live"' in follow


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
