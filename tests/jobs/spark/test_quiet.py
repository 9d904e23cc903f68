"""What a JVM writes to its standard error: all of it is shown, at once, but for one line at its start."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.spark import quiet
from jobs.spark.private import PUBLIC_ONLY
from tests.support.files import ROOT
from tests.support.machine import until

LINE = quiet.INCUBATOR + b" jdk.incubator.vector\n"


@contextmanager
def shown() -> Iterator[tuple[int, int, threading.Thread]]:
    """Where a JVM writes, where it is shown, and the thread between them."""
    reading, writing = os.pipe()
    seen, to = os.pipe()
    thread = threading.Thread(target=quiet._pass_on, args=(reading, to), daemon=True)
    thread.start()
    try:
        yield writing, seen, thread
    finally:
        for fd in (writing, seen, to):
            try:
                os.close(fd)
            except OSError:
                assert fd in (writing, seen), "closed by the test itself"
        thread.join(10)


def arrives(fd: int) -> bytes:
    assert select.select([fd], [], [], 10)[0], "nothing came within 10 s"
    return os.read(fd, 1 << 16)


@pytest.mark.parametrize(
    ("came", "wanted"),
    [
        (LINE, b""),
        (LINE + b"a\nb\n", b"a\nb\n"),
        (b"a\n" + LINE + b"b", b"a\nb"),
        (b"a" + LINE, b"a" + LINE),
        (b"WARNING: Using no modules\n" + LINE, b"WARNING: Using no modules\n"),
        (LINE + LINE, LINE),
        (b"WARNING: Us", b"WARNING: Us"),
        (b"WARNING: Us\n\n" + LINE, b"WARNING: Us\n\n"),
        (quiet.INCUBATOR + b" never ended", quiet.INCUBATOR + b" never ended"),
        (b"\xff\x00\n" + LINE + b"\xff", b"\xff\x00\n\xff"),
        (b"", b""),
    ],
)
@given(data=st.data())
def test_one_line_is_left_out_however_it_is_cut(came: bytes, wanted: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(came)))))
    start = quiet._Start()
    pieces = [came[a:b] for a, b in zip([0, *cuts], [*cuts, len(came)], strict=True)]
    assert b"".join(map(start.without_line, pieces)) + start.release() == wanted


def test_what_comes_is_shown_at_once_whole_line_or_not() -> None:
    with shown() as (jvm, seen, _):
        for piece in (b"begins", b" and goes on", b"\n", b"next "):
            os.write(jvm, piece)
            assert arrives(seen) == piece


def test_what_might_have_become_that_line_is_shown_a_moment_later() -> None:
    with shown() as (jvm, seen, _):
        os.write(jvm, b"WARNING: U")
        assert arrives(seen) == b"WARNING: U"
        os.write(jvm, LINE)
        assert arrives(seen) == LINE, "the rest of a line that is shown already"
        os.write(jvm, LINE + b"more")
        assert arrives(seen) == b"more"


def test_a_terminal_that_is_closed_holds_up_no_jvm() -> None:
    with shown() as (jvm, seen, thread):
        os.close(seen)
        for _ in range(100):
            assert os.write(jvm, bytes(1 << 16)) == 1 << 16
        os.close(jvm)
        until("the end of it", lambda: not thread.is_alive(), 10)


STARTED = """
import subprocess, sys
from jobs.spark.quiet import quiet_start
with quiet_start() as stderr:
    said = "echo 'WARNING: Using incubator modules: jdk.x' >&2; echo early >&2; cat; echo late >&2"
    child = subprocess.Popen(["sh", "-c", said], stdin=-1, stderr=stderr)
print("ours", file=sys.stderr, flush=True)
child.communicate(b"")
try:
    with quiet_start() as stderr:
        subprocess.run(["sh", "-c", "echo failed >&2; exit 3"], stderr=stderr, check=True)
except subprocess.CalledProcessError as exc:
    sys.exit(exc.returncode)
"""


def test_a_child_says_the_rest_of_what_it_says_after_its_start_and_where_it_fails() -> None:
    done = subprocess.run([sys.executable, "-c", STARTED], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert (done.returncode, sorted(done.stderr.split())) == (3, ["early", "failed", "late", "ours"])


SPARK = """
from jobs.spark.private import jvm_of
from jobs.spark.session import session, stop
spark = session([])
jvm_of(spark).java.lang.System.err.println("from the JVM")
print(spark.range(3).count())
stop(spark)
"""


@pytest.mark.parametrize("public", ["", pytest.param("1", marks=pytest.mark.soak)])
def test_a_session_says_nothing_of_modules_and_what_else_the_jvm_says_is_shown(public: str) -> None:
    environment = {**os.environ, PUBLIC_ONLY: public}
    done = subprocess.run(
        [sys.executable, "-c", SPARK], capture_output=True, text=True, timeout=120, cwd=ROOT, env=environment
    )
    assert (done.returncode, done.stdout) == (0, "3\n")
    assert "incubator" not in done.stderr
    assert "from the JVM" in done.stderr
