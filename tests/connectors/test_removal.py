"""What `destroy` takes for the pipeline's own source."""

from __future__ import annotations

from typing import Any, cast

import pytest

from connectors.removal.source_objects import is_other_source
from driftless.facts.state import Fact, State

KNOWN: dict[str, object] = {"system_identifier": "7", "timeline": 1, "database": "shop"}


@pytest.mark.parametrize(
    ("change", "other"),
    [({}, False), ({"timeline": 2}, False), ({"database": "shop2"}, True), ({"system_identifier": "8"}, True)],
    ids=str,
)
def test_the_same_names_in_another_database_are_not_ours(change: dict[str, object], other: bool) -> None:
    source = cast("Any", type("Source", (), {"identity": lambda _: KNOWN | change})())
    assert is_other_source(source, State({"pipeline/identity": Fact(KNOWN, 0.0, 0)})) is other
    assert not is_other_source(source, State({}))
