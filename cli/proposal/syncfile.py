"""The text of a sync.yaml to start from, with comments. Whatever the names in it, it loads again as it was meant."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from cli.proposal.nested import (
    Declared,
    nested_view,
    nested_views,
    not_deleted,
    plain_view,
    tables_of,
    worth_of,
)
from cli.proposal.spelling import SLUG, key, shown, slug, value
from connectors.postgres.init import Proposal, Proposed
from connectors.postgres.worth import Worth
from driftless.errors import ConfigError
from driftless.sink import SinkContext
from driftless.suggest import did_you_mean
from driftless.table import Column
from sinks import config_model
from stack.machine.ports import DEFAULT_PORTS

MANY = 16
"""Followers that are written to run. More stand in comments: each takes a thread, and an index in the store.

Also the nested views that are proposed: who has read as many knows how they are written.
"""
LISTED = 64
"""Tables that have a view in the file. Of a database with hundreds nobody reads more."""
_MAPPINGS = {
    "keyword": "{type: keyword}",
    "text": "{type: text, fields: {keyword: {type: keyword, ignore_above: 256}}}",
    "kept": "{type: object, enabled: false}    # kept, not searched",
    "date": "{type: date}",
}
_FIELDS = {
    "int2": "{type: integer}",
    "int4": "{type: integer}",
    "int8": "{type: long}",
    "bool": "{type: boolean}",
    "numeric": "{type: double}    # the document has every digit; the index rounds",
    "float4": "{type: double}",
    "float8": "{type: double}",
    **dict.fromkeys(("text", "varchar", "bpchar"), _MAPPINGS["text"]),
    **dict.fromkeys(("timestamp", "timestamptz", "date"), _MAPPINGS["date"]),
    **dict.fromkeys(("json", "jsonb", "bytea"), _MAPPINGS["kept"]),
}
_RESERVED = {"_id", "_index", "_source", "_type", "_routing", "_version", "_seq_no", "_primary_term", "_ignored"}
_RESERVED |= {"_field_names", "_nested_path", "_doc_count", "_size", "_tier", "_feature", "_none_"}
"""Names that OpenSearch keeps for itself at the top of a document."""
_NESTED = "_nested"
"""What the name of a nested view ends in."""
_VIEWS = "views:    # what a document is: one for each row of `root`, with all columns where none are named"
_NOTE = "  # # "
"""What stands before words among blocks that are commented out: still a comment once one `# ` is taken away."""
_ABOUT_NESTED = """\
Nested views, along the foreign keys. Take away the `# ` of those that you want, here and of their followers
below. Leave out what you do not need, above all lists that grow without end. A view keeps on disk the rows
that it reads, and writes a document again, with all that is in it, when one row in it changes.
"""
_WIDTH = 100
"""Characters of a relation that stands on one line."""


@dataclass(frozen=True)
class Following:
    """One table's view, and what follows it. `properties`: the lines of its mapping."""

    view: str
    proposed: Proposed
    renamed: bool
    fields: Mapping[str, Column]
    properties: tuple[str, ...]
    redis_key: str | None


def write_sync(pipeline: str, proposal: Proposal) -> str:
    """The whole text."""
    followings, worth = _followings(pipeline, proposal), worth_of(proposal)
    first = [name for name in worth.order if name in worth.first][:MANY]
    order = [*first, *(name for name in worth.order if name not in first)][:LISTED]
    listed, running = [followings[name] for name in order], {followings[name].view for name in first or order[:MANY]}
    nested = _nested(pipeline, proposal, followings, worth)
    views = (*_views(listed, len(followings)), *_nested_views(nested))
    followers = (*_followers(pipeline, listed, running), *_nested_followers(pipeline, nested))
    return "\n".join((*_head(pipeline, proposal), *views, *followers, ""))


def write_views(pipeline: str, proposal: Proposal, wanted: Sequence[str], *, nested: bool) -> str:
    """The same of these views alone, with the tables that they need. `wanted`: as they are called on the command line.

    Raises ConfigError for one that there is no table for.
    """
    followings = _followings(pipeline, proposal)
    fields = {name: f.fields for name, f in followings.items()}
    chosen = {f.view: f for f in (_chosen(name, followings) for name in wanted)}
    made: list[tuple[Following, Declared]] = []
    for f in chosen.values():
        view = (nested_view if nested else plain_view)(proposal, fields, f.proposed.table.full_name)
        made.append((replace(f, properties=tuple(_nested_properties(view, f.fields, fields))), view))
    needed = {table for _, view in made for table in tables_of(view)}
    views = [_VIEWS, *(f"  {line}" for f, view in made for line in _block({f.view: view}))]
    followers = _followers(pipeline, [f for f, _ in made], {f.view for f, _ in made})
    return "\n".join((*_head(pipeline, proposal.only(needed)), *views, *followers, ""))


def _chosen(name: str, followings: Mapping[str, Following]) -> Following:
    """By the name that its view has in a whole file, or as the table is called."""
    for full_name, f in followings.items():
        if name in (f.view, full_name, f.proposed.table.name):
            return f
    known = did_you_mean(name, [f.view for f in followings.values()])
    raise ConfigError(
        f"--view: there is no table for a view {shown(name)}{known}",
        hint="without --view, `driftless init` writes every table that can be followed, and says why others cannot",
    )


def _followings(pipeline: str, proposal: Proposal) -> dict[str, Following]:
    slugs = _slugs(proposal.tables)
    return {p.table.full_name: _following(pipeline, slugs[p.table.full_name], p) for p in proposal.tables}


def variable(pipeline: str) -> str:
    """The environment variable that holds the DSN."""
    return f"{pipeline.upper().replace('-', '_')}_DSN"


def _slugs(tables: Iterable[Proposed]) -> dict[str, str]:
    """A name of its own for the view of each table; the plainest names are given first."""
    made: dict[str, str] = {}
    for proposed in sorted(tables, key=_plainness):
        table = proposed.table
        name = slug(table.name)
        if name in made.values():
            name = slug(f"{slug(table.schema, fallback='schema')}_{name}")
        made[table.full_name] = _numbered(name, made.values())
    return made


def _numbered(first: str, taken: Collection[str]) -> str:
    """The name itself, or with a number where it is taken."""
    name, number = first, 1
    while name in taken:
        number += 1
        name = f"{first[: SLUG - 1 - len(str(number))]}_{number}"
    return name


def _plainness(proposed: Proposed) -> tuple[bool, bool, str, str]:
    schema, name = proposed.table.schema, proposed.table.name
    return (schema != "public", slug(name) != name, schema, name)


def _following(pipeline: str, view: str, proposed: Proposed) -> Following:
    fields: dict[str, Column] = {}
    for column in sorted(proposed.shown, key=lambda c: not _is_field(c.name)):  # those that keep their names come first
        name = column.name if _is_field(column.name) else slug(column.name, fallback="field")
        first, number = name, 1
        while name in fields:
            number += 1
            name = f"{first}_{number}"
        fields[name] = column
    order = {column.name: at for at, column in enumerate(proposed.shown)}
    fields = dict(sorted(fields.items(), key=lambda item: order[item[1].name]))
    renamed = any(name != column.name for name, column in fields.items())
    redis_key = _redis_key(pipeline, view, proposed.table.key)
    return Following(view, proposed, renamed, fields, tuple(_properties(fields)), redis_key)


def _nested(
    pipeline: str, proposal: Proposal, plain: Mapping[str, Following], worth: Worth
) -> list[tuple[Following, Declared]]:
    """What follows each nested view, and the view."""
    fields = {name: f.fields for name, f in plain.items()}
    taken = {f.view for f in plain.values()}
    made = []
    for view in islice(nested_views(proposal, fields, worth), MANY):
        f = plain[str(view["root"])]
        name = _numbered(f"{f.view[: SLUG - len(_NESTED)]}{_NESTED}", taken)
        taken.add(name)
        properties = tuple(_nested_properties(view, f.fields, fields))
        redis_key = _redis_key(pipeline, name, f.proposed.table.key)
        made.append((replace(f, view=name, properties=properties, redis_key=redis_key), view))
    return made


def _is_field(column: str) -> bool:
    """Whether OpenSearch takes it for the name of one field: a dot would make an object of it."""
    return "." not in column and bool(column.strip()) and column not in _RESERVED


def _redis_key(pipeline: str, view: str, key: Sequence[str]) -> str | None:
    template = ":".join((pipeline, view, *(f"{{{column}}}" for column in key)))
    try:
        model = config_model("redis").model_validate({"url": "redis://localhost", "key": template})
        model.validate_for(SinkContext(pipeline, view, tuple(key)))
    except ValueError:
        return None
    return template


def _head(pipeline: str, proposal: Proposal) -> Iterator[str]:
    dsn = variable(pipeline)
    yield f"# A start for the database {shown(proposal.database)}, written by `driftless init`."
    yield "# Change what you like before the first `driftless apply`."
    yield f"name: {key(pipeline)}    # prefix of every topic, slot, publication and index"
    yield "source:"
    yield f"  dsn: ${{{dsn}}}    # a role with REPLICATION, and SELECT on the tables"
    yield f"  # admin_dsn: ${{{dsn.removesuffix('DSN')}ADMIN_DSN}}    # for `apply` alone: owns the tables"
    yield "  # One topic for each table. Tables, views and followers can come at any later time. A view and a follower"
    yield "  # are built from the topics, without load on the database."
    yield "  tables:"
    for proposed in proposal.tables:
        yield from _table(proposed)
    if proposal.left_out:
        yield "    # Left out:"
    for name, reasons in proposal.left_out.items():
        for reason in reasons:
            yield f"    # - {shown(name)} {shown(reason)}"
    yield "kafka:"
    yield f"  bootstrap: ${{KAFKA:-127.0.0.1:{DEFAULT_PORTS['kafka']}}}    # where KAFKA is not set: the local stack"
    yield "  partitions: 4     # of each table's topic; frozen once made"
    yield "  replication: 1    # 3 on a cluster"
    yield "connect:"
    yield f"  url: ${{CONNECT_URL:-http://127.0.0.1:{DEFAULT_PORTS['connect']}}}"
    yield f"  # password: file:/etc/connect/{pipeline}.properties:password    # where a worker of yours finds the DSN's"


def _table(proposed: Proposed) -> Iterator[str]:
    name = key(proposed.table.full_name)
    if proposed.secret:
        yield f"    {name}:"
        yield "      exclude:    # secret, by their names: they never leave the database"
        for column in proposed.secret:
            yield f"        - {value(column)}"
    else:
        yield f"    {name}: {{}}"
    for column, reason in proposed.refused.items():
        yield f"      # documents leave out {shown(column)}: it {shown(reason)}"


def _views(listed: Sequence[Following], of: int) -> Iterator[str]:
    yield _VIEWS
    if of > len(listed):
        yield f"{_NOTE}{of} tables are captured. These are the {len(listed)} that somebody would follow first;"
        yield f"{_NOTE}`driftless init --view NAME` writes the view and the followers of another one."
    for f in listed:
        yield f"  {key(f.view)}:"
        yield f"    root: {value(f.proposed.table.full_name)}"
        if f.renamed:
            yield "    columns:    # name in the document: column, since not every column's name can be a field's"
            for name, column in f.fields.items():
                yield f"      {key(name)}: {value(column.name)}"
        if (where := not_deleted(f.fields)) is not None:
            yield f"    where: {where}    # rows that are marked as deleted have no document"


def _nested_views(nested: Sequence[tuple[Following, Declared]]) -> Iterator[str]:
    if nested:
        yield from (f"{_NOTE}{line}" for line in _ABOUT_NESTED.splitlines())
    for f, view in nested:
        for line in _block({f.view: view}):
            yield f"  # {line}"


def _block(part: Mapping[str, object]) -> Iterator[str]:
    """What has no mapping in it stands on one line, where that is not too long."""
    for name, content in part.items():
        line = f"{key(name)}: {_flow(content)}"
        if not isinstance(content, dict) or (
            len(line) <= _WIDTH and not any(isinstance(c, dict) for c in content.values())
        ):
            yield line
        else:
            yield f"{key(name)}:"
            yield from (f"  {below}" for below in _block(content))


def _flow(content: object) -> str:
    if isinstance(content, dict):
        return "{" + ", ".join(f"{key(name)}: {_flow(inner)}" for name, inner in content.items()) + "}"
    if isinstance(content, list):
        return "[" + ", ".join(map(_flow, content)) + "]"
    return value(str(content))


def _nested_followers(pipeline: str, nested: Sequence[tuple[Following, Declared]]) -> Iterator[str]:
    if nested:
        yield f"{_NOTE}Followers of the nested views."
    for f, _ in nested:
        yield from (f"  # {line}" for line in _search(pipeline, f, told=True))
        yield from _cache(f)


def _followers(pipeline: str, listed: Sequence[Following], running: Collection[str]) -> Iterator[str]:
    yield "followers:"
    ordered = sorted(listed, key=lambda f: f.view not in running)
    for number, f in enumerate(ordered):
        if number == len(running):
            yield f"{_NOTE}From here on they are left to you. Take away the `# ` of those that you need."
        before = "  " if f.view in running else "  # "
        yield from (before + line for line in _search(pipeline, f, told=number > 0))
        yield from _cache(f)


def _search(pipeline: str, f: Following, *, told: bool) -> Iterator[str]:
    def tell(text: str) -> str:
        """What is the same for all is said once."""
        return "" if told else f"    # {text}"

    count = sum(1 + line.count("fields:") for line in f.properties)
    yield f"{f.view}-search:"
    yield f"  view: {key(f.view)}"
    yield "  opensearch:"
    yield f"    url: ${{SEARCH_URL:-http://127.0.0.1:{DEFAULT_PORTS['opensearch']}}}"
    yield f"    index: {key(f'{pipeline}-{f.view}')}{tell('the name that readers use: an alias')}"
    yield "    settings:"
    yield f"      mapping.ignore_malformed: true{tell('what is no date or number is kept, and cannot be searched')}"
    if count > 900:
        yield f"      mapping.total_fields.limit: {count + 100}"
    yield "    mapping:"
    yield f"      dynamic: false{tell('what is not listed is kept, and cannot be searched')}"
    yield "      properties:"
    yield from (f"        {line}" for line in f.properties)


def _properties(fields: Mapping[str, Column]) -> Iterator[str]:
    for name, column in fields.items():
        yield f"{key(name)}: {_mapping(column)}"


def _nested_properties(
    part: Declared, fields: Mapping[str, Column], tables: Mapping[str, Mapping[str, Column]]
) -> Iterator[str]:
    """The same of a view or relation with the relations below it, each an object."""
    yield from _properties(fields)
    for name, relation in (*part.get("one", {}).items(), *part.get("many", {}).items()):
        yield f"{key(name)}:"
        yield "  properties:"
        below = _nested_properties(relation, tables[relation["table"]], tables)
        yield from (f"    {line}" for line in below)


def _mapping(column: Column) -> str:
    if column.kind == "e":
        return _MAPPINGS["keyword"]
    return _FIELDS.get(column.type, _MAPPINGS["keyword"])


def _cache(f: Following) -> Iterator[str]:
    """In comments."""
    if f.redis_key is None:
        yield f"{_NOTE}no cache of {f.view}: the names of its key's columns cannot stand in a key of Redis"
        return
    yield f"  # {f.view}-cache:"
    yield f"  #   view: {key(f.view)}"
    yield "  #   redis:"
    yield f"  #     url: ${{CACHE_URL:-redis://127.0.0.1:{DEFAULT_PORTS['redis']}/0}}"
    yield f"  #     key: {value(f.redis_key)}"
