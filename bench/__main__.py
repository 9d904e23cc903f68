"""`python -m bench [CLAIM ...]`: measure, print each figure with its ratio, and fail on no time."""

from __future__ import annotations

import os
import signal
import time
from importlib import import_module
from typing import Annotated, cast

import typer
from rich.console import Console

from bench import record
from bench.figures import Claim, Figure, Scale, grid
from stack import Stack

CLAIMS = (
    "apply",
    "latency",
    "memory",
    "growth",
    "rebuild",
    "snapshot",
    "quarantine",
    "views",
    "idle",
    "growth_views",
    "verify",
    "streams",
    "stream_latency",
    "growth_streams",
)
_out = Console(highlight=False)


def main(
    claims: Annotated[list[str] | None, typer.Argument(help=f"Of {', '.join(CLAIMS)}; all if none is named.")] = None,
    rows: Annotated[
        int, typer.Option(min=1_000, help="Changes that are applied; every other size follows it.")
    ] = Scale.rows,
    pairs: Annotated[int, typer.Option(min=1, help="Times that ours and the reference take turns.")] = Scale.pairs,
    write: Annotated[bool, typer.Option("--write", help="Keep the figures in docs/benchmarks.md.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack `bench` up for another run.")] = False,
) -> None:
    """Measure on a stack of its own, which is destroyed at the end."""
    for name in claims or ():
        if name not in CLAIMS:
            raise typer.BadParameter(f"{name}: there are {', '.join(CLAIMS)}")
    stack, scale, measured = Stack("bench"), Scale(rows=rows, pairs=pairs), dict[str, list[Figure]]()
    described = record.machine(os.getloadavg()[0])
    _out.print(described, soft_wrap=True)
    try:
        stack.up(_say)
        for name in claims or CLAIMS:
            measured[name] = measure(name, stack, scale)
            _out.print(grid(name, measured[name]), end="\n\n")
    finally:
        if not keep:
            stack.destroy(_say)
    if write:
        record.write(described, scale, measured)


def measure(name: str, stack: Stack, scale: Scale) -> list[Figure]:
    """One claim's figures, telling what it does meanwhile."""
    claim = cast(Claim, import_module(f"bench.claims.{name}"))
    return claim.run(stack, scale, lambda line: _say(f"{name}: {line}"))


def _say(line: str) -> None:
    _out.print(f"{time.strftime('%H:%M:%S')} {line}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what it has started ends too
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    app()
