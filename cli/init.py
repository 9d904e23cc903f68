"""`init`: from a database to a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.base import NO, SYNC, app, err, out
from driftless.errors import ConfigError


@app.command()
def init(
    dsn: Annotated[
        str, typer.Option("--dsn", envvar="DRIFTLESS_DSN", help="The database, by the role that will follow it.")
    ],
    file: Annotated[Path, typer.Option("--file", "-f", help="What to write.")] = SYNC,
    name: Annotated[str | None, typer.Option("--name", help="The pipeline's name; the database's if left out.")] = None,
    schema: Annotated[list[str] | None, typer.Option("--schema", help="Only this schema; may be repeated.")] = None,
    view: Annotated[
        list[str] | None,
        typer.Option("--view", help="Only the view of this table, and what it needs; may be repeated."),
    ] = None,
    nested: Annotated[
        bool, typer.Option("--nested", help="With --view: with the rows of other tables that belong to it.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Look at a database and write a commented sync.yaml to start from.

    Nothing is changed in the database. The DSN is not written: the file takes it from a variable. Exits 1 when there
    is no table that can be followed.

    Example: `driftless init --dsn postgresql://driftless:secret@db.example.com/shop --schema public`

    One view alone, with all that belongs to it: `driftless init --dsn DSN --view film --nested`
    """
    from cli.output.planned import numbered
    from cli.proposal.spelling import shown, slug
    from cli.proposal.syncfile import variable, write_sync, write_views
    from connectors.postgres.client import Postgres
    from connectors.postgres.init import propose
    from driftless.config.models import pipeline_name

    if file.exists() and not force:
        raise ConfigError(
            f"{file}: there is such a file", hint="name another one with -f, or write over it with --force"
        )
    if nested and not view:
        raise ConfigError("--nested: say which view, with --view", hint="without both, all are proposed in comments")
    try:
        if name is not None:
            pipeline_name(name)
    except ValueError as exc:
        raise ConfigError(f"--name: {exc}", hint="give --name another name; it is in every slot and topic") from None
    with Postgres(dsn) as source:
        pipeline = name or slug(source.server().database, fallback="pipeline")
        proposal = propose(source, pipeline, schema or ())
    # Of one view alone nobody asks what else there is.
    for table, reasons in () if view else proposal.left_out.items():
        err.print(f"left out: {shown(table)} {'; '.join(map(shown, reasons))}", soft_wrap=True)
    if not proposal.tables:
        err.print(f"{shown(proposal.database)}: no table that can be followed; nothing is written")
        raise typer.Exit(NO)
    text = write_views(pipeline, proposal, view, nested=nested) if view else write_sync(pipeline, proposal)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise ConfigError(
            f"{file}: cannot be written: {exc.strerror}", hint="name a file in a folder where you may write, with -f"
        ) from None
    what = f"{len(proposal.tables)} tables, {len(proposal.left_out)} left out"
    if view:
        what = f"{numbered(len(set(view)), 'view')} and what {'it needs' if len(set(view)) == 1 else 'they need'}"
    more = "" if file == SYNC else f" -f {file}"
    out.print(
        f"{file}: {what}\n\nRead it, then:\n"
        f"  export {variable(pipeline)}='...'    # the DSN that you gave\n"
        + "".join(f"  driftless {step}{more}\n" for step in ("check", "apply", "run")),
        soft_wrap=True,
        end="",
    )
