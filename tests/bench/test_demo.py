"""The demo, told from beginning to end on a small shop; and that its comparison can say no."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis
import urllib3

from bench.demo.__main__ import main
from bench.demo.compare import Comparison, compare, parse, rows
from bench.demo.leftovers import remove_leftovers
from bench.demo.place import CACHE_KEY, FIRST, LATER, SEARCH_INDEX, Place
from bench.demo.screen import Screen
from bench.demo.shop import Size, Words
from bench.demo.story import Demo
from driftless.errors import SourceError
from stack import Endpoints, Stack
from tests.support.files import ROOT
from tests.support.machine import until


class Told:
    """A demo in a process of its own, as `make demo` starts it."""

    def __init__(self, folder: Path, stack: Stack, *options: str) -> None:
        self.place = Place(folder / ".driftless" / "demo", _endpoints(stack))
        self._log = folder / "demo.log"
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bench.demo", "--stack", stack.name, *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), "DRIFTLESS_HOME": str(stack.home)},
            )

    @property
    def said(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def end(self, seconds: float = 600) -> int:
        """Its exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the demo still goes on after {seconds:g} s:\n{self.said}") from None

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(90)


def _endpoints(stack: Stack) -> Endpoints:
    found = stack.endpoints()
    assert found is not None
    return found


@pytest.fixture
def tell(stack: Stack, tmp_path: Path) -> Iterator[Callable[[], Told]]:
    """Starts a small demo on the session's stack; what it made is taken away at the end."""
    remove_leftovers(_endpoints(stack))
    begun: list[Told] = []

    def begin() -> Told:
        begun.append(Told(tmp_path, stack, "--scale", "0.01", "--seconds", "3"))
        return begun[-1]

    yield begin
    for told in begun:
        told.close()
    remove_leftovers(_endpoints(stack))


def running_commands(place: Place) -> list[Path]:
    """The runs that a demo has started and not ended."""
    return list(place.folder.glob("*.pid"))


def counts(said: str) -> dict[str, tuple[int, ...]]:
    """Follower -> rows compared, missing, extra, different."""
    line = r"^ *(\S+) +([\d,]+) documents compared: ([\d,]+) missing, ([\d,]+) extra, ([\d,]+) different$"
    found = re.findall(line, said, re.MULTILINE)
    return {name: tuple(int(number.replace(",", "")) for number in numbers) for name, *numbers in found}


@pytest.mark.soak
@pytest.mark.server
@pytest.mark.timeout(1500)
def test_the_demo_ends_with_every_document_right_and_works_a_second_time(
    tell: Callable[[], Told], stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    for again in (False, True):
        told = tell()
        assert told.end() == 0, told.said
        said = told.said
        assert ("removed what an earlier demo left: connector, database, topics" in said) == again
        with psycopg.connect(told.place.dsn) as connection:
            products, orders = (
                len(connection.execute(f"select from {table}".encode()).fetchall()) for table in ("products", "orders")
            )
        assert counts(said) == {
            FIRST[0]: (products, 0, 0, 0),
            FIRST[1]: (products, 0, 0, 0),
            LATER: (orders, 0, 0, 0),
        }
        proven = dict(re.findall(r"^ *(sold|rush): in sync .*: ([\d,]+) documents$", said, re.MULTILINE))
        assert {*proven} == {"sold", "rush"}
        assert "0" not in proven.values(), "nothing was sold"
        assert "sold in this minute" in said
        assert "no drift" in said
        address = re.search(r"watch all of it in a browser, until the demo ends: http://127.0.0.1:(\d+)", said)
        assert address is not None
        with socket.socket() as port:
            assert port.connect_ex(("127.0.0.1", int(address[1]))) != 0, "it was left running"
        assert 'search "waterproof jacket"' in said
        assert not running_commands(told.place)
    assert planted_differences_are_found(told.place, stack, capsys)


def planted_differences_are_found(place: Place, stack: Stack, capsys: pytest.CaptureFixture[str]) -> bool:
    """Break some documents in the stores, and let the demo compare them again."""
    with psycopg.connect(place.dsn) as connection:
        products = rows(connection, "products")
    wrong, gone, lost, *_ = products
    with redis.Redis.from_url(place.endpoints.redis) as cache:
        cache.set(CACHE_KEY.format(id=wrong), products[wrong].replace('"stock": ', '"stock": 1'))
        cache.delete(CACHE_KEY.format(id=gone))
        cache.set(CACHE_KEY.format(id=0), products[gone])
    urllib3.request("DELETE", f"{place.endpoints.opensearch}/{SEARCH_INDEX}-1/_doc/{lost}")
    demo = Demo(stack, Size(), 0, place.folder, Screen())
    assert not demo.compare_followers(place)
    found, count = counts(capsys.readouterr().out), len(products)
    return (found[FIRST[0]], found[FIRST[1]]) == ((count, 1, 0, 0), (count, 1, 1, 1))


def test_drift_is_the_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["demo", "--stack", "none"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    for same, code in ((True, 0), (False, 1)):
        monkeypatch.setattr(Demo, "tell", lambda _, same=same: same)
        assert main() == code


@pytest.mark.soak
@pytest.mark.server
@pytest.mark.timeout(600)
def test_an_interrupted_demo_ends_its_processes_and_leaves_the_stack_up(tell: Callable[[], Told], stack: Stack) -> None:
    servers = stack.running()
    told = tell()
    until("the demo to start a run", lambda: running_commands(told.place) or told.process.poll() is not None, 180)
    told.process.send_signal(signal.SIGINT)
    assert told.end(90) == 130, told.said
    assert "The servers of the stack are still up" in told.said
    assert "Traceback" not in told.said
    assert not running_commands(told.place)
    assert stack.running() == servers


@pytest.mark.soak
@pytest.mark.server
def test_a_database_that_the_demo_did_not_make_is_not_dropped(stack: Stack) -> None:
    endpoints = _endpoints(stack)
    remove_leftovers(endpoints)
    with psycopg.connect(endpoints.postgres, autocommit=True) as connection:
        connection.execute("create database shop")
        try:
            with pytest.raises(SourceError, match="a database `shop` that the demo did not make"):
                remove_leftovers(endpoints)
        finally:
            connection.execute("drop database shop")


def test_comparison_finds_what_is_missing_extra_and_different() -> None:
    rows = {"1": '{"a": 1}', "2": '{"a": 2}', "3": '{"a": 3}'}
    documents = [("2", parse('{"a": 2}')), ("3", parse('{"a": 4}')), ("4", parse('{"a": 4}'))]
    found = compare(rows, documents)
    assert found == Comparison(3, ("1",), ("4",), ("3",))
    assert str(found) == "3 documents compared: 1 missing, 1 extra, 1 different"
    assert not found.same


@pytest.mark.parametrize(
    ("row", "document", "same"),
    [
        ('{"a": 1.50, "b": [1]}', '{"b":[1],"a":1.5}', True),
        ('{"a": 0.1}', '{"a": 0.1000000000000000055511151231257827}', False),
        ('{"a": 9007199254740993}', '{"a": 9007199254740992}', False),
        ('{"a": 1}', '{"a": true}', False),
        ('{"a": 1}', '{"a": "1"}', False),
        ('{"a": null}', "{}", False),
    ],
)
def test_comparison_is_exact(row: str, document: str, same: bool) -> None:
    assert compare({"1": row}, [("1", parse(document))]).same == same


def test_a_document_that_a_scan_gives_twice_counts_once() -> None:
    assert compare({"1": "{}"}, [("1", {}), ("1", {})]) == Comparison(1)


def test_the_shop_is_the_same_on_every_run() -> None:
    assert [Words(1).product(n) for n in range(50)] == [Words(1).product(n) for n in range(50)]
    titles = {Words(n).product(1)[1] for n in range(500)}
    assert len(titles) > 490
