"""Read a YAML file, keep where everything stands, and put in what it takes from the environment or from files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from driftless.config_file import mend as yamlmend
from driftless.errors import CORRECT_THE_FILE, ConfigError
from driftless.suggest import nearest

_REFERENCE = re.compile(
    r"\$\$(?=\{)|\$\{(?:file:(?P<file>[^}]+)|(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?)\}|\$\{"
)
_JSON_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float")}
_TAGS = _JSON_TAGS | {f"tag:yaml.org,2002:{kind}" for kind in ("str", "map", "seq", "timestamp", "merge", "value")}
_TYPOGRAPHIC = re.compile("[“”„‘’‚].*[“”‘’]")
Location = tuple[int | str, ...]


class YamlFile:
    """The parsed file. `data` is plain values with `${NAME}`, `${NAME:-default}` and `${file:PATH}` replaced.

    `$${` stands for `${` itself. Keys are taken as they are, and as text.

    Problems found on the way (a key that stands twice, a variable that is not set, a secret's file that cannot be read)
    are kept in `problems`, so that they are reported together with every other mistake. What cannot be read as YAML,
    even as it was probably meant, raises ConfigError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[str] = []
        self._lines: dict[Location, int] = {(): 1}
        self._texts: dict[Location, str] = {}
        self._scalars = YAML(typ="safe", pure=True).constructor
        text = _read(path)
        try:
            tree, self._text, slips = yamlmend.read(text)
        except ReaderError as exc:
            line = text.count("\n", 0, exc.position) + 1
            what = f"the character U+{exc.character:04X} cannot be in YAML"
            raise ConfigError(f"{path}:{line}: {what}", hint="remove it, or write it as an escape") from exc
        self.problems += [f"{path}:{slip.line}: column {slip.column}: {slip.what}" for slip in slips]
        if tree is None and slips:
            raise ConfigError(*self.problems, hint=CORRECT_THE_FILE)
        if tree is None or (isinstance(tree, ScalarNode) and tree.value in ("", "~", "null")):
            raise ConfigError(f"{path}:1: the file is empty", hint="write one to start from with `driftless init`")
        if not isinstance(tree, MappingNode):
            what = "the file must be a mapping with `name`, `source`, `views` and `followers`"
            raise ConfigError(f"{path}:1: {what}", hint="`driftless init` writes such a file to start from")
        self.data: dict[str, object] = self._mapping(tree, (), ())

    def line(self, location: Location) -> int:
        """The line of a key or item, or of the nearest parent that exists."""
        while location not in self._lines:
            location = location[:-1]
        return self._lines[location]

    def stands_for(self, written: Location, meant: Location) -> None:
        """Find what is below `written` also under another name."""
        if written == meant:
            return
        for location, line in list(self._lines.items()):
            if location[: len(written)] == written:
                self._lines[*meant, *location[len(written) :]] = line

    def written(self, location: Location) -> str:
        """The value as it stands in the file, with its quotes and references; empty where there is none."""
        return self._texts.get(location, "")

    def at(self, location: Location, what: str) -> str:
        """`file:line: where: what`, the form of every message about the configuration."""
        where = ".".join(str(part) for part in location)
        return f"{self.path}:{self.line(location)}: {where + ': ' if where else ''}{what}"

    def _plain(self, node: Node, location: Location, above: tuple[Node, ...]) -> object:
        self._texts[location] = self._text[node.start_mark.index : node.end_mark.index]
        if node in above:
            self.problems.append(self.at(location, "an alias of what it stands in"))
            return _UNKNOWN
        if str(node.tag) not in _TAGS:
            self.problems.append(self.at(location, f"the tag `{node.tag}` has no meaning here: leave it out"))
            return _UNKNOWN
        if isinstance(node, MappingNode):
            return self._mapping(node, location, above)
        if isinstance(node, SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self._lines[*location, index] = item.start_mark.line + 1
                items.append(self._plain(item, (*location, index), (*above, node)))
            return items
        if str(node.tag) in _JSON_TAGS:
            try:
                return self._scalars.construct_object(node)
            except (ValueError, KeyError, IndexError):
                self.problems.append(self.at(location, "the tag does not fit the value: leave it out"))
                return _UNKNOWN
        if isinstance(node, ScalarNode) and node.style is None and _TYPOGRAPHIC.fullmatch(node.value):
            self.problems.append(self.at(location, "quotes are written `\"` or `'`, not as a word processor sets them"))
        return self._expand(str(node.value), location)

    def _mapping(self, node: MappingNode, location: Location, above: tuple[Node, ...]) -> dict[str, object]:
        made: dict[str, object] = {}
        for key, value in node.value:
            if str(key.tag) == "tag:yaml.org,2002:merge":
                for merged in value.value if isinstance(value, SequenceNode) else (value,):
                    if isinstance(merged, MappingNode) and merged not in above:
                        made = {**self._mapping(merged, location, (*above, node)), **made}
        own: dict[str, int] = {}
        for key, value in node.value:
            if str(key.tag) == "tag:yaml.org,2002:merge":
                continue
            line = key.start_mark.line + 1
            if not isinstance(key, ScalarNode):
                self.problems.append(f"{self.path}:{line}: a key must be text: put what begins with `{{` in quotes")
                continue
            name = str(key.value)
            at = (*location, name)
            if name in own:
                where = ".".join(str(part) for part in at)
                self.problems.append(
                    f"{self.path}:{line}: {where}: stands here a second time, after line {own[name]}: keep one of them"
                )
                continue
            own[name] = self._lines[at] = line
            made[name] = self._plain(value, at, (*above, node))
        return made

    def _expand(self, text: str, location: Location) -> str:
        def value(match: re.Match[str]) -> str:
            if match[0] == "$$":
                return "$"
            if file := match["file"]:
                try:
                    return Path(file).read_text(encoding="utf-8").strip()
                except OSError as exc:
                    what = f"the secret's file {file} cannot be read: {exc.strerror}"
                except UnicodeDecodeError:
                    what = f"the secret's file {file} is not text in UTF-8"
                self.problems.append(self.at(location, what))
                return _UNKNOWN
            if match["name"] is None:
                what = (
                    "what follows `${` is no variable: write ${NAME}, ${NAME:-default} or ${file:PATH}; `$${` for `${`"
                )
                self.problems.append(self.at(location, what))
                return _UNKNOWN
            found = os.environ.get(match["name"], match["default"])
            if found is None:
                near = nearest(match["name"], os.environ, cutoff=0.8)
                meant = f"; did you mean `{near}`?" if near else f": `export {match['name']}=...`"
                self.problems.append(self.at(location, f"the environment variable {match['name']} is not set{meant}"))
                return _UNKNOWN
            return found

        return _REFERENCE.sub(value, text)


_UNKNOWN = "\N{REPLACEMENT CHARACTER}"
"""In a value, what could not be taken from the environment or a file. The file is refused already."""


def is_unknown(value: object) -> bool:
    """Whether a part of the value could not be taken from the environment or a file, which has been reported."""
    return isinstance(value, str) and _UNKNOWN in value


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        there = sorted(found.name for found in path.parent.glob("*.y*ml"))
        near = f"; there is {', '.join(f'`{path.with_name(name)}`' for name in there)}" if there else ""
        raise ConfigError(
            f"{path}: no such file{near}", hint="name the file with -f, or write one with `driftless init`"
        ) from None
    except IsADirectoryError:
        raise ConfigError(
            f"{path}: is a directory", hint=f"name the file in it, as in `-f {path / 'sync.yaml'}`"
        ) from None
    except OSError as exc:
        raise ConfigError(f"{path}: cannot be read: {exc.strerror}", hint="name a file that you may read") from exc
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        column = exc.start - data.rfind(b"\n", 0, exc.start)
        what = "UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "not UTF-8"
        raise ConfigError(f"{path}:{line}: column {column}: the file is {what}", hint="save it as UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def written(part: Mapping[str, Any]) -> str:
    """A part of such a file, as text."""
    yaml, text = YAML(), StringIO()
    yaml.width = 10_000
    yaml.dump(dict(part), text)
    return text.getvalue()
