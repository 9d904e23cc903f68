"""Load a sync.yaml: checked whole before anything starts, and every mistake reported at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from driftless.config.kafka_options import refused_options
from driftless.config.kafka_security import KafkaSecurity
from driftless.config.kafka_security import problems as security_problems
from driftless.config.messages import Wording
from driftless.config.models import FOLLOWER_FIELDS, Config, StoreConfig, near_name
from driftless.config.streams import CAPTURED, LOOKUPS
from driftless.config.views import AGGREGATES
from driftless.config.views_as_written import TABLES, clashes, parts, with_tables
from driftless.config_file.yaml import Location, YamlFile, is_unknown
from driftless.errors import CORRECT_THE_FILE, ConfigError
from driftless.streams.composed import composed_sql
from driftless.suggest import did_you_mean
from driftless.table import join_name, split_name
from driftless.where.clause import WhereRefused, compute, parse

Kinds = Mapping[str, type[StoreConfig]]
"""Kind of store -> its part of a follower."""


def load(path: Path, sinks: Kinds) -> Config:
    """Read and check the file; raises one ConfigError with every mistake."""
    file = YamlFile(path)
    check = _Check(file, sinks)
    config = check.config()
    if check.problems or config is None:
        raise ConfigError(*sorted(set(check.problems), key=_by_line), hint=CORRECT_THE_FILE)
    return config.read_from(file)


def _by_line(problem: str) -> tuple[int, str]:
    match = re.match(r".*?:(\d+): ", problem)
    return (int(match[1]) if match else 0, problem)


class _Check:
    """One file's mistakes: those of its YAML, of each value, and of what names something else in the file."""

    def __init__(self, file: YamlFile, sinks: Kinds) -> None:
        self._file = file
        self._sinks = sinks
        self._wording = Wording(file, sinks)
        self._data = dict(file.data)
        self._spelled: dict[str, str] = {}
        self._stores: dict[Location, StoreConfig] = {}
        self.problems = list(file.problems)

    def config(self) -> Config | None:
        """The configuration, where every value by itself is right."""
        self._name_tables()
        self.problems += self._references()
        self.problems += self._conditions()
        self.problems += self._options()
        self.problems += self._security()
        if "followers" in self._data:
            self._data["followers"] = self._followers()
        self.problems += self._meetings()
        config = None
        try:
            config = Config.model_validate(self._data)
        except ValidationError as exc:
            self._wording.add(exc, spelled=self._spelled)
        self.problems += self._wording.problems()
        return config

    def _section(self, *path: str) -> dict[str, object]:
        """A mapping of the file; empty where it is missing or something else."""
        node: object = self._data
        for part in path:
            node = node.get(part) if isinstance(node, dict) else None
        return node if isinstance(node, dict) else {}

    def _say(self, location: Location, what: str) -> str:
        return self._file.at(location, what)

    # -- tables -------------------------------------------------------------------------------------------------

    def _name_tables(self) -> None:
        """Give every table its one spelling, and remember how the file spells it."""
        source = self._section("source")
        if isinstance(source.get("tables"), dict):
            tables: dict[str, object] = {}
            for name, entry in self._section("source", "tables").items():
                full_name = self._qualified(("source", "tables", name), name)
                if full_name in tables:
                    first = self._spelled[full_name]
                    what = f"names {full_name} a second time, after `{first}`: keep one of them"
                    self.problems.append(self._say(("source", "tables", name), what))
                    continue
                self._spelled[full_name] = name
                self._file.stands_for(("source", "tables", name), ("source", "tables", full_name))
                tables[full_name] = {} if entry is None else entry
            self._data["source"] = {**source, "tables": tables}
        views = self._section("views")
        if views:
            self._data["views"] = {
                name: with_tables(("views", name), view, self._root_or_table) for name, view in views.items()
            }
        events = self._section("events")
        if events:
            self._data["events"] = {
                name: with_tables(("events", name), each, self._qualified, CAPTURED, LOOKUPS)
                for name, each in events.items()
            }

    def _root_or_table(self, at: Location, name: str) -> str:
        """A stream may be the root of a view, by its own name; a table of that name is written with its schema."""
        return name if at[-1] == "root" and name in self._section("streams") else self._qualified(at, name)

    def _qualified(self, at: Location, name: str) -> str:
        try:
            return join_name(*split_name(name))
        except ValueError as exc:
            self.problems.append(self._say(at, str(exc)))
            return name

    # -- what names something else ------------------------------------------------------------------------------

    def _references(self) -> Iterator[str]:
        """Names that lead nowhere. Where the section that they lead to cannot be read, that is the one mistake."""
        tables, views = self._section("source", "tables"), self._section("views")
        renamed = {near_name(name) for name in views}
        for name in views if tables else ():
            for at, part in parts(("views", name), views[name]):
                yield from self._tables_of(at, part, tables)
                yield from (self._say(*clash) for clash in clashes(at, part))
        for name in self._section("events") if tables else ():
            events = self._section("events", name)
            named: list[tuple[Location, object]] = [((field,), events.get(field)) for field in CAPTURED]
            for kind in LOOKUPS:
                for each in self._section("events", name, kind):
                    named.append(((kind, each, "table"), self._section("events", name, kind, each).get("table")))
            for at, table in named:
                if isinstance(table, str) and not is_unknown(table) and table not in tables:
                    what = f"{table} is not under source.tables{did_you_mean(table, tables)}"
                    yield self._say(("events", name, *at), what)
        yield from self._patterns()
        streams = self._section("streams")
        yield from self._streams(streams, views)
        known = {**views, **streams}
        for name in self._section("followers") if known else ():
            view = self._section("followers", name).get("view")
            if isinstance(view, str) and not is_unknown(view) and view not in known and view not in renamed:
                what = "view or stream" if streams else "view"
                yield self._say(("followers", name, "view"), f"there is no {what} `{view}`{did_you_mean(view, known)}")

    def _streams(self, streams: dict[str, object], views: dict[str, object]) -> Iterator[str]:
        """Streams that have the name of something else, or that read each other in a circle."""
        for name in streams:
            if name in views:
                yield self._say(("streams", name), f"there is a view `{name}` too: followers cannot tell them apart")
            for section, what in (("events", "are events"), ("patterns", "is a pattern")):
                if name in self._section(section):
                    yield self._say(("streams", name), f"there {what} `{name}` too: a query cannot tell them apart")
        written = {name: self._section("streams", name).get("sql") for name in streams}
        texts = {name: sql for name, sql in written.items() if isinstance(sql, str)}
        for name in texts:
            try:
                composed_sql(name, texts)
            except ValueError as exc:
                yield self._say(("streams", name, "sql"), str(exc))

    def _patterns(self) -> Iterator[str]:
        """Patterns of events that are not there, or of columns that they do not have."""
        events = self._section("events")
        for name, pattern in self._section("patterns").items():
            if name in events:
                what = f"there are events `{name}` too: a query cannot tell them apart"
                yield self._say(("patterns", name), what)
            of = pattern.get("events") if isinstance(pattern, dict) else None
            if isinstance(of, str) and not is_unknown(of) and of not in events:
                yield self._say(("patterns", name, "events"), f"there are no events `{of}`{did_you_mean(of, events)}")

    def _tables_of(self, at: Location, part: dict[str, object], tables: dict[str, object]) -> Iterator[str]:
        """Tables that a view or a relation names and that are not captured, or not with what it shows."""
        for field in TABLES:
            table = part.get(field)
            if not isinstance(table, str) or is_unknown(table) or (field == "root" and "." not in table):
                continue
            if table not in tables:
                known = did_you_mean(table, tables)
                if field == "root" and (near := did_you_mean(table.rpartition(".")[2], self._section("streams"))):
                    known = near.replace("did you mean", "did you mean the stream")
                yield self._say((*at, field), f"{table} is not under source.tables{known}")
            elif field != "through":
                yield from self._excluded(at, table, part.get("columns"))

    def _excluded(self, at: Location, table: str, columns: object) -> Iterator[str]:
        """Columns that a view shows and its table leaves out of the log."""
        exclude = self._section("source", "tables", table).get("exclude")
        if not isinstance(exclude, list):
            return
        shown = (
            columns.items() if isinstance(columns, dict) else enumerate(columns) if isinstance(columns, list) else ()
        )
        for place, column in shown:
            if column in exclude:
                line = self._file.line(("source", "tables", table, "exclude"))
                what = f"`{column}` is excluded from {table} in line {line}, so no document can show it"
                yield self._say((*at, "columns", place), what)

    def _conditions(self) -> Iterator[str]:
        """What is wrong with each `where`, and what is computed, as far as it can be told without the table."""
        for name in self._section("views"):
            yield from self._conditions_of("views", name)

    def _conditions_of(self, *at: str) -> Iterator[str]:
        part = self._section(*at)
        written: dict[tuple[str, ...], object] = {
            (name,): part.get(name) for name in ("where", *AGGREGATES) if name != "count"
        }
        written |= {("computed", name): text for name, text in self._section(*at, "computed").items()}
        for place, text in written.items():
            if isinstance(text, str) and not is_unknown(text):
                try:
                    parse(text) if place == ("where",) else compute(text)
                except WhereRefused as exc:
                    yield from (self._say((*at, *place), problem) for problem in exc.problems)
        for kind in ("one", "many"):
            for name in self._section(*at, kind):
                yield from self._conditions_of(*at, kind, name)

    def _options(self) -> Iterator[str]:
        """Settings that the Kafka client does not take."""
        for name, what in refused_options(self._section("kafka", "options")).items():
            yield self._say(("kafka", "options", name), what)

    def _security(self) -> Iterator[str]:
        """What of `kafka.security` does not go together. What is wrong with one value is found with all others."""
        try:
            security = KafkaSecurity.model_validate(self._section("kafka", "security"))
        except ValidationError:
            return
        for field, what in security_problems(security):
            yield self._say(("kafka", "security", field), what)

    # -- followers ----------------------------------------------------------------------------------------------

    def _followers(self) -> object:
        """Each `{view, <kind>: {...}}` as `{view, kind, sink}`, with the store's part checked by its own model."""
        followers = self._data.get("followers")
        if not isinstance(followers, dict):
            return followers
        return {name: self._follower(("followers", name), entry) for name, entry in followers.items()}

    def _follower(self, at: Location, entry: object) -> object:
        if not isinstance(entry, dict):
            return entry
        kinds = [key for key in entry if key in self._sinks]
        unknown = [key for key in entry if key not in self._sinks and key not in FOLLOWER_FIELDS]
        for key in unknown:
            self._wording.unknown((*at, key))
        plain = {key: entry[key] for key in FOLLOWER_FIELDS if key in entry}
        if len(kinds) != 1:
            if kinds:
                what = (
                    f"has {len(kinds)} stores, {' and '.join(f'`{kind}`' for kind in kinds)}: make a follower of each"
                )
                self.problems.append(self._say(at, what))
            elif not unknown:
                listed = " or ".join(f"`{kind}`" for kind in sorted(self._sinks))
                self.problems.append(self._say(at, f"has no store: it needs {listed}"))
            for kind in kinds:
                self._sink((*at, kind), self._sinks[kind], entry[kind])
            return {**plain, "kind": "", "sink": {}, "access": frozenset()}
        (kind,) = kinds
        self._sink((*at, kind), self._sinks[kind], entry[kind])
        sink = entry[kind] if isinstance(entry[kind], dict) else {}
        return {**plain, "kind": kind, "sink": sink, "access": self._sinks[kind].access()}

    def _sink(self, at: Location, model: type[StoreConfig], entry: object) -> None:
        try:
            self._stores[at] = model.model_validate(entry)
        except ValidationError as exc:
            self._wording.add(exc, below=at)

    def _meetings(self) -> Iterator[str]:
        """Followers that would write to one place: each would take the other's documents for its own."""
        first: dict[tuple[str, ...], Location] = {}
        for at, store in self._stores.items():
            other = first.setdefault((str(at[-1]), *store.place), at)
            if store.place and other != at:
                what = f"writes where `{other[1]}` of line {self._file.line(other)} does: give each a place of its own"
                yield self._say(at, what)
        places = {at: store.place for at, store in self._stores.items() if store.place}
        for at, place in places.items():
            for other, found in places.items():
                if at[-1] == other[-1] and place != found and self._stores[at].reaches(place, found):
                    line = self._file.line(other)
                    yield self._say(at, f"makes names that `{other[1]}` of line {line} has: give each its own")
