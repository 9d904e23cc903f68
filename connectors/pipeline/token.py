"""The pipeline's token: a row of the source that its own role and the admin alone can read.

Markers and TRUNCATEs bear it, so that nobody who may only connect can forge one (driftless/facts/trust.py). The
control topic holds its hash. A pipeline of an older version has none until `driftless apply`.
"""

from __future__ import annotations

import time

from connectors.pipeline.plan_context import Action, PlanContext, bind
from connectors.postgres.client import Postgres
from driftless import names
from driftless.errors import SourceError
from driftless.facts.state import State
from driftless.facts.trust import TRUST, Trust
from driftless.lsn import parse_lsn
from driftless.marker import PLAIN_MARKER_SQL, marker_sql

OPEN_SECONDS = 30.0
"""How long `apply` waits for transactions that may still write a message as an older version did."""
# Autovacuum, which has no user, writes no messages; what other databases do is no matter here.
_OPEN = """
select l.virtualtransaction
from pg_locks l join pg_stat_activity a on a.pid = l.pid
where l.locktype = 'virtualxid' and l.granted and l.pid <> pg_backend_pid()
  and a.datname = current_database() and a.usesysid is not null
"""


def token_of(source: Postgres, pipeline: str) -> str | None:
    """The pipeline's token; None where it has none, or our role may not read it."""
    if not source.may_use(names.TOKENS):
        return None
    found = source.rows(f"select token from {names.TOKENS} where pipeline = %s", pipeline)
    return str(found[0][0]) if found else None


def emit_marker(source: Postgres, pipeline: str) -> int:
    """Write a marker that somebody waits for; returns its position. Without a token where the pipeline has none yet."""
    found = source.rows(marker_sql(pipeline, awaited=True)) if source.may_use(names.TOKENS) else []
    return parse_lsn(str((found or source.rows(PLAIN_MARKER_SQL))[0][0]))


def insert_sql(pipeline: str) -> str:
    """What makes a pipeline's token, where it has none. The server draws it: no statement shows it."""
    return (
        f"insert into {names.TOKENS} values ('{pipeline}', replace(gen_random_uuid()::text, '-', '')) "
        "on conflict do nothing"
    )


def untrusted(source: Postgres, pipeline: str, state: State) -> str:
    """Why strangers' messages may be believed, or our own may not; empty where neither is so."""
    trust = Trust.of(pipeline, state)
    if not trust.tokens:
        return (
            "the pipeline has no token yet: every role that may connect to the database can write markers and "
            "TRUNCATEs that it believes; `driftless apply` gives it one"
        )
    token = token_of(source, pipeline)
    if token is None:
        return (
            f"{names.TOKENS} has no token of this pipeline, or the role may not read it: no position can be reported; "
            "`driftless apply` mends it"
        )
    if not trust.knows(token):
        return f"the token in {names.TOKENS} is not the registered one: `driftless apply` registers it"
    if not trust.settled:
        return "messages with no token, or an older one, are still believed; `driftless apply` ends that"
    return ""


def plan_token(config_name: str, context: PlanContext, state: State) -> tuple[list[Action], list[Action]]:
    """What is to be done before the connector runs, and what when all else is done."""
    trust, token = Trust.of(config_name, state), token_of(context.source, config_name)
    known = token is not None and trust.knows(token)
    new = state.get("pipeline/identity") is None
    first, last = [], []
    if not known:
        sql = insert_sql(config_name) if token is None else None
        why = "by which it knows its own messages in the source's log"
        first.append(Action("register", "token of the pipeline", why, sql, bind(_register, config_name, context, new)))
    if not (known and trust.settled) and not (new and not trust.tokens):
        why = "no message without it is believed any more"
        last.append(
            Action("register", "end of messages without the token", why, do=bind(_settle, config_name, context))
        )
    return first, last


def _register(pipeline: str, context: PlanContext, new: bool) -> None:
    """Believe the token before anybody can use it: it is committed once its hash is in the control topic."""
    token = token_of(context.source, pipeline)
    if token is not None:
        _believe(pipeline, context, token, new=new)
        return
    with context.admin.transaction():
        context.admin.rows(f"{insert_sql(pipeline)} returning 1")
        ((token,),) = context.admin.rows(f"select token from {names.TOKENS} where pipeline = %s", pipeline)
        _believe(pipeline, context, token, new=new)


def _believe(pipeline: str, context: PlanContext, token: str, *, new: bool) -> None:
    # A topic that was made a moment ago cannot be read yet, by some brokers; nor is there anything in it.
    trust = Trust(pipeline) if new else Trust.of(pipeline, context.control.read())
    context.control.write({TRUST: trust.with_token(token, new=new).to_json()})


def _settle(pipeline: str, context: PlanContext) -> None:
    """Believe nothing else from here on.

    A transaction that is older than the token may not see it, and then writes its TRUNCATE without: it must have ended.
    """
    token = token_of(context.source, pipeline)
    if token is None:
        raise SourceError(
            f"the role may not read {names.TOKENS}", hint="`driftless plan --sql` prints what a DBA must run"
        )
    open_, deadline = {row[0] for row in context.admin.rows(_OPEN)}, time.monotonic() + OPEN_SECONDS
    while open_ := open_ & {row[0] for row in context.admin.rows(_OPEN)}:
        if time.monotonic() > deadline:
            raise SourceError(
                f"messages without the token are still believed: {len(open_)} transactions have been open for longer "
                f"than {OPEN_SECONDS:.0f} s, and may write one",
                hint="all else is done; when they have ended, `driftless apply` does this too",
            )
        context.report(f"waiting for {len(open_)} transactions that are older than the token")
        time.sleep(0.2)
    trust = Trust.of(pipeline, context.control.read())
    context.control.write({TRUST: trust.settle(token, context.source.lsn()).to_json()})
