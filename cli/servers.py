"""`up` and `down`: the local stack."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.text import Text

from cli import complete
from cli.base import Json, app, out, say
from driftless.errors import ConfigError


@app.command()
def up(
    name: Annotated[
        str, typer.Option("--name", help="One of several stacks side by side.", autocompletion=complete.stacks)
    ] = "default",
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="With TLS by a CA of its own, logins on every hop, and few rights. OpenSearch is 2.",
        ),
    ] = False,
    pipeline: Annotated[
        str | None,
        typer.Option("--pipeline", help="With --secure: the name of the pipeline that is let in; else `shop`."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Start Postgres, Kafka, Connect with Debezium, OpenSearch and Redis on this machine, on loopback.

    They are fetched once. A stack that is up is left as it is.

    Example: `driftless up`

    A second one beside it, for a program to read: `driftless up --name try --json`

    As servers are elsewhere: `driftless up --name secure --secure --pipeline shop`
    """
    from driftless.config.models import pipeline_name
    from stack import Stack

    if pipeline is not None and not secure:
        raise ConfigError("--pipeline: without --secure everybody is let in", hint="leave it out, or add --secure")
    pipeline = pipeline or "shop"
    try:
        pipeline_name(pipeline)
    except ValueError as exc:
        raise ConfigError(f"--pipeline: {exc}", hint="give the name that stands in sync.yaml") from None
    stack = Stack(name, secure=secure)
    endpoints = stack.up(say)
    if secure:
        _tell_secured(stack.allow(pipeline), pipeline, as_json=as_json)
    elif as_json:
        print(json.dumps(vars(endpoints)))
    else:
        for server, address in vars(endpoints).items():
            out.print(f"{server:<11} {address}", soft_wrap=True)
    if as_json:
        return
    out.print(f"\nstop it with: driftless down{'' if name == 'default' else f' --name {name}'}")


def _tell_secured(sections: Mapping[str, Any], pipeline: str, *, as_json: bool) -> None:
    """Say what a sync.yaml needs. It holds no secret: it names the files."""
    from driftless.config_file.yaml import written

    if as_json:
        print(json.dumps(sections))
        return
    stores = {name: sections[name] for name in ("opensearch", "redis") if name in sections}
    parts = {"name": pipeline, **{name: part for name, part in sections.items() if name not in stores}}
    for where, part in (("sync.yaml", parts), ("each follower, with its `index` or `key`", stores)):
        out.print(Text(f"# in {where}:\n{written(part)}", end=""), soft_wrap=True)


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
