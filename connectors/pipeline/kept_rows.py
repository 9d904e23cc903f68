"""Which logs keep every row, also those that were deleted since: events are read from them."""

from __future__ import annotations

from collections.abc import Iterator

from connectors.pipeline.plan_context import Action, PlanContext, bind
from driftless import names
from driftless.config.models import Config
from driftless.facts.column_history import Facts
from driftless.facts.epochs import registered_log
from driftless.facts.state import State
from driftless.kafka.many_topics import describe, settings_in_force
from driftless.kafka.topic_settings import COMPACTION_LAG, log_settings


class KeptRows:
    """What is registered of it, and what follows from the configuration."""

    def __init__(self, config: Config, context: PlanContext, state: State) -> None:
        self._context = context
        self._state = state
        self._tables = config.captured_events
        topics = {names.table_topic(config.name, name): name for name in self._tables if registered_log(state, name)}
        in_force = settings_in_force(context.kafka, describe(context.kafka, topics))
        usual = int(log_settings(0)[COMPACTION_LAG])
        self._shortened = {
            topics[topic] for topic, settings in in_force.items() if int(settings.get(COMPACTION_LAG) or 0) <= usual
        }

    def why_lacking(self, table: str) -> str:
        """Why rows may be missing that events are to be read from; empty where none are."""
        if table not in self._tables:
            return ""
        kept = self._state.get(f"kept/{table}") is not None and table not in self._shortened
        return "" if kept else "events are read from it, and its log has not kept every row so far"

    def fact(self, table: str, epoch: int) -> Facts:
        """What to register where an epoch begins: since then its log keeps every row."""
        return {f"kept/{table}": {"epoch": epoch}} if table in self._tables else {}

    def forgotten(self) -> Iterator[Action]:
        """Forget it of tables whose rows are events no more."""
        for name in sorted(self._state.by_prefix("kept").keys() - self._tables):
            do = bind(self._context.control.write, {f"kept/{name}": None})
            yield Action("forget", f"events of {name}", do=do)
