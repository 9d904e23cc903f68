"""Read a YAML file, keep where everything stands, and put in what it takes from the environment or from files."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError

from driftless.errors import ConfigError

_REFERENCE = re.compile(r"\$\$(?=\{)|\$\{(?:file:(?P<file>[^}]+)|(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?)\}")
Location = tuple[int | str, ...]


class YamlFile:
    """The parsed file. `data` is plain values with `${NAME}`, `${NAME:-default}` and `${file:PATH}` replaced.

    `$${` stands for `${` itself. Keys are taken as they are.

    Problems found on the way (a variable that is not set, a secret's file that cannot be read) are kept in
    `problems`, so that they are reported together with every other mistake.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[str] = []
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ConfigError(
                f"{path}: no such file", hint="name the file with -f, or write one with `driftless init`"
            ) from None
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigError(f"{path}: cannot be read: {exc}") from exc
        try:
            self._tree = YAML(typ="rt").load(text)
        except MarkedYAMLError as exc:
            line = exc.problem_mark.line + 1 if exc.problem_mark else 1
            problem = str(exc.problem or exc.context).splitlines()[0]
            raise ConfigError(f"{path}:{line}: not valid YAML: {problem}") from exc
        if not isinstance(self._tree, CommentedMap):
            raise ConfigError(f"{path}:1: the file must be a mapping with `name`, `source`, `views` and `followers`")
        self.data: dict[str, object] = dict(self._plain(self._tree, ()))  # type: ignore[call-overload]

    def line(self, location: Location) -> int:
        """The line of a key or item, or of the nearest parent that exists."""
        node, line = self._tree, 1
        for part in location:
            if isinstance(node, CommentedMap) and part in node:
                line = node.lc.key(part)[0] + 1
            elif isinstance(node, CommentedSeq) and isinstance(part, int) and part < len(node):
                line = node.lc.item(part)[0] + 1
            else:
                break
            node = node[part]
        return line

    def at(self, location: Location, what: str) -> str:
        """`file:line: where: what`, the form of every message about the configuration."""
        where = ".".join(str(part) for part in location)
        return f"{self.path}:{self.line(location)}: {where + ': ' if where else ''}{what}"

    def _plain(self, node: object, location: Location) -> object:
        if isinstance(node, CommentedMap):
            return {str(key): self._plain(value, (*location, key)) for key, value in node.items()}
        if isinstance(node, CommentedSeq):
            return [self._plain(value, (*location, index)) for index, value in enumerate(node)]
        return self._expand(str(node), location) if isinstance(node, str) else node

    def _expand(self, text: str, location: Location) -> str:
        def value(match: re.Match[str]) -> str:
            if match[0] == "$$":
                return "$"
            if file := match["file"]:
                try:
                    return Path(file).read_text(encoding="utf-8").strip()
                except (OSError, UnicodeDecodeError) as exc:
                    self.problems.append(self.at(location, f"the secret's file {file} cannot be read: {exc}"))
                    return ""
            found = os.environ.get(match["name"], match["default"])
            if found is None:
                self.problems.append(self.at(location, f"the environment variable {match['name']} is not set"))
            return found or ""

        return _REFERENCE.sub(value, text)


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """`; did you mean ...?` where something known is near, else the list of what is known."""
    names: Sequence[str] = sorted(known)
    near = difflib.get_close_matches(wrong, names, n=1)
    if near:
        return f"; did you mean `{near[0]}`?"
    return f"; known: {', '.join(f'`{name}`' for name in names)}" if names else ""
