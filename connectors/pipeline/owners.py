"""What the names of a pipeline lead to, and whether another pipeline has it already.

Postgres takes no `-` in the name of a slot: `shop-eu` and `shop_eu` would share one, and a publication and a table of
signals, and each would take the other's tables out.
"""

from __future__ import annotations

from collections.abc import Iterator

from connectors.pipeline.plan_context import PlanContext
from driftless import names
from driftless.config.models import Config
from driftless.control.topic import Control
from driftless.errors import SourceError
from driftless.facts.state import State

CHOOSE = "choose another `name`"
_CONTROL = names.control_topic("")


def taken(config: Config, context: PlanContext, state: State, existing: set[str]) -> Iterator[str]:
    """Why this pipeline must not be applied under its name, for an operator. `existing`: all topics."""
    others = dict.fromkeys(twins(config.name, context, existing))
    for other in others:
        yield (
            f"the pipeline `{other}` has the slot and the publication {names.slot(config.name)} already: they would be "
            f"those of `{config.name}` too, since `-` is written as `_` there; {CHOOSE}"
        )
    slot = names.slot(config.name)
    if others or state.get("pipeline/identity") is not None or context.source.slot(slot) is None:
        return
    if context.connect.config(names.connector(config.name)) is None:
        yield (
            f"there is a slot {slot}, and this Kafka knows no pipeline that it belongs to: another one of this name, "
            f"with another Kafka, may read it: {CHOOSE}, or drop the slot if nobody needs it"
        )


def twins(pipeline: str, context: PlanContext, existing: set[str]) -> Iterator[str]:
    """Other pipelines on the same server whose slot has the same name: by this Kafka, and by the source."""
    server = context.source.identity()["system_identifier"]
    for topic in sorted(existing):
        other = topic.removesuffix(_CONTROL)
        if not topic.endswith(_CONTROL) or not _meet(pipeline, other):
            continue
        try:
            identity = Control(context.kafka, other).read().get("pipeline/identity") or {}
        except SourceError:
            continue
        if identity.get("system_identifier") == server:
            yield other
    if context.source.may_use(names.TOKENS):
        for (other,) in context.source.rows(f"select pipeline from {names.TOKENS} order by 1"):
            if _meet(pipeline, str(other)):
                yield str(other)


def _meet(pipeline: str, other: str) -> bool:
    return other != pipeline and names.slot(other) == names.slot(pipeline)
