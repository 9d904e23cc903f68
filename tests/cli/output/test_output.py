"""What the command prints is data: brackets, colons and control characters in it are shown, never obeyed."""

from __future__ import annotations

import ast
import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Group
from rich.table import Table as Grid
from typer.testing import CliRunner

from cli import base, quarantine
from cli.output.console import PlainConsole
from cli.output.progress import show
from driftless.control.quarantine import Held
from tests.driftless.config.test_config import GOOD
from tests.support.files import ROOT
from tests.support.machine import until

NASTY = ["[/b]", "a:key:b", "sync.yaml:100:", "[red]x[/]", "[link=http://x]y[/link]", "\\[b]", ":smile:", "[@click=f]"]
OBEYED = {"\x1b[31mred": "\\x1b[31mred", "\x9b2J": "\\x9b2J", "\u202eevil": "\\u202eevil", "a\rb": "a\\rb"}


def printed(*things: object) -> str:
    file = io.StringIO()
    PlainConsole(file=file, width=200).print(*things)
    return file.getvalue()


@pytest.mark.parametrize("text", NASTY)
def test_a_text_is_printed_as_it_is(text: str) -> None:
    grid = Grid(text, title=text, box=None)
    grid.add_row(text)
    assert printed(text) == f"{text}\n"
    assert printed(Group(text)) == f"{text}\n"
    assert printed(grid).count(text) == 3


@pytest.mark.parametrize("text", OBEYED)
def test_what_a_terminal_would_obey_is_printed_as_its_escape(text: str) -> None:
    assert printed(text) == f"{OBEYED[text]}\n"
    grid = Grid(box=None)
    grid.add_row(text)
    assert printed(grid).strip() == OBEYED[text]


def test_what_is_being_done_is_not_taken_for_markup() -> None:
    file = io.StringIO()
    with PlainConsole(file=file, force_terminal=True, width=200).doing() as tell:
        tell("table [/b] of a:key:b")
        until("the line to be drawn", lambda: "table [/b] of a:key:b" in file.getvalue(), 10)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_followers_progress_is_not_taken_for_markup(terminal: bool) -> None:
    file = io.StringIO()
    standing = SimpleNamespace(follower="[/b] :key:", state="bootstrapping", positions={0: 1}, done=1, total=2)
    with show([standing], PlainConsole(file=file, force_terminal=terminal, width=200)):
        until("the follower to be shown", lambda: "[/b] :key:" in file.getvalue(), 10)


@pytest.mark.parametrize(
    ("done", "total", "said"),
    [
        (0, 0, "a: live\n"),
        (1, 1, "a: live at 1 of 1 records\n"),
        (1004, 0, "a: live at 1,004 records\n"),
        (1, 0, "a: live at 1 record\n"),
        (5, 2000, "a: live at 5 of 2,000 records\n"),
    ],
)
def test_how_far_a_follower_is_makes_sense_before_it_is_known_how_much_there_is(
    done: int, total: int, said: str
) -> None:
    file = io.StringIO()
    standing = SimpleNamespace(follower="a", state="live", positions={0: 1}, done=done, total=total)
    with show([standing], PlainConsole(file=file, width=200)):
        until("its state to be told", lambda: file.getvalue(), 10)
    assert file.getvalue() == said


def test_keys_reasons_and_files_reach_the_operator_as_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    held = Held("product-search", 1, "[/b] a:key:b", 7, "mapper [price] :100: failed", 1.6e9)
    monkeypatch.setattr(quarantine, "QuarantineLog", lambda *_: SimpleNamespace(read=lambda _: iter([held])))
    monkeypatch.setattr(quarantine, "control_of", lambda _: SimpleNamespace(kafka=None))
    monkeypatch.setattr(base.out, "_width", 200)  # a console made while COLUMNS is set keeps that width
    (tmp_path / "sync.yaml").write_text(GOOD)
    listed = CliRunner().invoke(base.app, ["quarantine", "list", "-f", str(tmp_path / "sync.yaml")], env=ENV)
    assert listed.exit_code == 1
    assert held.key in listed.stdout
    assert held.reason in listed.stdout
    asked = ["quarantine", "list", "--json", "-f", str(tmp_path / "sync.yaml")]
    assert json.loads(CliRunner().invoke(base.app, asked, env=ENV).stdout)["quarantined"][0]["key"] == held.key
    wrong = CliRunner().invoke(base.app, ["check", "[/b]:key:"], env=ENV)
    assert (wrong.exit_code, "[/b]:key:" in wrong.output) == (2, True)


ENV = {"COLUMNS": "200", "DRIFTLESS_TEST_DSN": "postgresql://localhost/shop"}
MARKED = ("from_markup", "render_markup", "print_json")


def offences(name: str, text: str) -> list[str]:
    """Every place that prints through something else than a PlainConsole, or has data taken for markup."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        options = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
        reason = ""
        if called == "Console":
            reason = "makes a console that knows markup"
        elif called in MARKED or options.get("markup") is True or options.get("emoji") is True:
            reason = "asks for markup"
        elif called in ("TextColumn", "Spinner", "Panel", "Prompt") and options.get("markup") is not False:
            reason = f"a {called} takes its text for markup"
        elif called in ("status", "update") and node.args and isinstance(node.args[0], ast.Constant | ast.JoinedStr):
            reason = "a status takes its text for markup"
        elif called == "echo":
            reason = "prints by itself"
        if reason:
            found.append(f"{name}:{node.lineno}: {reason}")
    return found


def test_everything_is_printed_by_a_console_that_knows_no_markup() -> None:
    files = [
        p
        for package in ("cli", "driftless", "connectors", "jobs", "sinks", "stack")
        for p in (ROOT / package).rglob("*.py")
    ]
    found = [o for p in files for o in offences(str(p.relative_to(ROOT)), p.read_text()) if p.name != "console.py"]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "Console(highlight=False)",
        "Text.from_markup(x)",
        "c.print(x, markup=True)",
        "TextColumn('x')",
        "err.status('x')",
        "typer.echo(x)",
    ],
)
def test_another_way_of_printing_is_found(text: str) -> None:
    assert len(offences("x.py", text)) == 1
