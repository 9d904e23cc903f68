"""What is sent as the routing of a document, by its key."""

from __future__ import annotations

import pytest

from driftless.sink import SinkContext
from sinks import Unfit, open_sink
from sinks.opensearch.routing import Routing


def test_the_routing_is_the_value_of_its_column() -> None:
    two = Routing.of_column("tenant", ("id", "tenant"))
    assert [two.of_key(key) for key in ('[1,"a b"]', "[1,7]", '[1,""]')][:2] == ["a b", "7"]
    assert Routing.of_column("id", ("id",)).of_key("7") == "7"
    assert Routing.of_column(None, ("id",)).of_key("7") is None


def test_a_column_that_is_not_in_the_key_is_refused_with_what_to_write() -> None:
    config = {"url": "http://127.0.0.1:1", "index": "x", "routing": "tenant"}
    with pytest.raises(
        Unfit, match=r"`tenant` is no column of the key \(id\).*write `key: \[tenant, id\]` in the view"
    ):
        open_sink("opensearch", config, SinkContext("shop", "search", ("id",)))
