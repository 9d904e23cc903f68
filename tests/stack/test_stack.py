"""What the local stack does without its servers running: choosing, fetching, recording, refusing."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from driftless.errors import StackError
from stack import Stack, fetch, find_stack
from stack import stack as stack_module
from stack.machine import artifacts, ports
from stack.machine.home import User, file_lock, require_entry, require_space, write_private
from stack.machine.java import find_java, parse_version
from stack.machine.ports import DEFAULT_PORTS, choose_ports, is_free, require_free
from stack.machine.process import Pid, identify, last_lines
from stack.machine.record import Record
from stack.machine.unpack import OPENSEARCH2_MODULES


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRIFTLESS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is nobody's server."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A port that something else holds, and no patience with it."""
    monkeypatch.setattr(ports, "PATIENCE_SECONDS", 0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def fake_java(folder: Path, body: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!{sys.executable}\n{body}", encoding="utf-8")
    program.chmod(0o755)
    return folder


# A `java` that is 17 and, run as Ivy, fills `<target>/<conf>/` with the files that ought to come.
FAKE_IVY = """
import pathlib, sys
arguments = sys.argv[1:]
if arguments == ["-version"]:
    print('openjdk version "17.0.15" 2025-04-15', file=sys.stderr)
    sys.exit(0)
pattern = arguments[arguments.index("-retrieve") + 1]
calls = pathlib.Path(__file__).with_name("calls")
calls.write_text((calls.read_text() if calls.exists() else "") + "x")
{before}
for conf in arguments[arguments.index("-confs") + 1:]:
    for number in range({count}):
        name = pattern.replace("[conf]", conf).replace("[artifact]-[revision].[ext]", "a%d.jar" % number)
        pathlib.Path(name).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(name).write_text("jar")
        print("[SUCCESSFUL ] a.jar")
"""


def use_java(monkeypatch: pytest.MonkeyPatch, folder: Path, *, before: str = "", count: int = 1) -> Path:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(folder, FAKE_IVY.format(before=before, count=count))))
    return folder / "bin" / "calls"


class TestPorts:
    def test_a_block_has_a_port_for_everything_and_avoids_what_other_stacks_were_given(self) -> None:
        first = choose_ports("seed", ())
        second = choose_ports("seed", first.values())
        assert list(first) == list(second) == list(DEFAULT_PORTS)
        assert not set(first.values()) & set(second.values())
        assert len(set(first.values())) == len(first)

    def test_the_same_seed_finds_the_same_block(self) -> None:
        assert choose_ports("seed", ()) == choose_ports("seed", ())

    def test_a_block_with_a_port_in_use_is_passed_over(self) -> None:
        first = choose_ports("seed", ())
        with socket.create_server(("127.0.0.1", first["connect"])):
            assert not set(choose_ports("seed", ()).values()) & set(first.values())

    def test_a_taken_port_is_named_with_its_server_and_its_holder(self, listener: int) -> None:
        with pytest.raises(StackError, match=f"kafka: port {listener} is taken by .+ \\(pid \\d+\\)") as caught:
            require_free("kafka", listener)
        assert not caught.value.unreachable
        assert "another name" in caught.value.hint

    def test_a_port_is_free_again_when_its_listener_is_gone(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            assert not is_free(port)
        assert is_free(port)


class TestJava:
    @pytest.mark.parametrize(
        ("text", "version"),
        [
            ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
            ('openjdk version "25" 2025-09-16 LTS', 25),
            ('openjdk version "21-ea" 2023-09-19', 21),
            ('java version "1.8.0_392"', 8),
            ('Picked up JAVA_TOOL_OPTIONS: -Da="b"\nopenjdk version "11.0.2" 2019-01-15', 11),
            ("Unable to locate a Java Runtime.", None),
        ],
    )
    def test_the_feature_release_is_read_from_the_version_text(self, text: str, version: int | None) -> None:
        assert parse_version(text) == version

    def test_no_java_at_all(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(StackError, match="no Java found") as caught:
            find_java()
        assert "JDK 17 or newer" in caught.value.hint

    def test_a_java_home_without_java(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        with pytest.raises(StackError, match=f"JAVA_HOME is {tmp_path}, and there is no bin/java"):
            find_java()

    def test_a_java_that_is_too_old_is_named_with_its_version(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        old = fake_java(tmp_path / "jdk11", "import sys; print('openjdk version \"11.0.2\"', file=sys.stderr)")
        monkeypatch.setenv("JAVA_HOME", str(old))
        with pytest.raises(StackError, match=r"jdk11/bin/java: this is Java 11, and the servers need Java 17"):
            find_java()

    def test_a_java_that_does_not_work_is_quoted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        broken = fake_java(tmp_path / "jdk", "import sys; sys.exit('no runtime here')")
        monkeypatch.setenv("JAVA_HOME", str(broken))
        with pytest.raises(StackError, match="no runtime here"):
            find_java()

    def test_the_java_of_path_serves_without_java_home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = fake_java(tmp_path / "jdk", "import sys; print('openjdk version \"21.0.1\"', file=sys.stderr)")
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(folder / "bin"))
        assert (find_java().version, find_java().home) == (21, folder.resolve())


class TestFetch:
    def test_a_conf_is_fetched_once(self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = use_java(monkeypatch, tmp_path / "jdk")
        first = fetch(["redis"], lambda _: None)
        assert fetch(["redis"], lambda _: None) == first
        assert calls.read_text() == "x"
        assert first == {"redis": [artifacts.conf_folder("redis") / "redis" / "a0.jar"]}
        assert home in first["redis"][0].parents

    def test_two_at_once_fetch_once(self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = use_java(monkeypatch, tmp_path / "jdk", before="import time; time.sleep(0.3)")
        threads = [threading.Thread(target=fetch, args=(["redis"], lambda _: None)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        assert calls.read_text() == "x"
        assert (artifacts.conf_folder("redis") / "redis" / "a0.jar").is_file()
        assert home.is_dir()

    def test_what_an_interrupted_fetch_left_is_not_taken_for_whole(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        left = home / "artifacts" / ".partial" / "redis"
        left.mkdir(parents=True)
        (left / "half.jar").write_text("ha")
        use_java(monkeypatch, tmp_path / "jdk")
        assert [file.name for file in fetch(["redis"], lambda _: None)["redis"]] == ["a0.jar"]
        assert not left.exists()

    @pytest.mark.usefixtures("home")
    def test_fewer_files_than_named_are_an_error_and_are_not_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use_java(monkeypatch, tmp_path / "jdk", count=3)
        with pytest.raises(StackError, match="spark: 3 of 4 files arrived"):
            fetch(["spark"], lambda _: None)
        assert not artifacts.conf_folder("spark").exists()

    @pytest.mark.usefixtures("home")
    def test_a_failing_ivy_is_quoted_and_is_a_failure_to_reach(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use_java(monkeypatch, tmp_path / "jdk", before="print('UnknownHostException'); sys.exit(1)")
        with pytest.raises(
            StackError, match=r"could not be fetched; Ivy's last lines:\n  UnknownHostException"
        ) as caught:
            fetch(["redis", "spark"], lambda _: None)
        assert caught.value.unreachable
        assert not artifacts.conf_folder("redis").exists()

    @pytest.mark.usefixtures("home")
    def test_a_full_disk_is_refused_before_anything_is_fetched(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls = use_java(monkeypatch, tmp_path / "jdk")
        usage = shutil.disk_usage(tmp_path)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=5 << 20))
        with pytest.raises(StackError, match="5 MiB free on this disk, and the local stack needs 1024 MiB") as caught:
            fetch(["redis"], lambda _: None)
        assert not caught.value.unreachable
        assert not calls.exists()

    def test_an_unknown_conf_is_refused_with_those_that_exist(self) -> None:
        with pytest.raises(StackError, match=r"no conf 'mysql'; it has .*redis, kafka, debezium"):
            fetch(["mysql"], lambda _: None)

    def test_the_list_of_coordinates_names_every_conf_that_the_servers_use(self) -> None:
        used = ["postgres", "redis", "kafka", "debezium", "spark", "opensearch2", "opensearch3"]
        used += [f"opensearch2-{module}" for module in OPENSEARCH2_MODULES]
        digests = {artifacts.digest(artifacts.full_name(conf)) for conf in used}
        assert len(digests) == len(used)
        assert artifacts.version("opensearch2") == "2.19.6"


class TestProcess:
    def test_a_pid_that_was_given_out_again_is_another_process(self, sleeper: subprocess.Popen[bytes]) -> None:
        own = identify(sleeper.pid)
        assert own.alive()
        assert not Pid(sleeper.pid, "another boot:1").alive()

    def test_an_ended_child_is_not_alive_while_it_waits_to_be_reaped(self, sleeper: subprocess.Popen[bytes]) -> None:
        own = identify(sleeper.pid)
        own.kill_tree()
        assert not own.alive()

    def test_the_last_lines_leave_out_earlier_runs(self, tmp_path: Path) -> None:
        log = tmp_path / "server.log"
        log.write_text("old\n" + "".join(f"line {number}\n" for number in range(30)))
        assert last_lines(log, since=4).splitlines() == [f"  line {number}" for number in range(15, 30)]
        assert last_lines(log, since=log.stat().st_size) == "  (it said nothing)"
        assert last_lines(tmp_path / "none.log") == "  (no log was written)"


class TestStack:
    def remember(self, stack: Stack, **pids: Pid) -> None:
        stack.folder.mkdir(parents=True)
        record = Record(stack.folder / "state.json", dict(DEFAULT_PORTS), ("redis", "connect"))
        record.save()
        for name, pid in pids.items():
            record.remember(name, pid, "1.0")

    def test_down_leaves_a_process_that_only_has_the_number(
        self, tmp_path: Path, sleeper: subprocess.Popen[bytes]
    ) -> None:
        stack = Stack("s", home=tmp_path)
        self.remember(stack, redis=Pid(sleeper.pid, "another boot:1"))
        assert (stack.running(), stack.down()) == ({}, [])
        assert sleeper.poll() is None

    def test_down_ends_the_process_that_was_recorded(self, tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
        stack = Stack("s", home=tmp_path)
        self.remember(stack, redis=identify(sleeper.pid))
        assert (stack.running(), stack.down(), stack.down()) == ({"redis": sleeper.pid}, ["redis"], [])
        assert sleeper.wait(timeout=10) != 0

    def test_a_stack_that_was_never_started_has_nothing(self, tmp_path: Path) -> None:
        stack = Stack("s", home=tmp_path)
        assert (stack.running(), stack.endpoints(), stack.down()) == ({}, None, [])

    def test_a_first_up_that_is_refused_leaves_no_stack(
        self, tmp_path: Path, listener: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stack_module, "choose_ports", lambda *_: dict.fromkeys(DEFAULT_PORTS, listener))
        monkeypatch.setattr(stack_module, "server_user", lambda: None)
        stack = Stack("s", home=tmp_path, servers=("redis",))
        with pytest.raises(StackError, match=f"redis: port {listener} is taken"):
            stack.up()
        assert stack.endpoints() is None

    @pytest.mark.parametrize("name", ["", "Upper", "../x", "-x", "a" * 41])
    def test_a_name_that_is_no_folder_name_is_refused(self, name: str) -> None:
        with pytest.raises(StackError, match="not a name for a stack"):
            Stack(name)

    def test_an_unknown_server_is_refused(self) -> None:
        with pytest.raises(StackError, match="'mysql' is not a server of the stack") as caught:
            Stack(servers=("mysql",))
        assert caught.value.hint.startswith("name one of postgres, redis")

    def test_a_server_without_what_it_needs_is_refused(self) -> None:
        with pytest.raises(StackError, match="connect needs kafka"):
            Stack(servers=("connect",))

    def test_a_stack_is_found_by_the_url_of_its_connect(self, home: Path) -> None:
        self.remember(Stack("s"))
        port = DEFAULT_PORTS["connect"]
        for url in (f"http://127.0.0.1:{port}", f"http://localhost:{port}/"):
            found = find_stack(url)
            assert found is not None
            assert (found.name, found.home) == ("s", home)
        assert find_stack(f"http://connect.example:{port}") is None
        assert find_stack("http://127.0.0.1:1") is None
        assert find_stack("http://127.0.0.1:nonsense") is None

    def test_a_damaged_state_file_is_named(self, tmp_path: Path) -> None:
        stack = Stack("s", home=tmp_path)
        stack.folder.mkdir(parents=True)
        (stack.folder / "state.json").write_text('{"pids": 1}')
        with pytest.raises(StackError, match=r"state\.json: not a stack's state file"):
            stack.running()

    def test_the_password_is_not_in_what_endpoints_print(self, tmp_path: Path) -> None:
        stack = Stack("s", home=tmp_path)
        self.remember(stack, redis=Pid(1, "another boot:1"))
        assert "postgres" not in repr(stack.endpoints())


class TestHome:
    def test_a_folder_closed_to_the_servers_user_is_named(self, tmp_path: Path) -> None:
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o700)
        for folder in closed.parents:
            if folder != closed and folder.stat().st_mode & 0o001 == 0 and folder.owner() == closed.owner():
                folder.chmod(folder.stat().st_mode | 0o001)
        with pytest.raises(StackError, match=f"{closed}: closed to the user `someone`"):
            require_entry(closed / "stacks", User("someone", 64000, 64000))

    def test_who_changes_no_user_needs_no_entry(self, tmp_path: Path) -> None:
        require_entry(tmp_path, None)

    def test_a_private_file_is_closed_to_others_from_its_first_byte(self, tmp_path: Path) -> None:
        write_private(tmp_path / "password", "secret")
        assert (tmp_path / "password").stat().st_mode & 0o777 == 0o600
        assert [file.name for file in tmp_path.iterdir()] == ["password"]

    def test_space_is_asked_of_the_disk_that_will_hold_the_folder(self, tmp_path: Path) -> None:
        require_space(tmp_path / "not" / "yet" / "there", needed=1)
        with pytest.raises(StackError, match=f"{tmp_path}: "):
            require_space(tmp_path / "not" / "yet" / "there", needed=1 << 62)

    def test_a_lock_held_elsewhere_is_waited_for_and_told(self, tmp_path: Path) -> None:
        told = threading.Event()
        entered = threading.Event()

        def second() -> None:
            with file_lock(tmp_path / "lock", told.set):
                entered.set()

        thread = threading.Thread(target=second)
        with file_lock(tmp_path / "lock"):
            thread.start()
            assert told.wait(timeout=10)
            assert not entered.is_set()
        thread.join(timeout=10)
        assert entered.is_set()
