"""sync.yaml: mistakes are reported all at once, with line and suggestion."""

from __future__ import annotations

from pathlib import Path

import pytest

import sinks
from driftless.config.duration import milliseconds
from driftless.config.load import load
from driftless.config.models import Config
from driftless.errors import ConfigError

GOOD = """\
name: shop
source:
  dsn: ${DRIFTLESS_TEST_DSN:-postgresql://localhost/shop}
  tables:
    customers: {exclude: [password_hash]}
    public.products:
kafka: {bootstrap: "127.0.0.1:59092"}
connect: {url: "http://127.0.0.1:58083"}
views:
  product: {root: products}
  customer: {root: public.customers, columns: {id: id, called: name}}
followers:
  product-search:
    view: product
    opensearch: {url: "http://127.0.0.1:59200", index: products}
  product-cache:
    view: product
    redis: {url: "redis://127.0.0.1:56379/0", key: "product:{id}"}
"""


def load_text(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "sync.yaml"
    path.write_text(text)
    return load(path, {kind: sinks.config_model(kind) for kind in sinks.kinds()})


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_text(tmp_path, text)
    return [problem.removeprefix(f"{tmp_path}/") for problem in caught.value.problems]


def test_the_whole_file_is_read(tmp_path: Path) -> None:
    config = load_text(tmp_path, GOOD)
    assert config.source.dsn == "postgresql://localhost/shop"
    assert list(config.source.tables) == ["public.customers", "public.products"]
    assert config.source.tables["public.customers"].exclude == ("password_hash",)
    assert config.kafka.partitions == 4
    assert config.table_of("product-cache") == "public.products"
    assert config.views["customer"].fields(("id", "name")) == {"id": "id", "called": "name"}
    assert config.views["product"].fields(("id", "title")) == {"id": "id", "title": "title"}
    assert config.followers["product-search"].kind == "opensearch"


def test_all_mistakes_are_reported_at_once_with_line_and_suggestion(tmp_path: Path) -> None:
    text = (
        GOOD.replace("bootstrap:", "bootstap:")
        .replace("index: products", "indx: products")
        .replace("exclude:", "excude:")
        .replace("root: products", "root: product")
        .replace("    redis:", "    rediss:")
    )
    assert problems(tmp_path, text) == [
        "sync.yaml:5: source.tables.customers.excude: unknown field; did you mean `exclude`?",
        "sync.yaml:7: kafka.bootstap: unknown field; did you mean `bootstrap`?",
        "sync.yaml:10: views.product.root: public.product is not under source.tables; did you mean `public.products`?",
        "sync.yaml:15: followers.product-search.opensearch.indx: unknown field; did you mean `index`?",
        "sync.yaml:18: followers.product-cache.rediss: unknown kind of store; did you mean `redis`?",
    ]


def test_names_that_lead_nowhere_are_reported_with_the_nearest(tmp_path: Path) -> None:
    text = GOOD.replace("root: products", "root: produts").replace(
        "view: product\n    redis", "view: prodct\n    redis"
    )
    assert problems(tmp_path, text) == [
        "sync.yaml:10: views.product.root: public.produts is not under source.tables; did you mean `public.products`?",
        "sync.yaml:17: followers.product-cache.view: there is no view `prodct`; did you mean `product`?",
    ]


def test_a_variable_that_is_not_set_is_reported_beside_other_mistakes(tmp_path: Path) -> None:
    text = GOOD.replace("${DRIFTLESS_TEST_DSN:-postgresql://localhost/shop}", "${DRIFTLESS_SURELY_NOT_SET}")
    assert problems(tmp_path, text.replace("name: shop", "name: Shop")) == [
        "sync.yaml:1: name: use lower-case letters, digits, `_` and `-`, begin with a letter, at most 48; "
        "did you mean `shop`?",
        "sync.yaml:3: source.dsn: the environment variable DRIFTLESS_SURELY_NOT_SET is not set: "
        "`export DRIFTLESS_SURELY_NOT_SET=...`",
    ]


def test_a_secret_is_read_from_a_file_and_never_from_a_message(tmp_path: Path) -> None:
    secret = tmp_path / "dsn"
    secret.write_text("postgresql://u:hunter2@h/db\n")
    text = GOOD.replace("${DRIFTLESS_TEST_DSN:-postgresql://localhost/shop}", f"${{file:{secret}}}")
    assert load_text(tmp_path, text).source.dsn == "postgresql://u:hunter2@h/db"
    wrong = problems(tmp_path, text + "extra: 1\n")
    assert wrong == ["sync.yaml:19: extra: unknown field; known: " + wrong[0].split("known: ")[1]]
    assert "hunter2" not in "".join(wrong)


def test_what_this_version_cannot_do_says_so(tmp_path: Path) -> None:
    events = "events:\n  orders:\n    message: cart\n    columns: {at: timestamptz}\n    time: {event: at}\n"
    assert "sync.yaml:21: events.orders.message: this version cannot do that yet" in problems(tmp_path, GOOD + events)


@pytest.mark.parametrize(
    ("text", "line"), [("name: [unclosed\nsource: 1\n", 1), ("- 1\n- 2\n", 1), ("name: }\n", 1), ("? [a]\n: b\n", 1)]
)
def test_a_file_that_is_no_configuration_names_the_line(tmp_path: Path, text: str, line: int) -> None:
    assert problems(tmp_path, text)[0].startswith(f"sync.yaml:{line}: ")


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: no such file"):
        load(Path("nowhere.yaml"), {})


def test_what_only_the_servers_can_tell_is_told_with_its_line_too(tmp_path: Path) -> None:
    config = load_text(tmp_path, GOOD)
    assert config.at(("source", "tables", "public.customers", "exclude", 0), "gone") == (
        f"{tmp_path}/sync.yaml:5: source.tables.public.customers.exclude.0: gone"
    )
    assert config.at(("followers", "product-cache", "redis", "key"), "wrong").startswith(f"{tmp_path}/sync.yaml:18: ")


def test_durations() -> None:
    assert [milliseconds(text) for text in ("5ms", "2s", "3m", "4h", "7d")] == [5, 2000, 180000, 14400000, 604800000]
