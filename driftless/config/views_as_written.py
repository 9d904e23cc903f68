"""The views of a sync.yaml as they stand in the file, before they are known to be right: for the loader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

Location = tuple[int | str, ...]
Entry = dict[str, object]

TABLES = ("root", "table", "through")
"""The fields that name a table."""
KINDS = ("one", "many")


def parts(at: Location, entry: object) -> Iterator[tuple[Location, Entry]]:
    """A view and each of its relations, at any depth, where they are mappings at all."""
    if isinstance(entry, dict):
        yield at, entry
        for kind in KINDS:
            below = entry.get(kind)
            for name, relation in below.items() if isinstance(below, dict) else ():
                yield from parts((*at, kind, name), relation)


def with_tables(
    at: Location,
    entry: object,
    named: Callable[[Location, str], str],
    fields: Iterable[str] = TABLES,
    kinds: Iterable[str] = KINDS,
) -> object:
    """The same with each table by the name that `named` gives. `fields`: those that hold one. `kinds`: those that hold
    mappings of more such entries.
    """
    if not isinstance(entry, dict):
        return entry
    made = dict(entry)
    for field in fields:
        match entry.get(field):
            case str() as name:
                made[field] = named((*at, field), name)
            case list() as steps:
                made[field] = [
                    with_tables((*at, field, i), step, named, ("table",), ()) for i, step in enumerate(steps)
                ]
    for kind in kinds:
        if isinstance(below := entry.get(kind), dict):
            made[kind] = {name: with_tables((*at, kind, name), relation, named) for name, relation in below.items()}
    return made


def clashes(at: Location, entry: Entry) -> Iterator[tuple[Location, str]]:
    """Names that one object of the document would have twice, as far as the file tells."""
    columns = entry.get("columns")
    taken = {str(name): "a column" for name in columns} if isinstance(columns, dict | list) else {}
    between = entry.get("between")
    for name in between if isinstance(between, dict | list) else ():
        if name in taken:
            yield (*at, "between"), f"{name} is {taken[name]} of this part too: give each a name of its own"
        taken[str(name)] = "a column of the table between"
    for kind in ("computed", *KINDS):
        below = entry.get(kind)
        for name in below if isinstance(below, dict) else ():
            if name in taken:
                yield (*at, kind, name), f"{taken[name]} of this part is called so too: give each a name of its own"
            elif not name:
                yield (*at, kind, name), "has no name"
            taken.setdefault(name, "a name in `computed`" if kind == "computed" else f"a relation in `{kind}`")
