"""docs/configuration.md, made of the models of sync.yaml: `make docs` writes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import sinks
from driftless.config.base import Model, written_fields
from driftless.config.kafka_security import BY_TOKEN, KafkaSecurity
from driftless.config.models import (
    FOLLOWER_FIELDS,
    AlertsConfig,
    Config,
    ConnectConfig,
    FollowerConfig,
    KafkaConfig,
    SourceConfig,
    SourceSsl,
    TableConfig,
)
from driftless.config.patterns import PatternConfig, StepConfig
from driftless.config.streams import (
    CAPTURED,
    LOOKUPS,
    EventsConfig,
    LateConfig,
    LookupConfig,
    OverloadConfig,
    StreamConfig,
    TimeConfig,
)
from driftless.config.view_fields import BetweenConfig
from driftless.config.views import AGGREGATES, ManyConfig, OneConfig, ViewConfig

PAGE = Path(__file__).parent.parent.parent / "docs" / "configuration.md"

_HEAD = """# Configuration

Made by `make docs` from the models of `sync.yaml`; do not edit. Every command takes the file with `-f`; `sync.yaml` is
the default. `driftless init` writes one for a database that exists ([init](init.md)).

The file is checked whole before anything starts. Unknown keys are refused. Every mistake is reported at once, with
its line:

```
sync.yaml:7: kafka.bootstap: unknown field; did you mean `bootstrap`?
sync.yaml:14: followers.product-search.view: there is no view `prduct`; did you mean `product`?
```

In a value, `${NAME}` is the environment variable `NAME`, `${NAME:-text}` is `text` where it is not set, `${file:PATH}`
is what is in a file, and `$${` is `${` itself. So no secret needs to stand here. Inside of `{ }` and `[ ]`, a value
with `{` in it stands in quotes: `{url: "${CACHE_URL}"}`.

| type | is written |
|---|---|
| text | `public.products`; in quotes where YAML would take it for something else: `"42"`, `"*"`, `"{id}"` |
| name | lower-case letters, digits, `_` and `-`, beginning with a letter, at most 48 |
| duration | a number and a unit: `500ms`, `30s`, `10m`, `1h`, `7d` |
| list | `[id, title]`, or one `- id` a line |
| mapping | `{id: id, called: name}`, or one `id: id` a line, indented |

The examples below make one file together.
"""


def page() -> str:
    """The text of the page."""
    return "\n".join((_HEAD, *_top(), *_source(), *_with("kafka", KafkaConfig, "security", KafkaSecurity),
                      *_with("connect", ConnectConfig, "source_ssl", SourceSsl),
                      *_views(), *_events(), *_patterns(), *_streams(), *_followers(), *_alerts(), ""))  # fmt: skip


def _top() -> Iterator[str]:
    yield "## The whole file\n"
    yield "```yaml\nname: " + _example(Config, "name") + "\n```\n"
    yield from _table(Config)


def _source() -> Iterator[str]:
    yield "\n## `source`\n"
    yield f"{SourceConfig.__doc__}\n"
    yield "```yaml\nsource:"
    yield from _lines(SourceConfig, "  ", leave_out=("tables",))
    yield "  tables:\n    public.customers:"
    yield from _lines(TableConfig, "      ")
    for table in (
        "products",
        "orders",
        "order_lines",
        "regions",
        "phones",
        "parcels",
        "tags",
        "order_tags",
        "stores",
        "staff",
        "outbox",
    ):
        yield f"    public.{table}: {{}}"
    yield "```\n"
    yield from _table(SourceConfig)
    yield "\n### A table of `source.tables`\n"
    yield f"{TableConfig.__doc__} `{{}}` takes every default.\n"
    yield from _table(TableConfig)


def _with(name: str, model: type[Model], part: str, inner: type[Model]) -> Iterator[str]:
    yield f"\n## `{name}`\n"
    yield f"{model.__doc__}\n"
    yield f"```yaml\n{name}:"
    yield from _lines(model, "  ", leave_out=(part,))
    yield f"  {part}:"
    yield from _lines(inner, "    ", leave_out=BY_TOKEN)
    if inner is KafkaSecurity:
        shown = ", ".join(f"{field}: {_example(inner, field)}" for field in BY_TOKEN)
        yield f"    # by token: {{protocol: SASL_SSL, mechanism: OAUTHBEARER, {shown}}}"
    yield "```\n"
    yield from _table(model)
    yield f"\n### `{name}.{part}`\n"
    yield f"{inner.__doc__}\n"
    yield from _table(inner)


_WAY = ("through", "to", "to_references")


def _views() -> Iterator[str]:
    yield "\n## `views`\n"
    yield f"{ViewConfig.__doc__} Each has a name of your own.\n"
    yield "```yaml\nviews:\n  product:"
    yield from _lines(ViewConfig, "    ", leave_out=(*_RELATIONS, "key"))
    yield "  customer:\n    root: public.customers"
    yield f"    key: email\n    columns: {_examples(ViewConfig, 'columns')[1]}"
    yield "  order:\n    root: public.orders\n    columns: [id, status]\n    one:\n      customer:"
    yield from _lines(OneConfig, "        ", leave_out=("value", *_WAY))
    yield "      seller:\n        table: public.customers\n        by: seller_id\n        value: name"
    yield "      store:\n        table: public.stores\n        through: [{table: public.staff, to: staff_id}]"
    yield "        to: store_number\n        to_references: number"
    yield "    many:\n      lines:"
    elsewhere = (
        "references",
        "through",
        "to",
        "to_references",
        "value",
        "first",
        "between",
        "ids",
        "ancestors",
        *AGGREGATES,
    )
    yield from _lines(ManyConfig, "        ", leave_out=elsewhere)
    yield "      tags:\n        table: public.tags\n        by: order_id\n        references: id"
    yield "        through: public.order_tags\n        to: tag_slug\n        to_references: slug"
    yield "        between: [added_at]"
    yield "      last:\n        table: public.order_lines\n        by: order_id\n        order_by: [line desc]"
    yield "        first: true\n      names:\n        table: public.tags\n        by: order_id\n        value: name"
    yield "      marks: {table: public.tags, ids: tag_ids, value: name}"
    yield "      path: {table: public.regions, by: region_id, ancestors: parent_id, value: name}"
    for name in AGGREGATES:
        told = f"table: public.order_lines, by: order_id, {name}: {_example(ManyConfig, name)}"
        yield f"      {name}_of_lines: {{{told}}}"
    yield f"    shards: {_example(ViewConfig, 'shards')}\n```\n"
    yield from _table(ViewConfig)
    yield "\n### A relation in `one`\n"
    yield f"{OneConfig.__doc__}\n"
    yield from _table(OneConfig)
    yield "\n### A relation in `many`\n"
    yield f"{ManyConfig.__doc__}\n"
    yield from _table(ManyConfig)
    yield "\n### A table in `through`\n"
    yield f"{BetweenConfig.__doc__}\n"
    yield from _table(BetweenConfig)


def _events() -> Iterator[str]:
    yield "\n## `events`\n"
    yield f"{EventsConfig.__doc__} Each has a name of your own, which is that of a table in the SQL of streams. It has "
    yield "lower-case letters, digits and `_`. [What a late event is, and when a window is final](streams.md).\n"
    yield "```yaml\nevents:\n  clicks:"
    yield from _lines(EventsConfig, "    ", leave_out=("time", *CAPTURED, *LOOKUPS))
    yield "    time:"
    yield from _lines(TimeConfig, "      ")
    yield "    with:\n      product:"
    yield from _lines(LookupConfig, "        ")
    for name, field in (("ordered", "table"), ("sent", "outbox")):
        columns = "" if field == "table" else "columns: {page: text, at: timestamptz}, "
        yield f"  {name}: {{{field}: {_example(EventsConfig, field)}, {columns}time: {{event: at}}}}"
    yield "```\n"
    yield from _table(EventsConfig)
    yield "\n### `time` of events\n"
    yield f"{TimeConfig.__doc__}\n"
    yield from _table(TimeConfig)
    yield "\n### `late` of events\n"
    yield f"{LateConfig.__doc__}\n"
    yield from _table(LateConfig)
    yield "\n### `overload` of events\n"
    yield f"{OverloadConfig.__doc__}\n"
    yield from _table(OverloadConfig)
    yield "\n### A table in `with` of events\n"
    yield f"{LookupConfig.__doc__}\n"
    yield from _table(LookupConfig)


def _patterns() -> Iterator[str]:
    yield "\n## `patterns`\n"
    yield f"{PatternConfig.__doc__} Each has a name of your own, as events have.\n"
    yield "```yaml\npatterns:\n  left_alone:"
    yield from _lines(PatternConfig, "    ")
    yield "```\n"
    yield from _table(PatternConfig)
    yield "\n### A step of a pattern\n"
    yield f"{StepConfig.__doc__}\n"
    yield from _table(StepConfig)


def _streams() -> Iterator[str]:
    yield "\n## `streams`\n"
    yield f"{StreamConfig.__doc__} Each has a name of your own, as events have. Followers name it as their `view`.\n"
    yield "```yaml\nstreams:\n  page_minute:"
    yield from _lines(StreamConfig, "    ")
    yield "```\n"
    yield from _table(StreamConfig)


_RELATIONS = ("one", "many", "shards")


def _followers() -> Iterator[str]:
    yield "\n## `followers`\n"
    yield f"{FollowerConfig.__doc__} Each has a name of your own.\n"
    yield "```yaml\nfollowers:"
    for kind in sinks.kinds():
        yield f"  product-{kind}:"
        yield from _lines(FollowerConfig, "    ")
        yield f"    {kind}:"
        yield from _lines(sinks.config_model(kind), "      ")
    yield "```\n"
    yield from _table(FollowerConfig)
    for kind in sinks.kinds():
        model = sinks.config_model(kind)
        yield f"\n### `{kind}` of a follower\n"
        yield f"{str(model.__doc__).strip()} [What is in it](stores.md#{kind}).\n"
        yield from _table(model)


def _alerts() -> Iterator[str]:
    yield "\n## `alerts`\n"
    yield f"{AlertsConfig.__doc__} [What is an alert, and what is posted](alerts.md).\n"
    yield "```yaml\nalerts:"
    yield from _lines(AlertsConfig, "  ")
    yield "```\n"
    yield from _table(AlertsConfig)


# -- one model ----------------------------------------------------------------------------------------------------


def _fields(model: type[Model]) -> list[str]:
    if model is FollowerConfig:
        return list(FOLLOWER_FIELDS)
    own = [name for name in model.model_fields if name in model.__annotations__]
    ordered = own + [name for name in model.model_fields if name not in own]
    return [model.model_fields[name].alias or name for name in ordered]


def _lines(model: type[Model], indent: str, leave_out: tuple[str, ...] = ()) -> Iterator[str]:
    for name in _fields(model):
        if name not in leave_out:
            yield f"{indent}{name}: {_example(model, name)}"


def _table(model: type[Model]) -> Iterator[str]:
    schema = model.model_json_schema()
    # That of a model that holds itself is among the definitions.
    schema = schema["$defs"][model.__name__] if "properties" not in schema else schema
    yield "| key | type | default | meaning |\n|---|---|---|---|"
    for name in _fields(model):
        field = written_fields(model)[name]
        shown = f"[`{name}`](#{name})" if model is Config and name != "name" else f"`{name}`"
        default = "required" if field.is_required() else _default(field.get_default(call_default_factory=True))
        meaning = str(field.description).replace("|", "\\|")
        yield f"| {shown} | {_type(schema['properties'][name])} | {default} | {meaning} |"


def _example(model: type[Model], name: str) -> str:
    return _examples(model, name)[0]


def _examples(model: type[Model], name: str) -> list[str]:
    examples = written_fields(model)[name].examples
    assert examples, f"{model.__name__}.{name} has no example"
    return [str(example) for example in examples]


def _default(value: object) -> str:
    if value in (None, (), {}):
        return "none"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _type(schema: Mapping[str, Any]) -> str:
    """A JSON schema in words."""
    if "anyOf" in schema or "oneOf" in schema:
        words = [_type(part) for part in schema.get("anyOf") or schema["oneOf"] if part.get("type") != "null"]
        return " or ".join(dict.fromkeys(words))
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    words_of = {"integer": "whole number", "number": "number", "array": "list", "string": "text", "boolean": "boolean"}
    word = str(schema.get("format") or words_of.get(str(schema.get("type")), "mapping"))
    low, above, high = (schema.get(limit) for limit in ("minimum", "exclusiveMinimum", "maximum"))
    if low is not None and high is not None:
        return f"{word}, {low:g} to {high:g}"
    if high is not None:
        return f"{word}, more than {above:g}, at most {high:g}"
    return f"{word}, at least {low:g}" if low is not None else word


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
