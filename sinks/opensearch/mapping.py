"""A mapping beside the documents that it is for: what it does not name, and what it names in vain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

SHOWN = 10
"""Fields that a note names."""


def mapping_notes(mapping: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[str]:
    """What an operator should know. `document`: a document's fields, with lists of one element.

    A mapping without `properties` says on purpose that nothing is searched, or that the server guesses.
    """
    unnamed, refused, absent = list[str](), list[str](), list[str]()
    copied = set(_copied(mapping))

    def walk(part: Mapping[str, Any], fields: Mapping[str, Any], dynamic: object, above: str) -> None:
        properties, dynamic = part.get("properties"), part.get("dynamic", dynamic)
        if not isinstance(properties, dict) or not properties:
            return
        named = {name.partition(".")[0] for name in properties}
        for name, content in fields.items():
            below = properties.get(name)
            inner = content[0] if isinstance(content, list) and content else content
            if name not in properties and name.partition(".")[0] not in named:
                if str(dynamic).lower() == "false":
                    unnamed.append(above + name)
                elif str(dynamic).lower() == "strict":
                    refused.append(above + name)
            elif isinstance(below, dict) and isinstance(inner, dict) and below.get("enabled", True):
                walk(below, inner, dynamic, f"{above}{name}.")
        heads = {name.partition(".")[0] for name in fields}
        for name, below in properties.items():
            alias = isinstance(below, dict) and below.get("type") == "alias"
            if not alias and above + name not in copied and name.partition(".")[0] not in heads:
                absent.append(above + name)

    walk(mapping, document, mapping.get("dynamic", True), "")
    if unnamed:
        yield (
            f"does not name {_listed(unnamed)}: with `dynamic: false` that is kept, and cannot be searched; "
            "add it under `properties`, or name it with `enabled: false` or `index: false`"
        )
    if refused:
        yield (
            f"does not name {_listed(refused)}: with `dynamic: strict` a document that has it is quarantined; "
            "add it under `properties`"
        )
    if absent:
        yield f"names {_listed(absent)}, which no document has: take it out, or show the column in the view"


def _copied(part: Mapping[str, Any]) -> Iterator[str]:
    """The fields that others are copied to."""
    properties = part.get("properties")
    for below in properties.values() if isinstance(properties, dict) else ():
        if isinstance(below, dict):
            to = below.get("copy_to", ())
            yield from [to] if isinstance(to, str) else to
            yield from _copied(below)


def _listed(fields: list[str]) -> str:
    more = len(fields) - SHOWN
    return ", ".join(fields[:SHOWN]) + (f" and {more} more" if more > 0 else "")
