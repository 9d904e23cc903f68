"""What late events change of what was final: it is computed again as a batch, and compared with the stream's log.

Nothing of Spark's state is needed for it: the SQL runs as a batch over the events of those windows alone, and whatever
differs is published. So it works for whatever can be proven.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from driftless.facts.streams import SESSION, StreamBuild
from driftless.kafka.client import Kafka, Offsets
from jobs.streams.late.corrected import Corrected, Correction
from jobs.streams.log.published import Kept, published
from jobs.streams.sql.documents import Result, results
from jobs.streams.sql.kept_events import KeptEvents, kept_events
from jobs.streams.sql.query import batch_views, late_moments, query_session, remembers
from jobs.streams.sql.timed import FROM, TO, only, timed_rows

SLACK_MS = 5_000
"""A broker may have stamped a record so much earlier than one before it."""
LOOKBACK_MS = 3_600_000
"""How long before a late event its session is looked for at first."""
MOST_ENDS = 1_000
"""Windows that are named one by one; of more, all between the first and the last are computed again."""

Reach = Mapping[str, Offsets]


@dataclass(frozen=True)
class LateEvents:
    """Events that are to be counted now. `new`: how many of them were never counted before. `first_ms`, `last_ms`: when
    they happened. `ends`: the ends of all windows that they are in; None where these are not known, or too many.
    """

    new: int
    first_ms: int
    last_ms: int
    ends: frozenset[int] | None


@dataclass(frozen=True)
class Found:
    """Corrections, and up to where they count late events. `waits`: whether windows that are open have some."""

    corrections: list[Correction]
    corrected: Corrected
    waits: bool


class LateCorrections:
    """Of one build. For one thread."""

    def __init__(self, spark: SparkSession, kafka: Kafka, build: StreamBuild, options: Mapping[str, str]) -> None:
        """`options`: with which Spark reads from Kafka."""
        assert build.log is not None
        self._spark = query_session(spark)
        self._kafka = kafka
        self._build = build
        self._log = build.log
        self._options = options

    def find(self, before: Corrected, late: Reach, read: Reach, closed_ms: int) -> Found | None:
        """Have late events before `late` counted in what ends at or before `closed_ms`; None where there are none.

        The stream must have published all of that, of the events up to `read`, and `late` must not be beyond it.
        """
        kept = kept_events(self._kafka, self._build, read)
        events = self._late_events(before, late, kept)
        if events is None:
            return None
        if not self._build.closes:
            open_ms, found = closed_ms, list(self._of_pairs(before, late, read, kept))
        elif self._build.is_of_several:
            open_ms, found = self._of_several(late, read, kept, closed_ms)
        elif self._build.closes == SESSION:
            open_ms, found = self._of_sessions(events, late, read, kept, closed_ms)
        else:
            open_ms, found = self._of_windows(events, late, read, kept, closed_ms)
        counted, documents = before.events + events.new, before.documents + len(found)
        waits = bool(self._build.closes) and events.last_ms >= open_ms
        return Found(found, Corrected(dict(late), closed_ms, counted, documents, open_ms), waits)

    def _late_events(self, before: Corrected, late: Reach, kept: KeptEvents) -> LateEvents | None:
        """Those that were never counted, and those that were not in windows that were open then."""
        new, firsts, lasts, ends = 0, list[int](), list[int](), set[int]()
        windows = self._build.ends
        step, first = (windows.step, windows.first) if windows else (1, 0)
        for source in self._build.events.values():
            end = late.get(source.topic, {})
            counted = {p: before.read.get(source.topic, {}).get(p, 0) for p in end}
            begin = counted
            if before.events and self._build.closes:
                at = self._kafka.offsets_at(source.topic, len(end), max(0, before.open_ms - SLACK_MS) / 1000)
                begin = {p: min(counted[p], at[p]) for p in end}
            begin = {p: max(begin[p], kept.begin[source.topic][p]) for p in end}
            if all(begin[p] >= end[p] for p in end):
                continue
            is_new = " OR ".join(f"(`partition` = {p:d} AND `offset` >= {offset:d})" for p, offset in counted.items())
            moments = late_moments(self._spark, source, self._options, begin, end)
            moments = moments.where(f"{is_new} OR at >= {before.open_ms:d}")
            row = moments.selectExpr(
                f"count_if({is_new}) AS new",
                "min(at) AS first",
                "max(at) AS last",
                f"collect_set(CAST(floor((at - {first:d}) / {step:d}) AS BIGINT)) AS steps"
                if windows
                else "NULL AS steps",
            ).collect()[0]
            if row["first"] is not None:
                new, firsts, lasts = new + row["new"], [*firsts, row["first"]], [*lasts, row["last"]]
                ends |= {end for at in row["steps"] or () for end in self._ends(at)}
        if not firsts:
            return None
        return LateEvents(new, min(firsts), max(lasts), frozenset(ends) if windows and len(ends) <= MOST_ENDS else None)

    def _ends(self, step: int) -> range:
        """Of all windows of an event that happened at this many steps."""
        windows = self._build.ends
        assert windows is not None
        first = windows.first + (step + 1) * windows.step
        return range(first, first + windows.size, windows.step)

    # -- the ways in which results become final -----------------------------------------------------------------

    def _of_windows(
        self, events: LateEvents, late: Reach, read: Reach, kept: KeptEvents, closed_ms: int
    ) -> tuple[int, list[Correction]]:
        """Also of events with rows of tables: each is final as a window would be that lasts no time."""
        windows = self._build.ends
        size, first_end = (windows.size, events.first_ms + 1) if windows else (0, events.first_ms)
        low, high = events.first_ms - size, events.last_ms + size
        if events.ends is None:
            places = f"{TO} >= {first_end:d} AND {FROM} <= {events.last_ms:d}"
        else:
            places = f"{TO} IN ({', '.join(map(str, sorted(events.ends)))})"
        begin = self._since(low, kept)
        found = self._computed(begin, read, late, f"{places} AND {TO} <= {closed_ms:d}", (low, high + 1))
        held = {
            key: document
            for key, document in self._held(low).items()
            if document.end is not None
            and document.begin is not None
            and (document.end in events.ends if events.ends is not None else document.begin <= events.last_ms)
        }
        first = max(kept.begin_ms, self._build.begin_ms)
        return closed_ms - size, list(_differences(found, held, first, first_end, closed_ms))

    def _of_sessions(
        self, events: LateEvents, late: Reach, read: Reach, kept: KeptEvents, closed_ms: int
    ) -> tuple[int, list[Correction]]:
        """A session may have begun at any time before the event: it is looked for further and further back. An event
        that comes just as it ends belongs to it.
        """
        back = LOOKBACK_MS
        while True:
            low = events.first_ms - back
            begin = self._since(low, kept)
            whole = begin == kept.begin
            during = None if whole else (low, 1 << 53)
            found = self._computed(begin, read, late, f"{TO} >= {events.first_ms:d}", during)
            held = self._held(0 if whole else low)
            begins = [each.begin for each in found if each.begin is not None]
            begins += [each.begin for each in held.values() if each.begin is not None and each.end >= events.first_ms]  # type: ignore[operator]
            if whole or min(begins, default=low) >= low:
                break
            back *= 4
        first = max(kept.begin_ms, self._build.begin_ms)
        still_open = [each.begin for each in found if each.begin is not None and (each.end or 0) > closed_ms]
        final = [each for each in found if each.end is not None and each.end <= closed_ms]
        return min(still_open, default=closed_ms), list(_differences(final, held, first, events.first_ms, closed_ms))

    def _of_several(self, late: Reach, read: Reach, kept: KeptEvents, closed_ms: int) -> tuple[int, list[Correction]]:
        """Of what is made of events by several steps: which results a late event changes cannot be told from its time.
        So everything that is final is computed, and of it only what differs is published.
        """
        found = self._computed(kept.begin, read, late, f"({TO} IS NULL OR {TO} <= {closed_ms:d})", None)
        first = max(kept.begin_ms, self._build.begin_ms)
        return closed_ms - self._build.span, list(_differences(found, self._held(0), first, 0, closed_ms))

    def _of_pairs(self, before: Corrected, late: Reach, read: Reach, kept: KeptEvents) -> Iterator[Correction]:
        """Of filters and joins: a late event takes no result away. A filter needs the late events alone."""
        batch_views(self._spark, self._build, self._options, kept.begin, kept.begin)  # to look at the plan
        since_ms, begin = 0, dict(kept.begin)
        if not remembers(timed_rows(self._spark, self._build)):
            begin = {
                topic: {p: max(o, before.read[topic].get(p, 0)) for p, o in some.items()}
                for topic, some in begin.items()
            }
            since_ms = min(self._kafka.time_of(topic, p, o) for topic, some in begin.items() for p, o in some.items())
            read = late
        held = self._held(since_ms)
        for each in self._computed(begin, read, late, "true", None):
            known = held.get(each.key)
            if known is None or known.document != each.document:
                yield Correction(each.key, each.document, None, None, known.revision + 1 if known else 1)

    # -- both sides ---------------------------------------------------------------------------------------------

    def _since(self, moment_ms: int, kept: KeptEvents) -> dict[str, Offsets]:
        """The first events that may have happened since: they were received later than they happened. Rows of tables
        may be older.
        """
        tables = {source.topic for source in self._build.tables.values()}
        found = {topic: begin for topic, begin in kept.begin.items() if topic in tables}
        for topic, begin in kept.begin.items():
            if topic in tables:
                continue
            at = self._kafka.offsets_at(topic, len(begin), max(0, moment_ms - SLACK_MS) / 1000)
            found[topic] = {p: max(offset, at[p]) for p, offset in begin.items()}
        return found

    def _computed(
        self, begin: Reach, read: Reach, late: Reach, where: str, during: tuple[int, int] | None
    ) -> list[Result]:
        end = {topic: {p: max(o, begin[topic][p]) for p, o in read[topic].items()} for topic in begin}
        batch_views(self._spark, self._build, self._options, begin, end, late, during)
        rows = only(timed_rows(self._spark, self._build), self._build, where).toArrow()
        return list(results(self._build.stream, rows, self._build.table.key))

    def _held(self, since_ms: int) -> dict[str, Kept]:
        """What readers see of windows since a moment: each was published after it had begun."""
        return published(self._kafka, self._log, since_ms - SLACK_MS)


def _differences(
    found: list[Result], held: Mapping[str, Kept], begin_ms: int, after_ms: int, closed_ms: int
) -> Iterator[Correction]:
    """What is to be as computed, of windows that began from `begin_ms` on and ended from `after_ms` to `closed_ms`."""
    computed = {each.key: each for each in found if (each.begin or 0) >= begin_ms}
    for key, each in computed.items():
        known = held.get(key)
        if known is None or known.document != each.document:
            yield Correction(key, each.document, each.begin, each.end, known.revision + 1 if known else 1)
    for key, known in held.items():
        begin, end = known.begin, known.end
        if begin is None or end is None or key in computed:
            continue
        if begin >= begin_ms and after_ms <= end <= closed_ms:
            yield Correction(key, None, begin, end, known.revision + 1)
