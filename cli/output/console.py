"""Where the command prints: what is printed is data, never markup."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.text import Text

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal obeys, or that reorder what stands around them; not tab and newline."""


def visible(text: str) -> str:
    """The text with each character that a terminal would obey written as its escape."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class PlainConsole(Console):
    """A console that prints every text as it is: keys and names may hold brackets, colons and control characters.

    Rich would take `[/b]` for markup and `:key:` for a pictogram. Styles come from `rich.text.Text` alone.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "markup": False, "emoji": False, "highlight": False})

    def render_str(self, text: str, **options: Any) -> Text:
        """Every text that is printed, also as a cell or title of a table, comes through here."""
        return super().render_str(visible(text), **{**options, "markup": False, "emoji": False, "highlight": False})

    @contextmanager
    def doing(self) -> Iterator[Callable[[str], None]]:
        """Show what is being done on a line that goes away again; the line is given to what this yields."""
        with self.status(Text("")) as status:
            yield lambda line: status.update(Text(visible(line)))
