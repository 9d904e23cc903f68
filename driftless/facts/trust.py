"""Which logical messages of the source are the pipeline's own: those that bear its token.

The token stands in the message's prefix, so that no stranger's message can take the place of one of ours when Kafka
compacts the topic. All that a message says is in its prefix and in what Debezium reports of the log itself: the
connector leaves the content behind, since a stranger's may have any size. See
docs/decisions/0015-messages-bear-a-token.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from driftless import names
from driftless.facts.state import State
from driftless.marker import AWAITED, Marker, Stranger, Truncation
from driftless.table import join_name, split_name

TRUST = "pipeline/trust"
"""The fact that says by which tokens messages are believed."""


@dataclass(frozen=True)
class Trust:
    """Which messages a pipeline believes.

    `tokens`: the sha256 of each token -> the LSN from which on it is not believed; infinity for a present one. Empty
    for a pipeline that `apply` has given no token yet: it believes everybody, as all pipelines of older versions did.
    `plain`: the LSN from which on a message without a token is not believed.
    """

    pipeline: str
    tokens: Mapping[str, float] = field(default_factory=dict)
    plain: float = inf

    @classmethod
    def of(cls, pipeline: str, state: State) -> Trust:
        """As the control topic says."""
        fact = state.get(TRUST)
        return cls(pipeline) if fact is None else cls.from_json(pipeline, fact)

    @classmethod
    def from_json(cls, pipeline: str, fact: Mapping[str, Any]) -> Trust:
        tokens = {str(digest): _until(lsn) for digest, lsn in fact["tokens"].items()}
        return cls(pipeline, tokens, _until(fact["plain"]))

    def to_json(self) -> dict[str, object]:
        """Infinity is null."""
        tokens = {digest: None if lsn == inf else lsn for digest, lsn in self.tokens.items()}
        return {"tokens": tokens, "plain": None if self.plain == inf else self.plain}

    @property
    def digest(self) -> str:
        """Another one for another trust."""
        return _digest(json.dumps(self.to_json(), sort_keys=True))[:16]

    def knows(self, token: str) -> bool:
        """Whether a message that bears this token is believed now."""
        return self.tokens.get(_digest(token)) == inf

    def with_token(self, token: str, *, new: bool) -> Trust:
        """The same with one more token. `new`: the pipeline never had a message without one."""
        return Trust(self.pipeline, {**self.tokens, _digest(token): inf}, 0 if new else self.plain)

    @property
    def settled(self) -> bool:
        """Whether messages of one token alone are believed now."""
        return list(self.tokens.values()).count(inf) == 1 and self.plain != inf

    def settle(self, token: str, lsn: int) -> Trust:
        """From `lsn` on, believe this token alone."""
        tokens = {digest: min(until, lsn) for digest, until in self.tokens.items()}
        return replace(self, tokens={**tokens, _digest(token): inf}, plain=min(self.plain, lsn))

    def in_another_history(self) -> Trust:
        """Where positions start again: what was believed up to one is not believed at all."""
        tokens = {digest: until for digest, until in self.tokens.items() if until == inf}
        return replace(self, tokens=tokens, plain=self.plain if self.plain == inf else 0)

    def believes(self, token: str | None, lsn: int) -> bool:
        """`token`: None for a message that has none."""
        if token is None:
            return 0 <= lsn < self.plain
        return 0 <= lsn < (self.tokens.get(_digest(token), 0) if self.tokens else inf)

    def parse(self, key: bytes | None, value: bytes | None, time: float) -> Marker | Truncation | Stranger | None:
        """What a record of the message topic is, written at `time`; None for a message to somebody else. Never raises.

        Messages of no transaction are never ours: they arrive before commits that lie before them.
        """
        try:
            prefix, source = _read(key, value)
            form = _form(prefix, self.pipeline)
            if form is None:
                return None
            token, table = form
            if source["txId"] is None:
                return Stranger("is of no transaction")
            lsn, at = int(source["lsn"]), int(source["ts_us"]) / 1e6
            if not self.believes(token, lsn):
                return Stranger("has no token" if token is None else "has a wrong token")
            if table is not None:
                return Truncation(join_name(*table), lsn, time)
            return Marker(lsn, at, awaited=prefix == names.MARKER_PREFIX or prefix.endswith(AWAITED))
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
            return Stranger("has not the form that the connector writes")


def _until(lsn: object) -> float:
    return inf if lsn is None else int(str(lsn))


def _digest(token: str) -> str:
    """What the control topic keeps of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _read(key: bytes | None, value: bytes | None) -> tuple[str, dict[str, Any]]:
    """The prefix of a message, and where it stands in the log. Raises for what is no message."""
    prefix, record = json.loads(key or b"")["prefix"], json.loads(value or b"")
    if record["op"] != "m" or not isinstance(prefix, str):
        raise ValueError("no message")
    return prefix, record["source"]


def _form(prefix: str, pipeline: str) -> tuple[str | None, tuple[str, str] | None] | None:
    """The token, and the table that was truncated, as a prefix names them; None where it is another pipeline's."""
    if prefix == names.MARKER_PREFIX:
        return None, None
    if prefix.startswith(names.TRUNCATE_PREFIX):
        return None, split_name(prefix.removeprefix(names.TRUNCATE_PREFIX))
    ours = names.message_prefix(pipeline)
    if not prefix.startswith(ours):
        return None
    token, _, table = prefix.removeprefix(ours).partition(":")
    if not table:
        return token, None
    schema, name = json.loads(table)
    if not (isinstance(schema, str) and isinstance(name, str)):
        raise TypeError("no table")
    return token, (schema, name)
