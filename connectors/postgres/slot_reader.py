"""Since when the slot is read, and whether somebody watched when that began.

A slot can be moved only while nobody reads it. Who looks before the connector goes on sees that it was (see
connectors/pipeline/guard.py); afterwards nothing shows it, since the log has no numbers in which a gap could be seen.
So it is kept in the control topic since when the slot has been read. Where that has begun again and nobody had
watched, `status` says so until `verify` has found every follower right beyond that point.
"""

from __future__ import annotations

from connectors.postgres.client import Postgres
from driftless.facts.state import UNWATCHED, WATCHED, State
from driftless.lsn import format_lsn


def slot_reader_facts(
    source: Postgres, slot: str, state: State, *, watched: bool
) -> dict[str, dict[str, object] | None]:
    """The facts that follow from who reads the slot now. `watched`: all was well a moment ago, and somebody saw that.

    Nothing where nobody reads it, or where the role may not see that.
    """
    since = source.read_since(slot)
    known = state.get(WATCHED)
    if since is None or (known is not None and known["since"] == since):
        return {}
    facts: dict[str, dict[str, object] | None] = {WATCHED: {"since": since}}
    if known is not None and not watched:
        facts[UNWATCHED] = {"since": since, "lsn": format_lsn(source.lsn())}
    return facts
