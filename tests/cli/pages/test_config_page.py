"""docs/configuration.md: made of the models, with every key, and examples that are a configuration together."""

from __future__ import annotations

from pathlib import Path

import pytest

import sinks
from cli.pages.config_page import PAGE, page
from driftless.config.base import Model, written_fields
from driftless.config.kafka_security import BY_TOKEN, KafkaSecurity
from driftless.config.models import AlertsConfig, Config, ConnectConfig, KafkaConfig, SourceConfig, TableConfig
from driftless.config.patterns import PatternConfig, StepConfig
from driftless.config.streams import (
    CAPTURED,
    EventsConfig,
    LateConfig,
    LookupConfig,
    OverloadConfig,
    StreamConfig,
    TimeConfig,
)
from driftless.config.views import ManyConfig, OneConfig, ViewConfig
from tests.docs.test_docs import blocks
from tests.driftless.config.test_config import load_text
from tests.support.security.certificates import KEY_PASSWORD, Certificates

MODELS: list[type[Model]] = [Config, SourceConfig, TableConfig, KafkaConfig, KafkaSecurity, ConnectConfig, AlertsConfig]
VIEWS: list[type[Model]] = [ViewConfig, OneConfig, ManyConfig]
STREAMS: list[type[Model]] = [EventsConfig, TimeConfig, LateConfig, OverloadConfig, StreamConfig, PatternConfig]
STORES: list[type[Model]] = [sinks.config_model(kind) for kind in sinks.kinds()]


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_sections_stand_in_the_order_of_the_file() -> None:
    headings = [line for line in page().splitlines() if line.startswith("## `")]
    sections = ["source", "kafka", "connect", "views", "events", "patterns", "streams", "followers", "alerts"]
    assert headings == [f"## `{section}`" for section in sections]
    assert list(Config.model_fields) == ["name", *sections]


@pytest.mark.parametrize(
    "model", [*MODELS, *VIEWS, *STREAMS, StepConfig, *STORES], ids=lambda model: f"{model.__module__}.{model.__name__}"
)
def test_every_key_says_what_it_means(model: type[Model]) -> None:
    for name, field in written_fields(model).items():
        assert field.description, name
        assert f"`{name}`" in page()


def test_the_examples_make_one_file_that_names_every_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_DSN", "postgresql://db/shop")
    monkeypatch.setenv("ALERT_URL", "https://alerts.example/hook")
    monkeypatch.setenv("SHOP_ADMIN_DSN", "postgresql://owner@db/shop")
    files = Certificates(tmp_path)
    for name in ("KAFKA_PASSWORD", "CONNECT_PASSWORD", "SEARCH_TOKEN", "ALERT_TOKEN"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("KAFKA_CA", files.ca.read_text())
    monkeypatch.setenv("KAFKA_CERTIFICATE", str(files.client))
    monkeypatch.setenv("KAFKA_KEY", str(files.encrypted_key))
    monkeypatch.setenv("KAFKA_KEY_PASSWORD", KEY_PASSWORD)
    text = "".join(block.text for block in blocks(PAGE) if block.kind == "yaml")
    config = load_text(tmp_path, text)
    assert config.kafka.security is not None
    assert config.alerts is not None
    parts: list[Model] = [
        config,
        config.source,
        config.source.tables["public.customers"],
        config.kafka,
        config.kafka.security,
        config.connect,
        config.alerts,
    ]
    for part, model in zip(parts, MODELS, strict=True):
        otherwise = BY_TOKEN if model is KafkaSecurity else ()
        assert part.model_fields_set == set(model.model_fields) - set(otherwise)
    events = config.events["clicks"]
    assert events.overload is not None
    of_streams = (config.streams["page_minute"], config.patterns["left_alone"])
    found = (events, events.time, events.late, events.overload, *of_streams)
    for part, model in zip(found, STREAMS, strict=True):
        assert part.model_fields_set == set(model.model_fields) - set(CAPTURED)
    steps = [step.model_fields_set for step in config.patterns["left_alone"].steps]
    assert set[str]().union(*steps) == set(StepConfig.model_fields)
    assert events.lookups["product"].model_fields_set == set(LookupConfig.model_fields)
    captured = {name for each in config.events.values() for name in each.model_fields_set}
    assert captured >= set(CAPTURED)
    order = config.views["order"]
    shown: list[tuple[type[Model], list[Model]]] = [
        (ViewConfig, [*config.views.values()]),
        (OneConfig, [*order.one.values()]),
        (ManyConfig, [*order.many.values()]),
    ]
    for a_model, views in shown:
        assert set[str]().union(*(view.model_fields_set for view in views)) == set(a_model.model_fields)
    for kind in sinks.kinds():
        follower = config.followers[f"product-{kind}"]
        assert set(follower.sink) == set(sinks.config_model(kind).model_fields)
        assert follower.keep == "7d"
