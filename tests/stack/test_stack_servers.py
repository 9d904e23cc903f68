"""Real servers of a small stack: started, killed, broken and stopped."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest
import redis

from driftless.errors import StackError
from stack import Endpoints, Stack, launch
from stack.machine.process import Pid, spawn

pytestmark = pytest.mark.server

SERVERS = ("postgres", "redis")


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A folder that the servers' user can enter, as pytest's own is not when the tests run as root."""
    folder = Path(tempfile.mkdtemp(prefix="driftless-stack-"))
    folder.chmod(0o755)
    yield folder
    for path in (folder / "stacks").glob("*"):
        Stack(path.name, home=folder).down()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def stack(home: Path) -> Stack:
    return Stack("small", home=home, servers=SERVERS)


@pytest.fixture
def endpoints(stack: Stack) -> Endpoints:
    return stack.up()


def test_up_on_a_stack_that_is_up_changes_nothing(stack: Stack, endpoints: Endpoints) -> None:
    before = stack.running()
    assert set(before) == set(SERVERS)
    assert stack.up() == endpoints == stack.endpoints()
    assert stack.running() == before


def test_another_up_of_the_same_name_takes_the_servers_it_finds(home: Path, stack: Stack, endpoints: Endpoints) -> None:
    assert Stack("small", home=home).up() == endpoints
    assert set(stack.running()) == set(SERVERS)


@pytest.mark.usefixtures("endpoints")
def test_every_server_listens_on_loopback_alone(stack: Stack) -> None:
    for number in stack.running().values():
        listening = [c.laddr.ip for c in psutil.Process(number).net_connections() if c.status == psutil.CONN_LISTEN]
        assert set(listening) == {"127.0.0.1"}


def test_postgres_is_ready_for_logical_decoding(endpoints: Endpoints) -> None:
    names = ("wal_level", "max_replication_slots", "max_wal_senders", "fsync", "TimeZone", "server_encoding")
    with psycopg.connect(endpoints.postgres, autocommit=True) as connection:
        values = [connection.execute("SELECT current_setting(%s)", (name,)).fetchone() for name in names]
        assert values == [("logical",), ("20",), ("20",), ("on",), ("UTC",), ("UTF8",)]
        slot = "SELECT slot_name FROM pg_create_logical_replication_slot('probe', 'pgoutput')"
        assert connection.execute(slot).fetchone() == ("probe",)
        connection.execute("SELECT pg_drop_replication_slot('probe')")


def test_postgres_wants_its_password(endpoints: Endpoints) -> None:
    without = endpoints.postgres.replace(":" + endpoints.postgres.split(":")[2].split("@")[0], "")
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(without, connect_timeout=5)


def test_a_killed_postgres_comes_back_with_what_was_committed(stack: Stack, endpoints: Endpoints) -> None:
    with psycopg.connect(endpoints.postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (id int)")
        connection.execute("INSERT INTO kept VALUES (1)")
    before = stack.running()
    backends = psutil.Process(before["postgres"]).children()
    stack.kill("postgres")
    assert set(stack.running()) == {"redis"}
    assert not any(backend.is_running() and backend.status() != psutil.STATUS_ZOMBIE for backend in backends)
    stack.start("postgres")
    with psycopg.connect(endpoints.postgres) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (1,)
    after = stack.running()
    assert (after["redis"], after["postgres"] != before["postgres"]) == (before["redis"], True)


@pytest.mark.usefixtures("endpoints")
def test_a_stale_lock_with_the_pid_of_another_program_does_not_keep_postgres_down(stack: Stack) -> None:
    stack.kill("postgres")
    lock = stack.folder / "data" / "postgres" / "postmaster.pid"
    lines = lock.read_text().splitlines()
    lines[0] = str(stack.running()["redis"])
    lock.write_text("\n".join(lines) + "\n")
    stack.start("postgres")
    assert set(stack.running()) == set(SERVERS)


def test_a_killed_redis_comes_back_with_its_data(stack: Stack, endpoints: Endpoints) -> None:
    with redis.Redis.from_url(endpoints.redis) as client:
        client.set("kept", "1")
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    stack.stop("redis")
    assert set(stack.running()) == {"postgres"}
    stack.start("redis")
    stack.kill("redis")
    stack.start("redis")
    with redis.Redis.from_url(endpoints.redis) as client:
        assert client.get("kept") == b"1"


@pytest.mark.usefixtures("endpoints")
def test_a_server_that_dies_while_starting_is_reported_with_its_last_lines(stack: Stack) -> None:
    stack.stop("postgres")
    settings = stack.folder / "data" / "postgres" / "postgresql.auto.conf"
    kept = settings.read_text()
    settings.write_text("wal_level = 'nonsense'\n")
    try:
        with pytest.raises(StackError) as caught:
            stack.up()
    finally:
        settings.write_text(kept)
    assert str(caught.value).startswith("postgres ended with exit code 1 while starting; the last lines of ")
    assert 'invalid value for parameter "wal_level": "nonsense"' in str(caught.value)
    assert caught.value.unreachable
    assert set(stack.running()) == {"redis"}


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_server_whose_port_is_taken_just_then_is_started_up_to_three_times(
    stack: Stack, endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """As a client does that asks again and again for a server that is down: now and then it meets itself."""
    client = socket.socket()
    stack.stop("redis")
    left = [turns]

    def start(*given: Any, **named: Any) -> Pid:
        if left[0] == turns:  # once nobody looks any more whether the port is free
            client.bind(("127.0.0.1", urlsplit(endpoints.redis).port))
        pid = spawn(*given, **named)
        left[0] -= 1
        pid.wait(10 if left[0] >= 0 else 0)
        if not left[0]:
            client.close()
        return pid

    monkeypatch.setattr(launch, "spawn", start)
    said: list[str] = []
    with closing(client):
        if turns < 3:
            stack.start("redis", said.append)
        else:
            with pytest.raises(StackError, match=r"Address (already )?in use") as caught:
                stack.start("redis", said.append)
            assert "another program took its port" in caught.value.hint
    again = "redis: another program held its port; starting it again"
    assert said.count(again) == min(turns, 2)
    assert ("redis" in stack.running()) == (turns < 3)


def test_down_stops_its_own_servers_and_no_others(home: Path, stack: Stack, endpoints: Endpoints) -> None:
    other = Stack("other", home=home, servers=("redis",))
    assert other.up().redis != endpoints.redis
    assert stack.down() == ["postgres", "redis"]
    assert (stack.running(), list(other.running())) == ({}, ["redis"])
    assert stack.down() == []
    other.destroy()
    assert (other.running(), other.folder.exists()) == ({}, False)


@pytest.mark.usefixtures("endpoints")
def test_ctrl_c_in_the_terminal_that_started_the_servers_does_not_reach_them(stack: Stack) -> None:
    numbers = stack.running().values()
    assert {os.getsid(number) for number in numbers} == {os.getpgid(number) for number in numbers} == set(numbers)
