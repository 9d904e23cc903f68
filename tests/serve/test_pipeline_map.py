"""The picture of a pipeline with everything in it: which boxes there are, and what each reads."""

from __future__ import annotations

from pathlib import Path

from driftless.control.health import Kind, Problem
from driftless.control.status import SourceStatus, status
from driftless.facts.state import State
from driftless.metrics.figures import LogTails
from serve.facts.collector import Snapshot
from serve.page.pipeline_map import duration, pipeline_map
from tests.driftless.config.test_config import load_text

SYNC = """\
name: shop
source:
  dsn: postgresql://localhost/shop
  tables: {public.orders: {}, public.lines: {}, public.tags: {}, public.order_tags: {}, public.sales: {}}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://127.0.0.1:1"}
views:
  order:
    root: public.orders
    many:
      lines: {table: public.lines, by: order_id}
      tags: {table: public.tags, by: order_id, through: public.order_tags, to: tag_id}
events:
  clicks:
    topic: app.clicks
    columns: {page: text, at: timestamptz}
    time: {event: at}
  sold: {table: public.sales, time: {event: at}}
streams:
  page_minute:
    sql: SELECT window.start AS minute, page, count(*) AS n FROM clicks GROUP BY window(at, '1 minute'), page
    key: [minute, page]
  sold_minute:
    sql: SELECT window.start AS minute, count(*) AS n FROM sold GROUP BY window(at, '1 minute')
    key: [minute]
followers:
  order-cache: {view: order, redis: {url: "redis://127.0.0.1:1", key: "order:{id}"}}
  page-cache: {view: page_minute, redis: {url: "redis://127.0.0.1:1", key: "page:{minute}:{page}"}}
"""


def test_each_box_reads_what_the_configuration_says(tmp_path: Path) -> None:
    config, state = load_text(tmp_path, SYNC), State({})
    trouble = Problem(Kind.CONNECTOR_TROUBLE, "connector", "it is paused")
    source = SourceStatus(16, "driftless_shop", 2_500_000, 1e6, connector="PAUSED", troubles=[trouble])
    tails = LogTails({"public.orders": 1234}, {"public.orders": 90.0})
    facts = status(config, state, source, 1e6)
    columns = pipeline_map(config, Snapshot(1e6, 1e6, state, facts, tails, None), {"order-cache": 1.25}.get)
    boxes = {box.id: box for column in columns for box in column.boxes}
    assert [column.title for column in columns] == ["Source", "Connector", "Topics", "Streams", "Views", "Followers"]
    assert {name: box.reads for name, box in boxes.items()} == {
        "source": (),
        "connector": ("source",),
        **{f"table public.{table}": ("connector",) for table in ("orders", "lines", "tags", "order_tags", "sales")},
        "events clicks": (),
        "stream page_minute": ("events clicks",),
        "stream sold_minute": ("table public.sales",),
        "view order": ("table public.lines", "table public.order_tags", "table public.orders", "table public.tags"),
        "follower order-cache": ("view order",),
        "follower page-cache": ("stream page_minute",),
    }
    assert boxes["source"].lines == (("position", "0/10"), ("kept for the slot", "2.5 MB"))
    assert (boxes["source"].good, boxes["connector"].good, boxes["connector"].state) == (True, False, "paused")
    assert boxes["table public.orders"].lines == (("records", "1,234"), ("newest", "1.5 min ago"))
    assert ("writes", "1.2/s") in boxes["follower order-cache"].lines
    assert boxes["follower order-cache"].good is False, "it was never applied"


def test_lengths_of_time_are_told_in_one_word() -> None:
    seconds = (0.04, 59.94, 61, 5400, 90_000)
    assert [duration(one) for one in seconds] == ["0.0 s", "59.9 s", "1.0 min", "1.5 h", "1.0 d"]
