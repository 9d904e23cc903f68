"""Names that lead to what another pipeline has already: refused before anything is touched."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from connectors.pipeline import owners
from connectors.pipeline.guard import troubles, unmended_trouble
from connectors.pipeline.owners import taken
from connectors.pipeline.plan_context import PlanContext
from connectors.postgres.relations import view_meetings
from connectors.postgres.server import Slot
from driftless.config.models import Config
from driftless.facts.state import Fact, State

HERE = {"system_identifier": "74", "timeline": 1, "database": "shop"}


def state(**facts: dict[str, object]) -> State:
    return State({key.replace("__", "/"): Fact(value, 1.0, 1) for key, value in facts.items()})


@dataclass
class Source:
    """A database: `tokens`, of which pipelines; None where there is no table of them."""

    tokens: list[str] | None = None
    slots: tuple[str, ...] = ()
    publications: tuple[str, ...] = ()
    is_what: dict[str, object] = field(default_factory=lambda: dict(HERE))

    def identity(self) -> dict[str, object]:
        return self.is_what

    def walsender(self, _: str) -> list[tuple[str, bytes]]:
        return [("2.history", b"")]

    def slot(self, name: str) -> Slot | None:
        return Slot(name, 7, reader=7, lag_bytes=0, wal_status="reserved") if name in self.slots else None

    def carried(self, publication: str) -> dict[str, str]:
        return {"public.items": "1"} if publication in self.publications else {}

    def may_use(self, full_name: str) -> bool | None:
        del full_name
        return None if self.tokens is None else True

    def rows(self, *_: object) -> list[tuple[Any, ...]]:
        return [(name,) for name in self.tokens or []]


@dataclass
class Connect:
    connectors: tuple[str, ...] = ()

    def config(self, name: str) -> dict[str, str] | None:
        return {} if name in self.connectors else None


@dataclass
class Control:
    """`identities`: of the pipelines that this Kafka knows."""

    identities: dict[str, dict[str, object]]
    pipeline: str = ""

    def __call__(self, _kafka: object, pipeline: str) -> Control:
        return Control(self.identities, pipeline)

    def read(self) -> State:
        identity = self.identities.get(self.pipeline)
        return state() if identity is None else state(pipeline__identity=identity)


def config(name: str) -> Config:
    source = {"dsn": "postgresql://app@db/shop", "tables": {"public.items": {}}}
    kafka, connect = {"bootstrap": "kafka:9092"}, {"url": "http://connect:8083"}
    return Config.model_validate(
        {"name": name, "source": source, "kafka": kafka, "connect": connect, "views": {}, "followers": {}}
    )


def said(
    monkeypatch: pytest.MonkeyPatch,
    source: Source,
    *,
    known: dict[str, dict[str, object]] | None = None,
    before: State | None = None,
    connect: Connect | None = None,
    name: str = "shop_eu",
) -> list[str]:
    identities = known or {}
    monkeypatch.setattr(owners, "Control", Control(identities))
    context = cast(
        "PlanContext", type("PlanContext", (), {"source": source, "kafka": None, "connect": connect or Connect()})()
    )
    topics = {f"{pipeline}.control" for pipeline in identities} | {"shop-eu.public.items", "x.control.y"}
    return list(taken(config(name), context, before or state(), topics))


def test_a_name_whose_slot_another_pipeline_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By this Kafka, also where the two are of different databases of one server; or by the source's tokens."""
    wanted = (
        "the pipeline `shop-eu` has the slot and the publication driftless_shop_eu already: they would be those of "
        "`shop_eu` too, since `-` is written as `_` there; choose another `name`"
    )
    assert said(monkeypatch, Source(), known={"shop-eu": HERE}) == [wanted]
    assert said(monkeypatch, Source(), known={"shop-eu": {**HERE, "database": "other"}}) == [wanted]
    assert said(monkeypatch, Source(tokens=["shop-eu", "shop_eu", "shop"])) == [wanted]
    assert said(monkeypatch, Source(tokens=["shop-eu"]), known={"shop-eu": HERE}) == [wanted]
    applied = state(pipeline__identity=HERE)
    assert said(monkeypatch, Source(tokens=["shop-eu"]), before=applied) == [wanted], "of two that are there already"


def test_a_name_of_its_own_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere: dict[str, object] = {**HERE, "system_identifier": "75"}
    assert said(monkeypatch, Source(), known={"shop-eu": elsewhere}) == []
    assert said(monkeypatch, Source(tokens=["shop", "shop_eu"]), known={"shop": HERE, "shop_eu": HERE}) == []
    ours = Source(tokens=["shop_eu"], slots=("driftless_shop_eu",))
    assert said(monkeypatch, ours, before=state(pipeline__identity=HERE)) == []


def test_a_slot_of_which_this_kafka_knows_nothing_is_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another pipeline of this name, with another Kafka, would lose every change that we read."""
    found = said(monkeypatch, Source(slots=("driftless_shop",)), name="shop")
    assert found == [
        "there is a slot driftless_shop, and this Kafka knows no pipeline that it belongs to: another one of this "
        "name, with another Kafka, may read it: choose another `name`, or drop the slot if nobody needs it"
    ]
    lost = Connect(("driftless-shop",))
    assert said(monkeypatch, Source(slots=("driftless_shop",)), name="shop", connect=lost) == [], "has its own message"


def test_a_name_that_a_pipeline_of_another_database_has() -> None:
    """It is never said how to take that pipeline over, and its control topic is left alone."""
    before = state(pipeline__identity=HERE)
    for other in ({"database": "hr"}, {"database": "hr", "system_identifier": "75"}, {"system_identifier": "75"}):
        source = cast("Any", Source(is_what={**HERE, **other}))
        (trouble,) = troubles(config("shop"), source, cast("Any", Connect()), before)
        assert trouble.what.startswith(
            "another pipeline has the name `shop` in this Kafka, and it is of another database: "
        )
        assert trouble.hint.startswith("choose another `name` in sync.yaml")
        assert "anew" not in str(trouble)
        assert not trouble.renewal
        assert unmended_trouble(before) is None


def test_a_source_that_was_restored_elsewhere_is_the_same_pipeline() -> None:
    """A backup has all that `apply` made in the source; a standby that was promoted is the same database."""
    before = state(pipeline__identity=HERE)
    restored = Source(is_what={**HERE, "system_identifier": "75"}, publications=("driftless_shop",))
    for source in (restored, Source(is_what={**HERE, "timeline": 2})):
        (trouble,) = troubles(config("shop"), cast("Any", source), cast("Any", Connect()), before)
        assert trouble.what.startswith("this is not the database that the pipeline was made for: ")
        assert "--anew" in trouble.hint


def test_a_table_whose_topic_could_be_that_of_a_view() -> None:
    said = "would share a topic with the view order: give the view another name"
    tables = ['view."order.1"', '"view.order"."2"', "view.order", '"view"."order.x"', '"view"."orders.1"']
    assert list(view_meetings("shop", tables, ["order"])) == [(tables[1], said), (tables[0], said)]
