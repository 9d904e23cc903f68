"""What every command uses: the app, its exit codes, and how an error ends it."""

from __future__ import annotations

import atexit
import io
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, TypeVar

import psutil
import typer
import typer.core
import typer.exceptions

import driftless
from cli.output.console import PlainConsole, visible
from driftless.config.address import without_secrets
from driftless.config.models import Config
from driftless.errors import (
    ConfigError,
    SinkUnavailable,
    SourceMisconfigured,
    SourceUnavailable,
    StackError,
    SyncError,
)
from driftless.pipeline import control_of

YES, NO, WRONG, UNREACHABLE = 0, 1, 2, 3
"""Exit codes: done or yes; the answer is no; wrong use or configuration; a server cannot be reached."""
INTERRUPTED = 130
"""By Ctrl-C, as shells have it; 143 by SIGTERM."""
END_SECONDS = 9.0
"""How long a command may take to end in good order once it is told to: a bit less than 10 s, after which supervisors
send SIGKILL.
"""


class Commands(typer.core.TyperGroup):
    """The commands. What is said of wrong use quotes what was typed, less what looks like an address with a password:
    somebody may give the DSN where none is taken.
    """

    def make_context(self, *args: Any, **more: Any) -> Any:
        with _discreet():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        with _discreet():
            return super().invoke(ctx)


@contextmanager
def _discreet() -> Iterator[None]:
    try:
        yield
    except typer.exceptions.TyperException as exc:
        if isinstance(said := getattr(exc, "message", None), str):
            exc.message = visible(without_secrets(said))
        raise


app = typer.Typer(
    name="driftless",
    cls=Commands,
    help="Keeps search indexes and caches in step with Postgres, and proves it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
out = PlainConsole()
err = PlainConsole(stderr=True)

File = Annotated[Path, typer.Option("--file", "-f", help="The configuration.", show_default=True)]
Json = Annotated[bool, typer.Option("--json", help="Print facts as JSON.")]
SYNC = Path("sync.yaml")
T = TypeVar("T")


def main() -> None:
    """Run the command, and end the process with its exit code.

    The process ends without the exit handlers of C libraries: OpenSSL's takes away what a thread of librdkafka that
    connects at this moment still needs, and the process would end with SIGSEGV (seen: 3 of 25 refused logins).
    """
    ending = _Ending()
    atexit.register(ending.end)
    try:
        _command()
    except SystemExit as exc:
        ending.code = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
        raise
    ending.code = YES


class _Ending:
    """`code`: 1 after a traceback."""

    def __init__(self) -> None:
        self.code = 1

    def end(self) -> None:
        """The last of Python's own exit handlers, since it was the first to be registered."""
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(self.code)


def _command() -> None:
    """Run the command; an operator's mistake ends in a message and an exit code, never in a traceback.

    Ctrl-C and SIGTERM end every command within `END_SECONDS`: in good order, or else where it stands, which what is
    written anywhere outlives as it would a crash.
    """
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S", level=logging.WARNING)
    # What they warn of, with a traceback, is told by whoever called them.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    _heed_signals()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal of another encoding is no reason to fail
    try:
        app()
    except SystemExit as exc:
        if exc.code == INTERRUPTED and _told:
            err.print("interrupted")
            sys.exit(128 + _told[0])
        raise
    except SyncError as exc:
        say(told(exc))
        sys.exit(exit_code(exc))


_told: list[int] = []
"""The signals that told this process to end."""


def interrupt(number: int, _frame: FrameType | None) -> None:
    """What SIGINT and SIGTERM do, unless a command has something better to do."""
    _told.append(number)
    raise KeyboardInterrupt


def _heed_signals() -> None:
    def end_at_last() -> None:
        os.read(heard, 1)
        time.sleep(END_SECONDS)
        os.write(2, b"interrupted; ended without waiting any longer\n")
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
        os._exit(INTERRUPTED)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    # A library that waits for a server lets no handler run until it returns; this is told of the signal at once.
    heard, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    threading.Thread(target=end_at_last, daemon=True).start()


def told(exc: SyncError) -> str:
    """What the operator is told of an error, with what to do about it."""
    said = str(exc) if isinstance(exc, ConfigError) else f"error: {exc}"
    return without_secrets(f"{said}\n  {exc.hint}" if exc.hint else said)


def exit_code(exc: SyncError) -> int:
    """The contract's exit code for an error."""
    if isinstance(exc, SourceUnavailable | SinkUnavailable) or (isinstance(exc, StackError) and exc.unreachable):
        return UNREACHABLE
    return WRONG if isinstance(exc, ConfigError | StackError | SourceMisconfigured) else NO


def _version(asked: bool) -> None:
    if asked:
        out.print(f"driftless {driftless.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def no_generation(follower: str, number: int, known: Iterable[int]) -> ConfigError:
    """The error that stands for a number that none of a follower's generations has."""
    hint = f"give --generation one of these numbers: {', '.join(map(str, known))}"
    return ConfigError(f"{follower} has no generation {number}", hint=hint)


def moment_of(option: str, written: str) -> datetime:
    """A time in ISO 8601, in UTC where it does not say where. Raises ConfigError."""
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        raise ConfigError(
            f"{option}: `{written}` is no time in ISO 8601", hint=f"write a time as in `{option} 2026-03-01T12:00Z`"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def say(line: str) -> None:
    """Tell the operator what goes on, beside what a command prints."""
    err.print(line, soft_wrap=True)


@contextmanager
def reach(config: Config, *, admin: bool = False) -> Iterator[Any]:
    """Everything that a plan looks at, with the rights of `admin_dsn` where that is asked for and given."""
    from connectors.debezium.connect import Connect
    from connectors.pipeline.plan_context import PlanContext
    from connectors.postgres.client import Postgres

    control = control_of(config)
    with Postgres(config.source.dsn) as source:
        rights = Postgres(config.source.admin_dsn) if admin and config.source.admin_dsn else source
        try:
            yield PlanContext(source, rights, control.kafka, Connect(config.connect), control)
        finally:
            rights.close()
