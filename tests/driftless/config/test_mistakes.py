"""What a newcomer gets wrong in sync.yaml: each mistake is told with its line and what to write instead."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.base import app
from driftless.errors import ConfigError
from tests.driftless.config.mistakes import MISTAKES
from tests.driftless.config.mistakes_security import SECURITY_MISTAKES
from tests.driftless.config.test_config import load_text, problems
from tests.support.machine import COMMAND

RIGHT = """\
name: shop
source:
  dsn: postgresql://app:hunter2@db/shop
  tables:
    public.customers: {exclude: [password_hash]}
    public.products: {}
kafka:
  bootstrap: 127.0.0.1:59092
  partitions: 4
connect:
  url: http://127.0.0.1:58083
views:
  product:
    root: public.products
    columns: [id, title, price]
  customer:
    root: public.customers
    columns: {id: id, called: name}
followers:
  product-search:
    view: product
    opensearch:
      url: http://127.0.0.1:59200
      index: products
  product-cache:
    view: product
    redis:
      url: redis://127.0.0.1:56379/0
      key: product:{id}
"""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRIFTLESS_TEST_DSN", "postgresql://app:hunter2@db/shop")
    monkeypatch.setenv("DRIFTLESS_TEST_EMPTY", "")


def test_without_a_mistake_it_is_taken(tmp_path: Path) -> None:
    assert load_text(tmp_path, RIGHT).name == "shop"


ALL = [*MISTAKES, *SECURITY_MISTAKES]


@pytest.mark.parametrize(("old", "new", "said"), [m[1:] for m in ALL], ids=[m[0] for m in ALL])
def test_a_mistake_is_told_with_its_line_and_what_to_do(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in RIGHT
    assert problems(tmp_path, RIGHT.replace(old, new, 1)) == [f"sync.yaml:{line}" for line in said.splitlines()]


def test_every_mistake_of_a_file_is_told_at_once(tmp_path: Path) -> None:
    """One of nearly every sort in one file, slips of YAML among them; exit code 2, and nothing but these lines."""
    chosen = {
        "a variable that is not set": 3,
        "a typo": 9,
        "a URL without a scheme": 11,
        "an asterisk": 15,
        "an excluded column": 18,
        "a view that there is not": 21,
        "an index with capitals": 24,
        "a value that begins with braces": 29,
    }
    text, said = RIGHT, list[str]()
    for name, old, new, told in MISTAKES:
        if name in chosen:
            lines = told.splitlines()
            assert [line.split(":")[0] for line in lines] == [str(chosen[name])] * len(lines)
            text = text.replace(old, new, 1)
            said += lines
    (tmp_path / "sync.yaml").write_text(text)
    done = subprocess.run([COMMAND, "check"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    in_order = sorted(said, key=lambda line: (int(line.split(":")[0]), line))
    assert (done.returncode, done.stdout) == (2, "")
    *problems, hint = done.stderr.splitlines()
    assert problems == [f"sync.yaml:{line}" for line in in_order]
    assert "docs/configuration.md" in hint


def test_a_password_is_in_no_message(tmp_path: Path) -> None:
    """Whatever is wrong with the line in which it stands."""
    for line in (
        "  dsn: postgres//app:hunter2@db/shop",
        "  dsn: %hunter2",
        "  dsn: *hunter2",
        "  dsn: {hunter2}",
        "  dsn: {hunter2}@db",
        "  dsn: [hunter2]",
        "  dsn: 'hunter2",
        "  dsn: hunter2: hunter2",
        "  dsn: ${hunter2",
        "  dsn: “hunter2”",
        "  dsn: a\n  dsn: hunter2",
        "  dsn: x\n      hunter2: y",
        "  dsn: !!int hunter2",
    ):
        text = RIGHT.replace("  dsn: postgresql://app:hunter2@db/shop", line)
        said = problems(tmp_path, text)
        assert said, f"{line} is taken"
        if "hunter2: y" not in line:
            assert "hunter2" not in "".join(said)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "sync.yaml:1: the file is empty"),
        (b"# nothing\n", "sync.yaml:1: the file is empty"),
        (b"hello\n", "sync.yaml:1: the file must be a mapping with `name`, `source`, `views` and `followers`"),
        (
            RIGHT.replace("hunter2", "g\xe4ste").encode("latin-1"),
            "sync.yaml:3: column 26: the file is not UTF-8",
        ),
        (RIGHT.encode("utf-16"), "sync.yaml:1: column 1: the file is UTF-16"),
        (
            RIGHT.encode() + b"\0",
            "sync.yaml:30: the character U+0000 cannot be in YAML",
        ),
    ],
    ids=["empty", "only a comment", "text", "Latin-1", "UTF-16", "a null"],
)
def test_a_file_that_is_no_configuration(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "sync.yaml").write_bytes(data)
    done = CliRunner().invoke(app, ["status", "-f", str(tmp_path / "sync.yaml")])
    assert isinstance(done.exception, ConfigError)
    assert done.exception.problems == (f"{tmp_path}/{said}",)
    assert done.exception.hint


@pytest.mark.parametrize(
    "data",
    [b"\xef\xbb\xbf" + RIGHT.encode(), RIGHT.replace("\n", "\r\n").encode(), RIGHT.replace("\n", "\r").encode()],
    ids=["with a byte order mark", "with CRLF", "with CR"],
)
def test_what_an_editor_adds_does_no_harm(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "sync.yaml"
    path.write_bytes(data)
    wrong = path.read_bytes().replace(b"bootstrap", b"botstrap")
    assert load_text(tmp_path, RIGHT).name == "shop"
    path.write_bytes(wrong)
    done = CliRunner().invoke(app, ["status", "-f", str(path)])
    assert isinstance(done.exception, ConfigError)
    assert done.exception.problems == (f"{path}:8: kafka.botstrap: unknown field; did you mean `bootstrap`?",)


def test_a_file_that_is_not_there_and_a_folder(tmp_path: Path) -> None:
    (tmp_path / "sync.yaml").write_text(RIGHT)
    for given, said in (
        ("sync.yml", f"{tmp_path}/sync.yml: no such file; there is `{tmp_path}/sync.yaml`"),
        (".", f"{tmp_path}: is a directory"),
    ):
        done = CliRunner().invoke(app, ["status", "-f", str(tmp_path / given)])
        assert isinstance(done.exception, ConfigError)
        assert done.exception.problems == (said,)
