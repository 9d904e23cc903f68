"""sync.yaml: its models, and loading it with every mistake reported at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from driftless.errors import ConfigError
from driftless.table import join_name, split_name
from driftless.where import WhereRefused, parse
from driftless.yamlfile import Location, YamlFile, did_you_mean

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,47}")
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
NOT_YET = {"one", "many", "through", "shards", "atomic"}
"""Fields of the contract that this version does not build yet; naming them gets its own message."""


def pipeline_name(name: str) -> str:
    """The name itself, where it can be one; else a ValueError with a text for the operator."""
    if not _NAME.fullmatch(name):
        raise ValueError("use lower-case letters, digits, `_` and `-`, begin with a letter, at most 48")
    return name


def _duration(text: str) -> str:
    if not _DURATION.fullmatch(text):
        raise ValueError("write a number and a unit: ms, s, m, h or d, as in `7d`")
    return text


def milliseconds(duration: str) -> int:
    """`7d` -> 604800000."""
    match = _DURATION.fullmatch(duration)
    if match is None:
        raise ValueError(f"{duration!r} is not a duration")
    return int(match[1]) * _UNIT_MS[match[2]]


Name = Annotated[str, AfterValidator(pipeline_name)]
Duration = Annotated[str, AfterValidator(_duration)]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TableConfig(Model):
    """One captured table. Frozen once its topic is made."""

    exclude: tuple[str, ...] = Field(default=(), description="Columns that never leave the database.")
    partitions: int | None = Field(default=None, ge=1, le=512, description="Partitions of the table's topic.")
    retention: Duration = Field(default="7d", description="How long the log keeps a delete before it may forget it.")


class SourceConfig(Model):
    dsn: str = Field(description="Postgres, with a role that has REPLICATION and SELECT.")
    admin_dsn: str | None = Field(default=None, description="For `apply` alone: a role that owns the tables.")
    tables: dict[str, TableConfig] = Field(
        description='The tables to capture, as schema.table; a part that holds `.` or `"` is quoted as in SQL.'
    )


class KafkaConfig(Model):
    bootstrap: str = Field(description="host:port of one or more brokers, separated by commas.")
    partitions: int = Field(default=4, ge=1, le=512, description="Partitions of a table's topic.")
    replication: int = Field(default=1, ge=1, le=9, description="Copies that the brokers keep.")
    options: dict[str, str] = Field(default_factory=dict, description="Any client setting, as for TLS and SASL.")


class ConnectConfig(Model):
    url: str = Field(description="The REST interface of Kafka Connect.")
    password: str | None = Field(
        default=None,
        description="Where the Connect worker finds the DSN's password, as `provider:path:key` of one of its config "
        "providers: `file:/etc/connect/shop.properties:password`, `env:SHOP_PASSWORD`. The local stack needs none.",
    )


class ViewConfig(Model):
    root: str = Field(description="The table that gives one document a row.")
    columns: tuple[str, ...] | dict[str, str] | None = Field(
        default=None,
        description="Columns to show: a list, or a mapping {name in the document: column}. All if left out.",
    )
    where: str | None = Field(default=None, description="Which rows of the root have a document (docs/where.md).")

    def fields(self, columns: tuple[str, ...]) -> dict[str, str]:
        """Name in the document -> column, given the columns that the table has."""
        if self.columns is None:
            return {name: name for name in columns}
        if isinstance(self.columns, dict):
            return dict(self.columns)
        return {name: name for name in self.columns}


class FollowerConfig(Model):
    view: str = Field(description="The view whose documents it holds.")
    keep: Duration = Field(
        default="1d", description="How long a generation that readers have left goes on following, to go back to."
    )
    kind: str
    sink: dict[str, Any]


_FOLLOWER = ("view", "keep")
"""What a follower has beside its store."""


class Config(Model):
    """A whole sync.yaml, checked. Values from the environment are in it: never print or store it whole."""

    name: Name
    source: SourceConfig
    kafka: KafkaConfig
    connect: ConnectConfig
    views: dict[Name, ViewConfig]
    followers: dict[Name, FollowerConfig]

    def table_of(self, follower: str) -> str:
        """The root table, as schema.table, of a follower's view."""
        return self.views[self.followers[follower].view].root


def load(path: Path, sinks: Mapping[str, type[BaseModel]]) -> Config:
    """Read and check the file; raises one ConfigError with every mistake. `sinks`: kind -> its config model."""
    file = YamlFile(path)
    problems = file.problems
    data = dict(file.data)
    followers = data.get("followers")
    if isinstance(followers, dict):
        data["followers"] = {
            name: _follower(file, ("followers", name), entry, sinks, problems) for name, entry in followers.items()
        }
    _qualify(file, data, problems)
    problems += _references(file, data) + _conditions(file, data)
    config = None
    try:
        config = Config.model_validate(data)
    except ValidationError as exc:
        problems += [_problem(file, error) for error in exc.errors(include_url=False, include_input=False)]
    if problems or config is None:
        raise ConfigError(*sorted(set(problems), key=_by_line))
    return config


def _follower(
    file: YamlFile, at: Location, entry: object, sinks: Mapping[str, type[BaseModel]], problems: list[str]
) -> object:
    """Turn `{view, <kind>: {...}}` into `{view, kind, sink}`, checking the store's part against its own model."""
    if not isinstance(entry, dict):
        return entry
    kinds = [key for key in entry if key in sinks]
    for key in entry:
        if key not in _FOLLOWER and key not in sinks:
            problems.append(file.at((*at, key), f"unknown kind of store{did_you_mean(key, [*sinks, *_FOLLOWER])}"))
    plain = {key: entry[key] for key in _FOLLOWER if key in entry}
    if len(kinds) != 1:
        if len(kinds) > 1 or not set(entry) - set(_FOLLOWER):
            problems.append(file.at(at, f"name exactly one kind of store: {', '.join(sorted(sinks))}"))
        return {**plain, "kind": "", "sink": {}}
    kind = kinds[0]
    try:
        sinks[kind].model_validate(entry[kind])
    except ValidationError as exc:
        for error in exc.errors(include_url=False, include_input=False):
            problems.append(_problem(file, {**error, "loc": (*at, kind, *error["loc"])}, sinks[kind]))
    sink = entry[kind] if isinstance(entry[kind], dict) else {}
    return {**plain, "kind": kind, "sink": sink}


def _qualify(file: YamlFile, data: dict[str, object], problems: list[str]) -> None:
    """Give every table its one spelling."""
    source, views = data.get("source"), data.get("views")
    if isinstance(source, dict) and isinstance(source.get("tables"), dict):
        tables: dict[str, object] = {}
        for name, entry in source["tables"].items():
            full_name = _qualified(file, ("source", "tables", name), name, problems)
            if full_name in tables:
                problems.append(file.at(("source", "tables", name), f"names {full_name} a second time"))
            tables[full_name] = entry or {}
        data["source"] = {**source, "tables": tables}
    if isinstance(views, dict):
        data["views"] = {
            name: {**view, "root": _qualified(file, ("views", name, "root"), view["root"], problems)}
            if isinstance(view, dict) and "root" in view
            else view
            for name, view in views.items()
        }


def _qualified(file: YamlFile, at: Location, name: object, problems: list[str]) -> str:
    try:
        return join_name(*split_name(str(name)))
    except ValueError as exc:
        problems.append(file.at(at, str(exc)))
        return str(name)


def _references(file: YamlFile, data: dict[str, object]) -> list[str]:
    """Names that lead nowhere, in a file that may have other mistakes too."""

    def entries(*path: str) -> dict[str, object]:
        node: object = data
        for part in path:
            node = node.get(part) if isinstance(node, dict) else None
        return node if isinstance(node, dict) else {}

    problems = []
    tables, views = entries("source", "tables"), entries("views")
    for name in views:
        root = entries("views", name).get("root")
        if isinstance(root, str) and root not in tables:
            what = f"{root} is not under source.tables{did_you_mean(root, tables)}"
            problems.append(file.at(("views", name, "root"), what))
    for name in entries("followers"):
        view = entries("followers", name).get("view")
        if isinstance(view, str) and view not in views:
            problems.append(
                file.at(("followers", name, "view"), f"there is no view `{view}`{did_you_mean(view, views)}")
            )
    return problems


def _conditions(file: YamlFile, data: dict[str, object]) -> list[str]:
    """What is wrong with each `where`, as far as it can be told without the table."""
    problems = []
    views = data.get("views")
    for name, view in views.items() if isinstance(views, dict) else ():
        text = view.get("where") if isinstance(view, dict) else None
        if isinstance(text, str):
            try:
                parse(text)
            except WhereRefused as exc:
                problems += [file.at(("views", name, "where"), problem) for problem in exc.problems]
    return problems


def _problem(file: YamlFile, error: Mapping[str, Any], model: type[BaseModel] | None = None) -> str:
    # pydantic names the member of a union in the location; the file has no such key.
    loc = tuple(part for part in error["loc"] if part not in ("tuple[str, ...]", "dict[str,str]"))
    match loc:
        case ("source", "tables", str(table), *rest):
            loc = ("source", "tables", _as_written(file, table), *rest)
    if error["type"] == "extra_forbidden":
        key = str(loc[-1])
        if key in NOT_YET:
            return file.at(loc, "this version cannot do that yet")
        return file.at(loc, f"unknown field{did_you_mean(key, _fields_at(loc, model))}")
    if error["type"] == "missing":
        return file.at(loc, "is missing")
    return file.at(loc, str(error["msg"]).removeprefix("Value error, "))


def _as_written(file: YamlFile, table: str) -> str:
    """The key of the file that names this table."""
    for name in file.data["source"]["tables"]:  # type: ignore[index]
        if _qualified(file, (), name, []) == table:
            return str(name)
    return table


def _fields_at(loc: Location, model: type[BaseModel] | None) -> list[str]:
    if model is not None:
        return list(model.model_fields)
    match loc:
        case (_,):
            return list(Config.model_fields)
        case ("source", _):
            return list(SourceConfig.model_fields)
        case ("source", "tables", _, _):
            return list(TableConfig.model_fields)
        case ("kafka", _):
            return list(KafkaConfig.model_fields)
        case ("connect", _):
            return list(ConnectConfig.model_fields)
        case ("views", _, _):
            return list(ViewConfig.model_fields)
    return []


def _by_line(problem: str) -> tuple[int, str]:
    match = re.match(r".*?:(\d+): ", problem)
    return (int(match[1]) if match else 0, problem)
