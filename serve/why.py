"""Why a document is as it is, found out by `driftless why` in a process of its own, and shown as HTML."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

_COMMAND = Path(sys.executable).parent / "driftless"
_SECONDS = 120.0
AT_ONCE = 2
"""Each reads a log, and takes 150 MB meanwhile."""


_LINE = Markup("\n")


class WhyError(Exception):
    """It could not be found out, in words for the operator."""


class WhyReport:
    """Asks the command. The values of rows are in what it gives: it is for whoever has the token."""

    def __init__(self, file: Path) -> None:
        """`file`: the sync.yaml."""
        self._file = file
        self._running = 0

    async def html(self, follower: str, key: str) -> str:
        """A fragment of the page. Raises WhyError."""
        return rendered(await self._asked(follower, key))

    async def _asked(self, follower: str, key: str) -> dict[str, Any]:
        if self._running >= AT_ONCE:
            raise WhyError(f"{AT_ONCE} are being looked at already: wait a moment")
        self._running += 1
        try:
            given = ("why", "--values", "--json", "-f", str(self._file), "--", follower, key)
            process = await asyncio.create_subprocess_exec(
                _COMMAND,
                *given,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                out, err = await asyncio.wait_for(process.communicate(), _SECONDS)
            except BaseException:
                process.kill()
                raise
        except TimeoutError:
            raise WhyError(f"it took longer than {_SECONDS:.0f} s: `driftless why` takes as long as it needs") from None
        finally:
            self._running -= 1
        if process.returncode not in (0, 1) or not out:
            raise WhyError(" ".join(err.decode(errors="replace").split()) or "it could not be found out")
        return dict(json.loads(out, parse_float=_Digits, parse_int=_Digits))


class _Digits(str):
    """A number, as it is written."""

    __slots__ = ()


def rendered(found: dict[str, Any]) -> str:
    """Stages side by side; the members that differ are marked."""
    good = found["first_different"] is None
    parts = [
        f'<p class="{"good" if good else "bad"}"><strong>{escape(found["verdict"])}</strong></p>',
        f'<p class="quiet">All that was committed at {escape(found["lsn"])} had arrived'
        f"{'' if not found['late'] else ', but not everywhere'}.</p>",
        '<ol class="stages">',
    ]
    for stage in found["stages"]:
        wrong = stage["name"] == found["first_different"]
        head = f"<h3>{escape(stage['name'])}</h3><p>{escape(stage['where'])}</p>"
        parts.append(f'<li class="{"bad" if wrong else ""}">{head}')
        if stage["version"] is not None:
            told = f"version {stage['version']}, epoch {stage['epoch']}, offset {stage['offset']}"
            parts.append(f'<p class="quiet">{escape(told)}</p>')
        if stage["note"]:
            parts.append(f'<p class="neither">{escape(stage["note"])}</p>')
        parts.append(_document(stage, found["fields"]) + "</li>")
    return "".join([*parts, "</ol>"])


def _document(stage: dict[str, Any], different: list[str]) -> str:
    if stage["present"] is None:
        return "<p>cannot be read here</p>"
    document = stage["document"]
    if document is None:
        return "<p>no document</p>"
    if not isinstance(document, dict):
        return f"<pre>{escape(_text(document))}</pre>"
    lines = []
    for name in sorted(document):
        line = escape(f"{_text(name)}: {_text(document[name])}")
        lines.append(Markup("<mark>{}</mark>").format(line) if name in different else line)
    return f"<pre>{_LINE.join(lines)}</pre>"


def _text(value: Any) -> str:
    """JSON with the digits of numbers as they were."""
    if isinstance(value, _Digits):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(name)}: {_text(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
