"""`python -m bench [CLAIM ...]`: measure, print each figure with its ratio, and fail on no time."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Annotated, cast

import typer
from rich.console import Console

from bench.figures import Claim, Figure, Scale, grid
from stack import Stack

CLAIMS = ("apply",)
_out = Console(highlight=False)


def main(
    claims: Annotated[list[str] | None, typer.Argument(help=f"Of {', '.join(CLAIMS)}; all if none is named.")] = None,
    rows: Annotated[
        int, typer.Option(min=1_000, help="Changes of the largest single apply; the rest follows.")
    ] = Scale.rows,
    pairs: Annotated[
        int, typer.Option(min=1, help="Times that ours and the reference are taken in turn.")
    ] = Scale.pairs,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the stack `bench` up, so that the next run starts faster.")
    ] = False,
) -> None:
    """Measure on a stack of its own, which is destroyed at the end."""
    for name in claims or ():
        if name not in CLAIMS:
            raise typer.BadParameter(f"{name}: there are {', '.join(CLAIMS)}")
    stack, figures = Stack("bench"), list[Figure]()
    try:
        stack.up(_say)
        for name in claims or CLAIMS:
            found = measure(name, stack, Scale(rows=rows, pairs=pairs))
            _out.print(grid(name, found), end="\n\n")
            figures += found
    finally:
        if not keep:
            stack.destroy(_say)


def measure(name: str, stack: Stack, scale: Scale) -> list[Figure]:
    claim = cast(Claim, import_module(f"bench.{name}"))
    return claim.run(stack, scale, lambda line: _say(f"{name}: {line}"))


def _say(line: str) -> None:
    _out.print(f"{time.strftime('%H:%M:%S')} {line}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)
