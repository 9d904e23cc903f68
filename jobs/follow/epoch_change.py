"""Where the log of a table has a new epoch, or a view was rebuilt: what a follower of it does about that."""

from __future__ import annotations

import logging

from driftless.facts.epochs import registered_log
from driftless.facts.generation import Generation, begin_facts, renewed
from driftless.facts.state import State
from driftless.kafka.client import Kafka
from jobs.log.frontier import FrontierReader
from jobs.log.truncation import truncated

_log = logging.getLogger(__name__)


def facts_for_epoch_change(
    follower: str, newest: Generation, state: State, frontiers: FrontierReader, kafka: Kafka
) -> dict[str, dict[str, object] | None]:
    """The facts that begin what has to be begun: an epoch at a TRUNCATE, or a generation from an epoch that is new."""
    followed, table = newest.followed, newest.table.full_name
    if followed.is_superseded(state):
        _log.warning("%s: %s; a new generation is built from there", follower, followed.why_newest(state))
        return begin_facts(follower, renewed(newest, state, follower))
    log = registered_log(state, table)
    if followed.ours or log is None:
        return {}  # whoever writes a log of ours looks after the tables
    truncation = frontiers.truncation(log)
    return {} if truncation is None else truncated(kafka, log, truncation).fact(table)
