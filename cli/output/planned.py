"""How a plan reads: of a short one every step; of a long one how many there are of each kind, and the first of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from driftless.config.kafka_security import KafkaSecurity, worker_settings

SHORT = 20
"""Steps, of all or of one kind, that are listed each."""
NAMED = 3
"""Of a kind that is not listed, so many are named."""
LINES = 60
"""Of documents that stand below the steps. Where they take more, each is cut to one line."""
_WIDTH = 100
_OF_TABLES = re.compile(r"(columns of|epoch \d+ of|trigger \S+ on|trigger of) (.*)", re.DOTALL)


def steps_told(actions: Sequence[Any], *, whole: bool) -> Iterator[str]:
    """A line for each step, or for each kind of step where they are many. What is dropped is always listed."""
    if whole or len(actions) <= SHORT:
        yield from map(str, actions)
        return
    for kind in _grouped(actions, lambda action: (action.verb, _kind(action.what)[0])):
        if len(kind) <= NAMED or kind[0].verb == "drop":
            yield from map(str, kind)
            continue
        alike = _grouped(kind, lambda action: action.detail)
        if len(alike) > NAMED and (len(kind) > SHORT or kind[0].verb in ("create", "register", "forget")):
            alike = [kind]  # each has its own, which says no more than that it is done
        for some in alike:
            yield _together(some)


def numbered(count: int, what: str) -> str:
    """`1 change`, `2,000 changes`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _together(actions: Sequence[Any]) -> str:
    if len(actions) == 1:
        return str(actions[0])
    first = actions[0]
    what, names = _kind(first.what)[0], list(dict.fromkeys(_kind(action.what)[1] for action in actions))
    if len(names) == 1:  # as rights of one role, which differ in the reason
        return f"{first.verb} {first.what}: {_listed([action.detail for action in actions], '; ')}"
    counted = f"{what} {len(names):,} tables" if _OF_TABLES.fullmatch(first.what) else numbered(len(names), what)
    reason = f" ({first.detail})" if len({action.detail for action in actions}) == 1 and first.detail else ""
    return f"{first.verb} {counted}{reason}: {_listed(names, ', ')}"


def _listed(names: Sequence[str], between: str) -> str:
    shown, more = between.join(names[:NAMED]), len(names) - NAMED
    return f"{shown} and {more:,} more" if more > 0 else shown


def _kind(what: str) -> tuple[str, str]:
    """`topic a.b` -> (topic, a.b); `columns of public.a` -> (columns of, public.a)."""
    found = _OF_TABLES.fullmatch(what)
    if found is not None:
        return found[1], found[2]
    kind, _, name = what.partition(" ")
    return kind, name


def _grouped(actions: Sequence[Any], by: Callable[[Any], Hashable]) -> list[list[Any]]:
    """By what they have in common, in the order of the first of each."""
    groups: dict[Hashable, list[Any]] = {}
    for action in actions:
        groups.setdefault(by(action), []).append(action)
    return list(groups.values())


def worker_told(security: KafkaSecurity) -> Iterator[str]:
    """What the Connect worker needs to be told, which is not ours to set."""
    yield "\nThe Connect worker's settings, so that it reaches the brokers, with a user of its own (docs/security.md):"
    for name, value in worker_settings(security).items():
        yield f"  {name}={value}"


def samples_told(samples: Mapping[str, Any], *, whole: bool) -> Iterator[str]:
    """A document of each view. `samples`: as connectors/pipeline/samples.py has them."""
    blocks = {name: f"view {name}, a document:\n{sample}" for name, sample in samples.items()}
    if whole or sum(block.count("\n") + 2 for block in islice(blocks.values(), LINES)) <= LINES:
        for block in blocks.values():
            yield f"\n{block}"
        return
    yield "\nDocuments, by their fields; --all shows them whole:"
    for name, sample in samples.items():
        fields = ", ".join(sample.document)
        line = f"  view {name}: {fields}"
        cut = line if len(line) <= _WIDTH else line[: line.rindex(",", 0, _WIDTH - 4)] + ", ..."
        yield f"{cut} ({sample.note})" if sample.note else cut
