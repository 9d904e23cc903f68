"""Documents in the stores, and what this machine keeps: found, and taken away."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import sinks
from connectors.pipeline.plan_context import Action
from connectors.removal.source_objects import Left
from driftless.config.models import Config, FollowerConfig
from driftless.facts.generation import Generation, generations
from driftless.facts.state import State
from driftless.sink import SinkContext
from stack import find_stack, kept_folders


def plan_documents(config: Config, state: State) -> tuple[list[Action], list[Left]]:
    """A step for each follower that was applied; and those whose store nobody knows any more."""
    actions, left = [], []
    for follower in sorted({key.rpartition("/")[0] for key in state.by_prefix("generation")}):
        entry, found = config.followers.get(follower), generations(state, follower)
        known = [each for each in found.values() if entry is not None and entry.kind == each.kind]
        if entry is not None and known:
            detail = f"generation {', '.join(str(each.number) for each in known)} in {entry.kind}"
            do = partial(_drop, config, follower, entry, known)
            actions.append(Action("drop", f"documents of {follower}", detail, do=do))
        if unknown := [str(each.number) for each in found.values() if each not in known]:
            what = f"documents of {follower}, generation {', '.join(unknown)}"
            left.append((what, "sync.yaml does not say where their store is: put the follower back as it was first"))
    return actions, left


def _drop(config: Config, follower: str, entry: FollowerConfig, found: list[Generation]) -> None:
    for each in found:
        context = SinkContext(config.name, follower, each.table.key)
        sink = sinks.open_sink(each.kind, each.settings(entry), context)
        try:
            sink.drop(each.number, also_live=True)
        finally:
            sink.close()


def plan_machine(config: Config) -> list[Action]:
    """What `run` and `verify` keep on this machine, and the secret that `apply` gave to a local stack."""
    kept = [path for path in _kept(config) if path.exists()]
    return [Action("drop", str(path), "on this machine", do=partial(_delete, path)) for path in kept]


def _kept(config: Config) -> Iterator[Path]:
    yield from kept_folders(config.name)
    stack = find_stack(config.connect.url)
    if stack is not None:
        yield stack.secrets_dir / config.name


def _delete(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
