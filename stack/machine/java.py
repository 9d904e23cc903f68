"""Which Java the servers run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from driftless.errors import StackError

OLDEST = 17
OPTIONS = "DRIFTLESS_STACK_JAVA_OPTIONS"
"""The variable with further options for the JVMs of a stack."""
_HINT = f"install a JDK {OLDEST} or newer, and set JAVA_HOME to its folder"
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


@dataclass(frozen=True)
class Java:
    """A Java that was asked for its version, so it starts and is new enough."""

    program: Path
    version: int

    @property
    def home(self) -> Path:
        return self.program.resolve().parent.parent


def more_options() -> list[str]:
    """What whoever starts a stack wants its JVMs to be given besides."""
    return os.environ.get(OPTIONS, "").split()


def find_java(variable: str = "JAVA_HOME") -> Java:
    """Take the Java of JAVA_HOME, else of PATH; one that is missing, broken or too old is an error that says which.

    `variable`: another one to look at first, for a server that may have a Java of its own.
    """
    variable = variable if os.environ.get(variable) else "JAVA_HOME"
    home = os.environ.get(variable)
    if home:
        program = Path(home) / "bin" / "java"
        if not os.access(program, os.X_OK):
            raise StackError(f"{variable} is {home}, and there is no bin/java in it", hint=_HINT)
    else:
        found = shutil.which("java")
        if found is None:
            raise StackError("no Java found: JAVA_HOME is not set and there is no `java` on PATH", hint=_HINT)
        program = Path(found)
    try:
        answer = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise StackError(f"{program}: does not run: {exc}", hint=_HINT) from exc
    text = answer.stderr + answer.stdout
    version = parse_version(text)
    if answer.returncode != 0 or version is None:
        raise StackError(f"{program}: not a working Java; `java -version` said: {text.strip()[:300]}", hint=_HINT)
    if version < OLDEST:
        raise StackError(f"{program}: this is Java {version}, and the servers need Java {OLDEST} or newer", hint=_HINT)
    return Java(program, version)


def parse_version(text: str) -> int | None:
    """The feature release in the output of `java -version`: 8 for "1.8.0_392", 21 for "21-ea"."""
    match = _VERSION.search(text)
    if match is None:
        return None
    first, second = match.groups()
    return int(second) if first == "1" and second else int(first)
