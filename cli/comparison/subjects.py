"""What `verify` compares, put together from the control topic: followers of the same documents are taken together."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from driftless import names
from driftless.config.models import Config
from driftless.control.quarantine import QuarantineLog
from driftless.control.topic import Control
from driftless.errors import ConfigError, SourceError
from driftless.facts.builds import Build
from driftless.facts.epochs import FollowedTable, TopicLog, registered_log, same_topic
from driftless.facts.generation import Generation
from driftless.facts.state import State
from driftless.facts.streams import StreamBuild, newest_stream_build, stream_build
from driftless.table import Table, is_computed
from driftless.types import refusal
from driftless.verify.builders import Builders
from driftless.verify.subject import Source, Subject, Target
from driftless.views.sql import select, with_keys
from driftless.views.tree import View, one_table
from jobs.decode.document_rows import DocumentRows
from jobs.decode.documents import documents_sql, writes_sql
from jobs.follow.apply import SinkSpec
from jobs.follow.job_spec import make_job
from jobs.log.history import DocumentHistory
from jobs.spark.source import LogSource, kafka_options
from jobs.streams.moment import stream_moment
from jobs.streams.root_moment import stream_root_moment
from sinks import config_model

Again = Callable[[str, str], None]


@dataclass
class Group:
    """A view's subject, and those of the tables that it is built from; none where the log is the table's own."""

    subject: Subject
    tables: list[str] = field(default_factory=list)


class Subjects:
    """`groups`: the views to compare. `tables`: what views of several tables are built from, each of them once."""

    def __init__(
        self,
        config: Config,
        control: Control,
        state: State,
        spark: Any,
        again: Again,
        source: Source,
        seconds: float,
    ) -> None:
        """`again`: has the rows of a table that fulfil a condition written into its log once more. `source`: the
        database. `seconds`: how long the builders of a view may take to answer.
        """
        self.groups: dict[tuple[object, ...], Group] = {}
        self.tables: dict[str, Subject] = {}
        self._config = config
        self._control = control
        self._state = state
        self._spark = spark
        self._again = again
        self._source = source
        self._seconds = seconds
        self._quarantine = QuarantineLog(control.kafka, config.name)
        logs = [log for table in state.by_prefix("epochs") if (log := registered_log(state, table)) is not None]
        # Every topic whose records tell where a transaction ended.
        self._beside = {names.message_topic(config.name): 1, **{log.topic: log.partitions for log in logs}}

    def add(self, follower: str, generation: Generation, *, live: bool = False) -> None:
        """Have a follower's generation compared. Raises SourceError where it can never be right.

        `live`: as the one that readers see; where they do not, that is its trouble.
        """
        if generation.followed.is_superseded(self._state):
            raise SourceError(
                f"{follower}: generation {generation.number} is of an older epoch of the log: it holds what is gone",
                hint="run the follower until its newest generation is live",
            )
        job = make_job(self._config, follower, generation, self._state, self._control.kafka)
        # Not by their SQL: names in it are other ones each time that it is made.
        shown = (json.dumps(generation.fields), generation.where, generation.table)
        alike = (generation.followed, shown)
        if alike not in self.groups:
            same_topic(self._control.kafka, job.log)
            self.groups[alike] = self._group(generation, job.log, DocumentHistory(self._spark, job.source))
        target = self._target(follower, generation, job.spec)
        target.live = live
        target.look_at_readers()
        self.groups[alike].subject.targets.append(target)

    def add_stream(self, name: str) -> Subject:
        """Have a stream's log compared, though nobody follows it. Raises ConfigError where it was never applied."""
        build = newest_stream_build(self._state, name)
        if build is None or build.log is None:
            raise ConfigError(f"the stream `{name}` has not been applied yet", hint="run `driftless apply` first")
        group = self.groups.setdefault((build.followed, ("", None, build.table)), Group(self._of_stream(build)))
        return group.subject

    def _of_stream(self, build: StreamBuild) -> Subject:
        log = build.log
        assert log is not None
        same_topic(self._control.kafka, log)
        parse, shape = documents_sql(log)
        options = kafka_options(self._control.kafka, "verify")
        kafka = self._control.kafka
        source = LogSource(log.topic, options, tuple(parse), tuple(shape), DocumentRows(log), kafka)
        moment = partial(stream_moment, self._spark, kafka, self._config.name, build, self._source.mark)
        return Subject(
            build.stream,
            "stream-log",
            "",
            log,
            DocumentHistory(self._spark, source),
            source=Source(moment, self._source.mark),
        )

    def _group(self, generation: Generation, log: TopicLog, history: DocumentHistory) -> Group:
        """Of a log of ours, with the tables that it is made of; of a table's log, with none."""
        table, followed = generation.table, generation.followed
        if generation.stream:
            stream = stream_build(self._state, generation.view, generation.stream)
            assert stream is not None
            return Group(self._of_stream(stream))
        build = followed.build(self._state)
        view = build.view if build else one_table(generation.view, table, generation.fields, generation.where)
        subject = Subject(
            generation.view,
            "view-log" if build else "table-log",
            select(view),
            log,
            history,
            careful=select(view, careful=True),
            superseded=followed.is_superseded,
        )
        if build is None:
            return Group(replace(subject, beside=self._beside, again=self._read_again(view)))
        for name, of_build in view.tables.items():
            if not is_computed(name):
                self._add_table(name, of_build, build)
        if view.stream:
            subject = replace(subject, source=self._add_root(view, build))
        subject = replace(
            subject,
            skips=True,
            builders=Builders(self._control, view.name, build.number, view.shards, self._seconds),
            quarantined=self._quarantined(names.view_lease(view.name), build.number),
        )
        return Group(subject, list(view.tables))

    def _add_table(self, name: str, table: Table, build: Build) -> None:
        """The columns of a table that any of the views reads, as a view of their own that nobody follows."""
        known = self.tables.get(name)
        if known is not None and known.columns >= {column.name for column in table.columns}:
            return
        log = FollowedTable(name, build.epochs[name]).topic(self._state)
        same_topic(self._control.kafka, log)
        fields = {column.name: column.name for column in table.columns if refusal(column) is None}
        parse, shape = writes_sql(table, fields, log, unavailable=names.unavailable(self._config.name))
        options = kafka_options(self._control.kafka, "verify")
        source = LogSource(log.topic, options, tuple(parse), tuple(shape), kafka=self._control.kafka)
        history = DocumentHistory(self._spark, source)
        view = one_table(name, table, fields)
        subject = Subject(
            name,
            "table-log",
            select(view),
            log,
            history,
            careful=select(view, careful=True),
            beside=self._beside,
            columns=frozenset(fields),
            again=self._read_again(view),
        )
        self.tables[name] = subject

    def _add_root(self, view: View, build: Build) -> Source:
        """The stream that is a view's root, as what the view is built from; what the view is compared with."""
        computed = stream_build(self._state, view.stream, build.epochs[view.root.table])
        if computed is None or computed.log is None:
            raise SourceError(
                f"the view {view.name} is of a build of {view.stream} that is not there any more",
                hint="run the view until its newest build is live",
            )
        self.tables[view.root.table] = self._of_stream(computed)
        moment = partial(stream_root_moment, self._source.moment, self._control.kafka, computed.log)
        return Source(moment, self._source.mark)

    def _read_again(self, view: View) -> Callable[[Sequence[str]], None]:
        return lambda keys: self._again(view.root.table, with_keys(view, keys))

    def _target(self, follower: str, generation: Generation, spec: SinkSpec) -> Target:
        store = config_model(spec.kind).model_validate(dict(spec.config))
        number = generation.number
        quarantined = self._quarantined(follower, number)
        return Target(follower, number, spec.open(), quarantined, keeps_text=store.keeps_text, expires=store.expires)

    def _quarantined(self, name: str, number: int) -> Callable[[], frozenset[str]]:
        """Asks for the keys in quarantine, of a generation of a follower or of a build of a view."""
        return lambda: frozenset(entry.key for entry in self._quarantine.read(name, number))
