"""Values that Postgres holds and cannot show as `to_jsonb` does: their documents cannot be compared, all others can."""

from __future__ import annotations

import json
import re

from driftless.verify.subject import PinnedSource
from driftless.views.sql import DOUBT

_TEXT = r'("(?:[^"\\]|\\.)*+")'
_ASIDE = re.compile(
    rf'\{{"key": {_TEXT}, "type": {_TEXT}, "table": {_TEXT}, "column": {_TEXT}, "{DOUBT}": {_TEXT}\}}', re.DOTALL
)
"""What a careful statement gives in place of a value, as Postgres prints it: shorter names come first."""


class Beyond:
    """Looks at each value that a careful statement has put aside. `found`: key of a document -> where the value is."""

    def __init__(self, moment: PinnedSource) -> None:
        self.found: dict[str, str] = {}
        self._moment = moment

    def look(self, key: str, document: str) -> str:
        """The document with what can be shown in its place. It is not taken apart, since it may be of any depth."""
        if DOUBT not in document:
            return document

        def shown(aside: re.Match[str]) -> str:
            row, kind, table, column, text = map(json.loads, aside.groups())
            value = self._moment.as_json(kind, text)
            if value is None:
                self.found[key] = f"{table} {row}: {column} holds what jsonb cannot"
            return value or "null"

        return _ASIDE.sub(shown, document)
