"""What is wrong with a value or a key of sync.yaml, in an operator's words: where pydantic speaks of its models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from driftless.config.base import written_fields
from driftless.config.kafka_security import KafkaSecurity
from driftless.config.models import (
    FOLLOWER_FIELDS,
    Config,
    ConnectConfig,
    FollowerConfig,
    KafkaConfig,
    SourceConfig,
    StoreConfig,
    TableConfig,
)
from driftless.config.patterns import PatternConfig, StepConfig
from driftless.config.streams import (
    EventsConfig,
    LateConfig,
    LookupConfig,
    OverloadConfig,
    StreamConfig,
    TimeConfig,
)
from driftless.config.views import ManyConfig, OneConfig, ViewConfig
from driftless.config_file.yaml import Location, YamlFile, is_unknown
from driftless.suggest import did_you_mean, nearest

NOT_YET: dict[Location, set[str]] = {("events", "*"): {"message", "id"}}
"""Fields of the contract that this version does not build yet, by where they stand; naming them gets its own message.
"""
CANNOT_YET = "this version cannot do that yet"
_RELATIONS: dict[Location, type[BaseModel]] = {
    ("views", "*", "one", "*"): OneConfig,
    ("views", "*", "many", "*"): ManyConfig,
}
_ENTRIES = {
    ("source", "tables"): "table",
    ("views",): "view",
    ("events",): "source of events",
    ("patterns",): "pattern",
    ("streams",): "stream",
    ("followers",): "follower",
}
"""Sections whose keys are names of the operator's own."""
_NAMED = {("views", "*", "one"), ("views", "*", "many"), ("events", "*", "with")}
"""Mappings below such a section whose keys are names of the operator's own too."""
_NUMBERS = {"int_parsing": "whole number", "int_type": "whole number", "int_from_float": "whole number"}
_NUMBERS |= {"float_parsing": "number", "float_type": "number"}
_MAPPINGS = {"dict_type", "model_type", "model_attributes_type"}
_BOUNDS = {"greater_than_equal": "at least {ge}", "less_than_equal": "at most {le}"}
_BOUNDS |= {"greater_than": "more than {gt}", "less_than": "less than {lt}"}
_VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)")

_UNIONS: dict[object, tuple[str, ...]] = {
    "columns": ("list", "mapping"),
    "between": ("list", "mapping"),
    "through": ("list", "name"),
}
"""Fields of views that are written in several ways, and what pydantic calls these."""


class Wording:
    """Collects the mistakes of one file, so that what follows from another mistake is not told beside it."""

    def __init__(self, file: YamlFile, kinds: Mapping[str, type[StoreConfig]]) -> None:
        self._file = file
        self._kinds = kinds
        self._models: dict[Location, type[BaseModel]] = {
            (): Config,
            ("source",): SourceConfig,
            ("source", "tables", "*"): TableConfig,
            ("kafka",): KafkaConfig,
            ("kafka", "security"): KafkaSecurity,
            ("connect",): ConnectConfig,
            ("views", "*"): ViewConfig,
            **_RELATIONS,
            ("events", "*"): EventsConfig,
            ("events", "*", "time"): TimeConfig,
            ("events", "*", "late"): LateConfig,
            ("events", "*", "overload"): OverloadConfig,
            ("events", "*", "with", "*"): LookupConfig,
            ("patterns", "*"): PatternConfig,
            ("patterns", "*", "steps", "*"): StepConfig,
            ("streams", "*"): StreamConfig,
            ("followers", "*"): FollowerConfig,
            **{("followers", "*", kind): model for kind, model in kinds.items()},
        }
        self._said: list[tuple[Location, str]] = []
        self._missing: list[Location] = []
        self._meant: set[Location] = set()
        """Fields that are there under another name, or `(*, name)` in another place: they are not missing too."""
        self._spilled: set[Location] = set()
        """Where a section's head stands too deep, so that what should be below it stands beside it."""

    def add(self, exc: ValidationError, *, below: Location = (), spelled: Mapping[str, str] | None = None) -> None:
        """Take in a model's errors; `below`: where the model stands. `spelled`: tables as the file names them."""
        for error in exc.errors(include_url=False):
            self._add(error, self._location((*below, *error["loc"]), spelled or {}))

    def unknown(self, location: Location) -> None:
        """A key that nothing knows."""
        *above, key = location
        name, parent = str(key), tuple(above)
        place = self._pattern(parent)
        if name in NOT_YET.get(place, ()):
            self._said.append((location, CANNOT_YET))
            return
        present = self._value(parent)
        absent = [field for field in self._fields(parent) if not isinstance(present, dict) or field not in present]
        near = nearest(name, absent)
        elsewhere = [place for place in self._models if name in self._names(place)]
        elsewhere = [place for place in elsewhere if place not in _RELATIONS] or elsewhere[:1]
        elsewhere = [()] if () in elsewhere else elsewhere
        what = "unknown field"
        if elsewhere and near and not self._is_required((*parent, near)):
            near = None  # it is spelled right, and stands elsewhere: `tables` is not `alerts`
        if near:
            self._meant.add((*parent, near))
            what = "unknown kind of store" if near in self._kinds else what
            what += f"; did you mean `{near}`?"
        elif elsewhere:
            self._meant.add(("*", name))
            if self._value(location) is None:
                self._spilled.add(parent)
            what = f"stands in the wrong place: {_belongs(elsewhere)}"
        elif self._pattern(parent) == ("followers", "*"):
            what = f"unknown kind of store{did_you_mean(name, self._kinds)}"
        elif parent in self._spilled:
            return
        else:
            what += did_you_mean(name, self._fields(parent))
        self._said.append((location, what))

    def problems(self) -> list[str]:
        """Every mistake once."""
        said = self._said + [(at, self._is_missing(at)) for at in self._missing if not self._is_meant(at)]
        found = []
        for location, what in said:
            outer = self._outdented(location)
            found.append(self._file.at(location, what) if outer is None else self._file.at(*outer))
        return list(dict.fromkeys(found))

    # -- one error ----------------------------------------------------------------------------------------------

    def _add(self, error: Any, location: Location) -> None:
        kind = error["type"]
        if kind == "extra_forbidden":
            self.unknown(location)
        elif kind == "missing":
            self._missing.append(location)
        elif not is_unknown(self._value(location)):
            self._said.append((location, self._what(error, location) + self._origin(location)))

    def _what(self, error: Any, location: Location) -> str:
        kind, value, context = error["type"], error["input"], error.get("ctx", {})
        if kind in _MAPPINGS:
            return self._wanted(value, "mapping", self._example(location))
        if kind == "tuple_type":
            written = self._file.written(location)
            if value == "*":
                return "to show all columns, leave `columns` out"
            listed = f"[{written}]" if re.fullmatch(r"[\w ,]+", written) else self._example(location)
            return self._wanted(value, "list", listed)
        if kind == "string_type":
            if isinstance(value, dict) and self._file.written(location).startswith("{"):
                such = _quoted(self._example(location))
                return f"is a mapping to YAML, where text is wanted: write it in quotes, such as `{such}`"
            if isinstance(value, bool | int | float):
                return "is a number or a truth value to YAML, where text is wanted: write it in quotes"
            return self._wanted(value, "text", self._example(location))
        if kind in _NUMBERS:
            return f"must be a {_NUMBERS[kind]}, such as `{self._example(location)}`"
        if kind in _BOUNDS:
            return f"must be {_BOUNDS[kind].format(**context)}"
        if kind == "literal_error":
            known = re.findall(r"'([^']*)'", str(context["expected"]))
            return f"must be {context['expected']}{did_you_mean(str(value), known)}".split("; known")[0]
        return str(error["msg"]).removeprefix("Value error, ")

    @staticmethod
    def _wanted(value: object, wanted: str, example: str) -> str:
        such = f", such as `{example}`" if example else ""
        if value is None:
            return f"has no value: {wanted if wanted == 'text' else f'a {wanted}'} is wanted{such}"
        return f"is {_kind(value)}, where {wanted if wanted == 'text' else f'a {wanted}'} is wanted{such}"

    def _origin(self, location: Location) -> str:
        """A value that is not what the line says: where it comes from."""
        written = self._file.written(location).strip("'\"")
        if names := _VARIABLE.findall(written):
            return f" (the value comes from {' and '.join(f'${{{name}}}' for name in names)})"
        if re.fullmatch(r"\$[A-Za-z_]\w*", written):
            return f"; a variable is written `${{{written[1:]}}}`"
        return ""

    def _is_missing(self, location: Location) -> str:
        example = self._example(location)
        model = self._models.get(self._pattern(location))
        if model is not None:
            required = [name for name, field in written_fields(model).items() if field.is_required()]
            return f"is missing, with {' and '.join(f'`{name}`' for name in required)} below it"
        return f"is missing, such as `{location[-1]}: {example}`"

    def _is_meant(self, location: Location) -> bool:
        return location in self._meant or ("*", location[-1]) in self._meant

    def _outdented(self, location: Location) -> tuple[Location, str] | None:
        """Where an operator's own name is that of a field, and what is below it does not fit: it stands too far out."""
        for section, what in _ENTRIES.items():
            depth = len(section)
            if location[:depth] == section and len(location) > depth:
                name, below = location[depth], self._value(location[: depth + 1])
                required = [
                    key for key, field in written_fields(self._models[*section, "*"]).items() if field.is_required()
                ]
                fits = isinstance(below, dict) and (not required or any(key in below for key in required))
                if name in self._names((*section, "*")) and not fits:
                    return location[: depth + 1], f"`{name}` is a field of a {what}: indent it below the {what}'s name"
        return None

    # -- the models ---------------------------------------------------------------------------------------------

    def _names(self, place: Location) -> list[str]:
        """The fields of a place, and of a follower the kinds of store."""
        if place == ("followers", "*"):
            return [*FOLLOWER_FIELDS, *self._kinds]
        return list(written_fields(self._models[place])) if place in self._models else []

    def _fields(self, location: Location) -> list[str]:
        return self._names(self._pattern(location))

    @staticmethod
    def _pattern(location: Location) -> Location:
        """The place in the models: `*` for a name of the operator's own."""
        for section in _ENTRIES:
            if location[: len(section)] == section and len(location) > len(section):
                location = (*section, "*", *location[len(section) + 1 :])
        while location[:2] == ("views", "*") and len(location) > 5 and location[4] in ("one", "many"):
            # Relations of relations are relations.
            location = ("views", "*", *location[4:])
        if len(location) > 3 and location[:3] in _NAMED:
            location = (*location[:3], "*", *location[4:])
        return tuple("*" if isinstance(part, int) else part for part in location)

    def _field(self, location: Location) -> FieldInfo | None:
        """The field whose value stands there."""
        *above, name = self._pattern(location)
        model = self._models.get(tuple(above))
        return written_fields(model).get(str(name)) if model is not None else None

    def _is_required(self, location: Location) -> bool:
        field = self._field(location)
        return field is not None and field.is_required()

    def _example(self, location: Location) -> str:
        """YAML that could stand there."""
        model = self._models.get(self._pattern(location))
        if model is not None:
            return example(model, self._kinds)
        field = self._field(location)
        if field is None:
            return ""
        if field.examples:
            return str(field.examples[0])
        return "" if field.is_required() or field.default is None or field.default_factory else str(field.default)

    # -- the file -----------------------------------------------------------------------------------------------

    def _location(self, location: tuple[int | str, ...], spelled: Mapping[str, str]) -> Location:
        """The place in the file: pydantic also names members of unions, and tables by their one spelling."""
        match location:
            case ("source", "tables", str(table), *rest):
                location = ("source", "tables", spelled.get(table, table), *rest)
            case ("views", *_):
                pairs = zip((None, *location), location, strict=False)
                location = tuple(part for field, part in pairs if part not in _UNIONS.get(field, ()))
        return location[:-1] if location and location[-1] == "[key]" else location

    def _value(self, location: Location) -> object:
        node: Any = self._file.data
        for part in location:
            try:
                node = node[part]
            except (TypeError, KeyError, IndexError):
                return None
        return node


def example(model: type[BaseModel], kinds: Iterable[str] = ()) -> str:
    """The shortest YAML that the model takes."""
    fields = [
        f"{name}: {_in_flow(str(field.examples[0]))}"
        for name, field in written_fields(model).items()
        if field.is_required() and field.examples
    ]
    return (
        "{"
        + ", ".join([*fields, *(f"{kind}: {{...}}" for kind in sorted(kinds)[-1:] if model is FollowerConfig)])
        + "}"
    )


def _in_flow(text: str) -> str:
    return _quoted(text) if re.search(r"^\$\{|[^{ ]\{|^\{\w+\}", text) else text


def _quoted(text: str) -> str:
    return text if text.startswith('"') else f'"{text}"'


def _kind(value: object) -> str:
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list() | tuple():
            return "a list"
    return "a mapping"


def _belongs(places: list[Location]) -> str:
    """In words, where a key may stand."""
    words = []
    for place in places:
        match place:
            case ():
                words.append("it belongs at the top of the file, not indented")
            case ("source", "tables", "*"):
                words.append("it is a field of a table")
            case ("views", "*", kind, "*"):
                words.append(f"it is a field of a relation in `{kind}`")
            case (section, "*"):
                words.append(f"it is a field of a {str(section).removesuffix('s')}")
            case _:
                words.append(f"it belongs below `{place[-1]}`")
    return ", or ".join(words)
