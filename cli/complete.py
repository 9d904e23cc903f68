"""What the shell offers at TAB. It never fails and never waits: where nothing can be told, it offers nothing."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from pathlib import Path

import typer

from driftless.errors import SyncError

REACH_SECONDS = 0.5
"""How long a broker may take to be reached before no number is offered."""


def followers(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names in the file, without those on the line; the file need not be right otherwise."""
    return _names(ctx, "followers", incomplete)


def _names(
    ctx: typer.Context, section: str, incomplete: str, wanted: Callable[[object], bool] = lambda _: True
) -> list[str]:
    from driftless.config_file.yaml import YamlFile

    try:
        found = YamlFile(_file(ctx)).data.get(section)
    except SyncError:
        return []
    named = ctx.params.get("names") or ()
    known = found.items() if isinstance(found, dict) else ()
    return _beginning(incomplete, (name for name, entry in known if name not in named and wanted(entry)))


def followers_and_views(ctx: typer.Context, incomplete: str) -> list[str]:
    """What may have a quarantine."""

    def built(view: object) -> bool:
        return isinstance(view, dict) and bool({"one", "many", "atomic"} & view.keys())

    return followers(ctx, incomplete) + _names(ctx, "views", incomplete, built)


def runnables(ctx: typer.Context, incomplete: str) -> list[str]:
    """What may be run."""
    return followers_and_views(ctx, incomplete) + streams(ctx, incomplete)


def compared(ctx: typer.Context, incomplete: str) -> list[str]:
    """What may be verified."""
    return followers(ctx, incomplete) + streams(ctx, incomplete)


def generations(ctx: typer.Context, incomplete: str) -> list[str]:
    """Numbers of the follower's generations, if Kafka answers at once."""
    from driftless.facts.generation import generations as known
    from driftless.pipeline import control_of, load

    try:
        config = load(_file(ctx))
        host, _, port = config.kafka.bootstrap.split(",")[0].rpartition(":")
        socket.create_connection((host.strip(), int(port)), REACH_SECONDS).close()
        # The option that lacks its number yet has ended the parsing before arguments were given their names.
        follower = ctx.params.get("follower") or next(iter(ctx.args), "")
        return _beginning(incomplete, known(control_of(config).read(), follower))
    except (SyncError, OSError):
        return []


def streams(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names in the file."""
    return _names(ctx, "streams", incomplete)


def stacks(incomplete: str) -> list[str]:
    """Stacks that were started on this machine."""
    from stack import stack_home

    return _beginning(incomplete, sorted(path.name for path in (stack_home() / "stacks").glob("*")))


def beginnings(incomplete: str) -> list[str]:
    """Where a replay may begin."""
    return _beginning(incomplete, ["start"])


def _file(ctx: typer.Context) -> Path:
    return Path(ctx.params.get("file") or "sync.yaml")


def _beginning(incomplete: str, names: Iterable[object]) -> list[str]:
    return [str(name) for name in names if str(name).startswith(incomplete)]
