"""The command itself: help with examples that parse, completion in three shells, and an end within 10 seconds."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from cli import base
from tests.driftless.config.test_config import GOOD
from tests.support.machine import COMMAND, until

ROOT: Any = typer.main.get_command(base.app)
HANDED_OVER_IN = {"bash": "COMP_WORDS", "zsh": "_TYPER_COMPLETE_ARGS", "fish": "_TYPER_COMPLETE_ARGS"}
"""The variable in which each shell hands over what was typed."""


def leaves() -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in ROOT.commands.items():
        if hasattr(command, "commands"):
            yield from (((name, inner), leaf) for inner, leaf in command.commands.items())
        else:
            yield (name,), command


COMMANDS = dict(leaves())


def test_no_command_of_the_contract_is_missing() -> None:
    wanted = "up down init check plan apply run pause resume status rebuild promote replay verify wait remove"
    assert {" ".join(path) for path in COMMANDS} >= {*wanted.split(), "quarantine list", "quarantine show"}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_says_briefly_what_it_does_and_gives_examples_that_parse(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    first, *_ = command.help.split("\n\n")
    assert 20 < len(first) < 140
    examples = [shlex.split(example) for example in re.findall(r"`(driftless [^`]+)`", command.help)]
    mine = [example for example in examples if tuple(example[1 : 1 + len(path)]) == path]
    assert mine, "no example"
    for words in mine:
        command.make_context(words[0], words[1 + len(path) :])


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_option_and_argument_is_explained(path: tuple[str, ...]) -> None:
    assert [parameter.name for parameter in COMMANDS[path].params if not getattr(parameter, "help", None)] == []


FACTS = {"up", "check", "plan", "apply", "status", "wait", "rebuild", "replay", "verify", "why", "destroy"}
FACTS |= {f"quarantine {verb}" for verb in ("list", "show", "retry", "discard")}


def test_what_prints_facts_takes_json_and_what_reads_the_file_takes_f() -> None:
    options = {" ".join(path): {o for p in leaf.params for o in p.opts} for path, leaf in COMMANDS.items()}
    assert {name for name, taken in options.items() if "--json" in taken} == FACTS
    assert {name for name, taken in options.items() if "-f" not in taken} == {"up", "down"}


# -- completion -------------------------------------------------------------------------------------------------


def offered(shell: str, typed: str, folder: Path) -> list[str]:
    """What the shell is told when TAB is pressed after `typed`."""
    asked = {"_DRIFTLESS_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    asked |= {HANDED_OVER_IN[shell]: typed, "COMP_CWORD": str(len(typed.split(" ")) - 1)}
    done = subprocess.run(
        [COMMAND], cwd=folder, env={**os.environ, **asked}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    return re.findall(r"[a-z][\w-]+(?=\"|\s|$)", re.sub(r"^_arguments|\"[^\"]*\":", "", done.stdout))


@pytest.mark.parametrize("shell", HANDED_OVER_IN)
def test_followers_complete(shell: str, tmp_path: Path) -> None:
    """Also where a variable is not set."""
    text = GOOD.replace("DRIFTLESS_TEST_DSN:-postgresql://localhost/shop", "SURELY_NOT_SET")
    (tmp_path / "sync.yaml").write_text(text)
    assert offered(shell, "driftless pause product-s", tmp_path) == ["product-search"]


def test_what_was_named_is_not_offered_again_and_a_wrong_file_offers_nothing(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(GOOD)
    assert offered("bash", "driftless run -f other.yaml product-search ", tmp_path) == ["product-cache"]
    assert offered("bash", "driftless run ", tmp_path) == []
    (tmp_path / "sync.yaml").write_text("a: [")
    assert offered("bash", "driftless run ", tmp_path) == []
    assert offered("bash", "driftless replay product-cache --from ", tmp_path) == ["start"]


@pytest.mark.parametrize("shell", HANDED_OVER_IN)
def test_the_shell_is_given_a_script(shell: str) -> None:
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    script = subprocess.check_output([COMMAND, "--show-completion", shell], env=environment, text=True, timeout=60)
    assert f"_DRIFTLESS_COMPLETE=complete_{shell}" in script


# -- Ctrl-C and SIGTERM -----------------------------------------------------------------------------------------


@pytest.fixture
def silent_servers(tmp_path: Path) -> Iterator[Path]:
    """A place with a sync.yaml whose servers all take connections and never say a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        host = f"127.0.0.1:{server.getsockname()[1]}"
        text = re.sub(r"127\.0\.0\.1:\d+", host, GOOD).replace("localhost", host)
        (tmp_path / "sync.yaml").write_text(text)
        yield tmp_path


@pytest.mark.parametrize(
    ("command", "number", "code"),
    [
        ("run", signal.SIGINT, 0),
        ("run", signal.SIGTERM, 0),
        ("run --until-caught-up", signal.SIGTERM, 143),
        ("wait --lsn 0/1", signal.SIGINT, 130),
        ("wait --lsn 0/1", signal.SIGTERM, 143),
        ("status --watch", signal.SIGINT, 130),
        ("rebuild product-search", signal.SIGTERM, 143),
        ("check", signal.SIGINT, 130),
    ],
)
def test_a_command_that_waits_for_a_server_ends_at_once(
    silent_servers: Path, command: str, number: signal.Signals, code: int
) -> None:
    with subprocess.Popen(
        [COMMAND, *command.split()], cwd=silent_servers, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        until("the command to heed signals", lambda: _heeds(process.pid), 20)
        time.sleep(1)  # into the wait itself, whichever that is
        assert process.poll() is None
        told = time.monotonic()
        process.send_signal(number)
        said, _ = process.communicate(timeout=15)
        assert (process.returncode, said) == (code, "interrupted\n" if code else "")
        assert time.monotonic() - told < 10


def _heeds(pid: int) -> bool:
    """Whether the process has a handler of its own for SIGTERM."""
    caught = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


STUCK = """
import sys
from confluent_kafka.admin import AdminClient
from cli import base

@base.app.command()
def stuck(broker: str) -> None:
    print("in", flush=True)
    AdminClient({"bootstrap.servers": broker}, logger=base.logging.getLogger("quiet")).list_topics(timeout=60)

base.logging.getLogger("quiet").setLevel("CRITICAL")
base.END_SECONDS = 2.0
sys.argv = ["driftless", "stuck", sys.argv[1]]
base.main()
"""
"""A command in a library that lets no signal handler run before it returns."""


def test_a_library_that_does_not_return_keeps_nobody(silent_servers: Path) -> None:
    broker = re.search(r"bootstrap: \"(.*?)\"", (silent_servers / "sync.yaml").read_text())
    assert broker is not None
    with subprocess.Popen(
        [sys.executable, "-c", STUCK, broker[1]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        time.sleep(0.5)
        process.terminate()
        said, _ = process.communicate(timeout=20)
        assert (process.returncode, said) == (130, "interrupted; ended without waiting any longer\n")
    assert base.END_SECONDS < 10
