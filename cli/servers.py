"""`up` and `down`: the local stack."""

from __future__ import annotations

import json
import shutil
from typing import Annotated

import typer

from cli import complete
from cli.base import Json, app, out, say


@app.command()
def up(
    name: Annotated[
        str, typer.Option("--name", help="One of several stacks side by side.", autocompletion=complete.stacks)
    ] = "default",
    as_json: Json = False,
) -> None:
    """Start Postgres, Kafka, Connect with Debezium, OpenSearch and Redis on this machine, on loopback.

    They are fetched once. A stack that is up is left as it is.

    Example: `driftless up`

    A second one beside it, for a program to read: `driftless up --name try --json`
    """
    from stack import Stack

    endpoints = Stack(name).up(say)
    if as_json:
        print(json.dumps(vars(endpoints)))
        return
    for server, address in vars(endpoints).items():
        out.print(f"{server:<11} {address}", soft_wrap=True)
    out.print(f"\nstop it with: driftless down{'' if name == 'default' else f' --name {name}'}")


@app.command()
def down(
    name: Annotated[str, typer.Option("--name", help="The stack to stop.", autocompletion=complete.stacks)] = "default",
    purge: Annotated[
        bool,
        typer.Option("--purge", help="Delete the stack's data too, and what pipelines on it kept on this machine."),
    ] = False,
) -> None:
    """Stop what `up` started, and only that. Data stays unless you say --purge.

    Example: `driftless down`

    With the data of a stack: `driftless down --name try --purge`
    """
    from stack import Stack, kept_folders

    stack = Stack(name)
    pipelines = stack.pipelines() if purge else []
    stopped = stack.down(say)
    if purge:
        stack.destroy()
        for pipeline in pipelines:
            for folder in kept_folders(pipeline):
                shutil.rmtree(folder, ignore_errors=True)
    out.print(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")
