"""What the terminal shows of a pipeline that is watched."""

from __future__ import annotations

import io
import math
from typing import Any

from cli.output.console import PlainConsole
from cli.output.standing import TREND, Trend, shown, sparkline
from tests.serve.service import FACTS, FOLLOWER

PROBLEM = {"kind": "waiting", "who": "follower item-cache", "what": "Redis is full", "do": "do this", "since": None}


def printed(facts: dict[str, Any], width: int, trends: dict[str, Trend], **more: Any) -> str:
    file = io.StringIO()
    PlainConsole(file=file, width=width, **more).print(shown(facts, width, trends))
    return file.getvalue()


def test_a_sparkline_is_as_high_as_the_greatest_lag_and_blank_where_nothing_is_known() -> None:
    assert sparkline([0.0, 5.0, math.nan, 10.0, 80.0]) == "▁▁ ▁█"
    assert sparkline([40.0, 80.0, 60.0]) == "▄█▆"
    assert sparkline([0.1, 0.4]) == "▁▃", "below a second nobody has to look"
    assert sparkline([]) == ""


def test_a_watched_pipeline_fits_80_columns_with_rate_and_trend() -> None:
    trends = {"item-cache": Trend(12.34, [0.5] * TREND)}
    out = printed(FACTS, 80, trends)
    assert max(map(len, out.splitlines())) <= 80
    assert "item-cache" in out
    assert "12.3" in out
    assert "▄" * TREND in out
    wide = printed(FACTS, 200, trends)
    assert [h for h in ("documents", "quarantined", "applied", "writes/s", "lag, 30 s") if h not in wide] == []


def test_without_a_trend_there_is_no_column_for_it() -> None:
    assert "writes/s" not in printed(FACTS, 200, {})


def test_states_have_colors_where_the_terminal_has_them() -> None:
    colored = printed(FACTS, 80, {}, force_terminal=True, color_system="standard")
    assert "\x1b[32mlive" in colored
    failed = {**FACTS, "followers": [{**FOLLOWER, "state": "failed"}], "problems": [PROBLEM]}
    colored = printed(failed, 80, {}, force_terminal=True, color_system="standard")
    assert "\x1b[1;31mfailed" in colored
    assert "follower item-cache: Redis is full; do this" in colored
    assert "\x1b" not in printed(failed, 80, {})


def test_a_name_that_a_terminal_would_obey_is_written_out() -> None:
    evil = {**FACTS, "followers": [{**FOLLOWER, "view": "a\x1b[2Jb", "state": "live"}]}
    assert "\x1b" not in printed(evil, 200, {})
