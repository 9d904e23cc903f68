"""How a command's process ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

ABORTS = (
    "import ctypes, sys, tempfile; libc = ctypes.CDLL(None); "
    "libc.__cxa_atexit(ctypes.cast(libc.abort, ctypes.c_void_p), None, None); "
    "from cli import main; sys.argv = ['driftless', *sys.argv[1:]]; main()"
)
"""A process in which the exit handlers of C would abort."""


@pytest.mark.parametrize(
    ("arguments", "code"), [(("--version",), 0), (("check", "-f", "nowhere.yaml"), 2), (("no",), 2)]
)
def test_no_exit_handler_of_a_c_library_runs(arguments: tuple[str, ...], code: int) -> None:
    """OpenSSL's would take away what threads of librdkafka still use."""
    done = subprocess.run([sys.executable, "-c", ABORTS, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == code, done
    assert (done.stdout + done.stderr).strip()


def test_what_was_printed_is_written_before_the_end() -> None:
    """Also where nobody reads it as it comes: into a pipe, it is written in one piece at the end."""
    code = ABORTS.replace("main()", "print('x' * 100_000); main()")
    done = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("x" * 100_000)
    assert "driftless" in done.stdout
