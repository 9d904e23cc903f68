"""Events and streams as sync.yaml declares them: what happened and when, and the SQL that counts it.

What can be told from the file alone is checked here; what needs Spark's own parser, in jobs/streams/sql/analysis.py.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from driftless.config.base import Model
from driftless.config.duration import Duration, milliseconds
from driftless.config.view_fields import KeyColumns
from driftless.streams.event_types import MOMENT, event_type, shown_columns

_SQL_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def _sql_name(name: str) -> str:
    if not _SQL_NAME.fullmatch(name):
        near = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")
        meant = f"; did you mean `{near}`?" if _SQL_NAME.fullmatch(near) else ""
        raise ValueError(f"it is a table's name in SQL: use lower-case letters, digits and `_`, at most 48{meant}")
    return name


def _type(written: str) -> str:
    event_type(written)
    return written


def _topic(name: str) -> str:
    if not _TOPIC.fullmatch(name):
        raise ValueError("a topic's name has letters, digits, `.`, `_` and `-`, at most 249")
    return name


SqlName = Annotated[str, AfterValidator(_sql_name), WithJsonSchema({"type": "string", "format": "name"})]
EventTypeName = Annotated[str, AfterValidator(_type)]


class TimeConfig(Model):
    """When an event happened. When it was received is what the broker says."""

    event: str = Field(description="The column that says when it happened, a `timestamptz`.", examples=["at"])
    sent: str | None = Field(
        default=None,
        description="The column that says when the device sent it, by the same clock as `event`. Where that clock "
        "differs from the broker's by more than 2 s, the event's time is corrected by the difference.",
        examples=["sent_at"],
    )


CAPTURED = ("table", "outbox")
"""Fields of events that name a table."""
LOOKUPS = ("with",)
"""Fields of events whose entries each name a table."""
PLACES = ("topic", *CAPTURED)
"""Fields of events of which each one says where they are."""


class LateConfig(Model):
    """What becomes of late events. `drop` in place of this leaves them out, and counts them."""

    correct: Duration | None = Field(
        default=None,
        description="For how long after its `lateness` an event still counts: the documents that it changes are "
        "computed again from the log, within a minute, and published as corrections.",
        examples=["7d"],
    )

    def __str__(self) -> str:
        """As it is written."""
        return "drop" if self.correct is None else f"{{correct: {self.correct}}}"


def _late(given: object) -> object:
    if given == "drop":
        return {}
    if isinstance(given, dict | LateConfig):
        return given
    raise ValueError(f"it is `drop`, or how long such events correct what is final (`{{correct: 7d}}`), not `{given}`")


_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,2})?) ?%")


def _share(given: object) -> object:
    found = _SHARE.fullmatch(given) if isinstance(given, str) else None
    if found is None or float(found[1]) > 100:
        raise ValueError(f"write a part of a hundred, as `10%` or `0.25%`, not `{given}`")
    return given


Share = Annotated[str, BeforeValidator(_share), WithJsonSchema({"type": "string", "format": "share"})]


class OverloadConfig(Model):
    """What a stream that cannot keep up does with these events. `wait` in place of this: it reads all, later."""

    behind: Duration = Field(
        description="Where the stream is further behind than this, it leaves unread what it has not read yet, and "
        "counts it. After it was down, it catches up first.",
        examples=["5m"],
    )
    sample: Share = Field(
        default="0%",
        description="The part of them that it reads all the same. Which ones these are does not depend on the run.",
        examples=["10%"],
    )

    @property
    def of_10_000(self) -> int:
        """The same as so many of 10,000."""
        found = _SHARE.fullmatch(self.sample)
        assert found is not None
        return round(float(found[1]) * 100)


def _overload(given: object) -> object:
    if given is None or given == "wait":
        return None
    if isinstance(given, dict | OverloadConfig):
        return given
    raise ValueError(f"it is `wait`, or after how long events are left unread (`{{behind: 5m}}`), not `{given}`")


class LookupConfig(Model):
    """A table of which each event has the row as it was when the event happened, as a struct of this name."""

    table: str = Field(
        description="A table of `source.tables`. Its log keeps all versions of its rows, as its `history` says.",
        examples=["public.products"],
    )
    by: KeyColumns = Field(
        description="The column or columns of the event that hold the primary key of this table.",
        examples=["product_id"],
    )
    columns: KeyColumns | None = Field(
        default=None,
        description="Columns of the table that are read. All that an event may have if left out.",
        examples=["[title, price]"],
    )
    as_of: Literal["event"] = Field(
        default="event",
        description="`event`: the row as it was when the event happened, by the time of its commit. A row that the "
        "first snapshot has read counts as having been there always.",
        examples=["event"],
    )


class EventsConfig(Model):
    """Events that applications write: into a topic of Kafka, or into a table of the source. One of `topic`, `table` and
    `outbox` says where.
    """

    topic: Annotated[str, AfterValidator(_topic)] | None = Field(
        default=None,
        description="A topic of Kafka, one JSON object each. Its `message.timestamp.type` must be `LogAppendTime`: "
        "lateness is judged by the time at which the broker received an event.",
        examples=["app.clicks"],
    )
    table: str | None = Field(
        default=None,
        description="A table of `source.tables` to which rows are only added: each one is an event, received when its "
        "transaction was committed. Its columns are those of the database.",
        examples=["public.orders"],
    )
    outbox: str | None = Field(
        default=None,
        description="A table of `source.tables` that has a column `payload` with one JSON object each. Rows may be "
        "deleted again, as soon as one likes.",
        examples=["public.outbox"],
    )
    columns: dict[str, EventTypeName] = Field(
        default_factory=dict,
        description="The members of each object that are read, with their types: `boolean`, `smallint`, `integer`, "
        "`bigint`, `numeric`, `numeric(p,s)`, `text`, `uuid`, `date`, `timestamptz`. A `timestamptz` is a text in "
        "ISO 8601, or a number of milliseconds since 1970. Of an outbox, what is a column of the table is read from "
        "there. Not of a `table`.",
        examples=["{id: bigint, product_id: bigint, page: text, at: timestamptz, sent_at: timestamptz}"],
    )
    time: TimeConfig = Field(description="When an event happened.", examples=["{event: at}"])
    lateness: Duration = Field(
        default="1m",
        description="An event that was received later than this after it happened is late. A window is final when it "
        "has been over for so long.",
        examples=["10m"],
    )
    late: Annotated[LateConfig, BeforeValidator(_late)] = Field(
        default_factory=LateConfig,
        description="What becomes of late events. `drop`: they are left out, and counted. `{correct: 7d}`: those that "
        "come within 7 days more are counted in corrections of what was final.",
        examples=["{correct: 7d}"],
    )

    copies: Literal["count", "drop"] = Field(
        default="count",
        description="What becomes of an event that was sent again, as by a device that had no answer. `drop`: of "
        "events that are alike in all columns but `time.sent`, which no query sees then, one counts. Only of a "
        "`topic`.",
        examples=["drop"],
    )

    overload: Annotated[OverloadConfig | None, BeforeValidator(_overload)] = Field(
        default=None,
        description="What a stream that cannot keep up does. `wait`: it reads everything, later. `{behind: 5m}`: where "
        "it is further behind, it leaves events unread, and counts them. Only of a `topic`.",
        examples=["{behind: 5m, sample: 10%}"],
    )

    lookups: dict[SqlName, LookupConfig] = Field(
        default_factory=dict,
        alias="with",
        description="Tables of the source, by names of your own, of which each event has the row as it was then: "
        "`product.title` in SQL. A result is final when the event is over by `lateness`.",
        examples=["{product: {table: public.products, by: product_id}}"],
    )

    @property
    def lateness_ms(self) -> int:
        return milliseconds(self.lateness)

    @property
    def correct_ms(self) -> int:
        """For how much longer events correct what is final."""
        return 0 if self.late.correct is None else milliseconds(self.late.correct)

    @property
    def shown(self) -> dict[str, str]:
        """The columns that a query sees, with their types."""
        return shown_columns(self.columns, self.time.sent, once=self.once)

    @property
    def once(self) -> bool:
        """Whether of events that are alike one counts."""
        return self.copies == "drop"

    @property
    def captured(self) -> str | None:
        """The table of the source whose rows they are; None where they are messages of Kafka."""
        return self.table or self.outbox

    @model_validator(mode="after")
    def _has_its_time(self) -> EventsConfig:
        said = [name for name in PLACES if getattr(self, name) is not None]
        taken = [self.time.event, *self.columns]
        if twice := sorted(self.lookups.keys() & set(taken)):
            raise ValueError(f"`{twice[0]}` is a column of the events: name the table in `with` otherwise")
        if not said:
            raise ValueError("it does not say where events are: `topic: app.clicks`, or `table: public.orders`")
        if self.overload is not None and self.topic is None:
            raise ValueError("`overload` is of a `topic`: rows of a table all count")
        if self.once and self.topic is None:
            raise ValueError("`copies` is of a `topic`: each row of a table is one event")
        if len(said) > 1:
            raise ValueError(f"`{said[0]}` and `{said[1]}`: events are in one place; make events of each")
        if self.table is not None:
            if self.columns:
                raise ValueError("`columns` are those that the table has in the database: leave it out")
            return self
        for name, lookup in self.lookups.items():
            if unknown := [column for column in lookup.by if column not in self.columns]:
                raise ValueError(f"`with.{name}.by` is `{unknown[0]}`, which is not one of `columns`")
        if not self.columns:
            raise ValueError("no column is declared: `time.event` must be one of `columns`")
        for field in ("event", "sent"):
            name = getattr(self.time, field)
            if name is None:
                continue
            if name not in self.columns:
                raise ValueError(f"`time.{field}` is `{name}`, which is not one of `columns`")
            if self.columns[name].strip().lower() != MOMENT:
                raise ValueError(f"`time.{field}` is `{name}`, which must be a `{MOMENT}` in `columns`")
        return self


class StreamConfig(Model):
    """Documents that are computed over time: Spark SQL over events."""

    sql: str = Field(
        description="A query over `events`, or other streams, by their names, in Spark's SQL: grouped by "
        "`window(TIME, SIZE)`, `window(TIME, SIZE, STEP)` or `session_window(TIME, GAP)`; or a filter; or an inner "
        "join of events within a time of each other. The column that is the events' time has it corrected.",
        examples=[
            '"SELECT window.start AS minute, page, count(*) AS views FROM clicks '
            "GROUP BY window(at, '1 minute'), page\""
        ],
    )
    key: KeyColumns = Field(
        description="The column or columns of the result that name a document. No two results have the same.",
        examples=["[minute, page]"],
    )
    emit: Literal["final", "changes"] = Field(
        default="final",
        description="`final`: a window's document is written once, when no further event of it can come in time. "
        "`changes`: it is written whenever events have changed it, of windows that are no sessions.",
        examples=["final"],
    )
    partitions: int | None = Field(
        default=None,
        ge=1,
        le=512,
        description="Partitions of the stream's log. As `kafka.partitions` says if left out.",
        examples=["8"],
    )
