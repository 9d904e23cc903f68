"""A mapping that does not name a field of the documents, or names one that they do not have, is told by a note."""

from __future__ import annotations

from typing import Any

import pytest

from sinks import config_model

DOCUMENT = {"id": "int8", "name": "text", "lines": [{"qty": "int4", "product": {"title": "text"}}], "tags": ["text"]}
LONG, TEXT = {"type": "long"}, {"type": "text"}
LINES = {"properties": {"qty": LONG, "product": {"properties": {"title": TEXT}}}}
WHOLE = {"id": LONG, "name": TEXT, "lines": LINES, "tags": TEXT}


def told(mapping: dict[str, Any]) -> list[tuple[str, str]]:
    model = config_model("opensearch").model_validate({"url": "http://h:1", "index": "i", "mapping": mapping})
    return list(model.notes(DOCUMENT))


@pytest.mark.parametrize(
    "mapping",
    [
        {},
        {"dynamic": False},
        {"dynamic": False, "properties": WHOLE},
        {"dynamic": "strict", "properties": WHOLE},
        {"dynamic": True, "properties": {"id": LONG}},
        {"properties": {"id": LONG}},
        {"dynamic": False, "properties": {**WHOLE, "lines": {"type": "object", "enabled": False}}},
        {"dynamic": False, "properties": {**WHOLE, "lines": {"type": "flat_object"}}},
        {"dynamic": False, "properties": {**WHOLE, "lines": {"dynamic": True, "properties": {"qty": LONG}}}},
        {"dynamic": False, "properties": {**WHOLE, "everything": TEXT, "name": {**TEXT, "copy_to": "everything"}}},
        {"dynamic": False, "properties": {**WHOLE, "title": {"type": "alias", "path": "name"}}},
    ],
)
def test_what_fits_or_is_meant_is_not_told(mapping: dict[str, Any]) -> None:
    assert told(mapping) == []


def test_a_field_that_is_not_named_is_kept_and_not_searchable() -> None:
    product = {"properties": {"qty": LONG, "product": {"properties": {"sku": TEXT}}}}
    (note,) = told({"dynamic": False, "properties": {"id": LONG, "lines": product, "tags": TEXT}})[:1]
    assert note == (
        "mapping",
        "does not name name, lines.product.title: with `dynamic: false` that is kept, and cannot be searched; "
        "add it under `properties`, or name it with `enabled: false` or `index: false`",
    )


def test_a_strict_mapping_refuses_what_it_does_not_name() -> None:
    assert told({"dynamic": "strict", "properties": {**WHOLE, "lines": {"properties": {"product": TEXT}}}}) == [
        (
            "mapping",
            "does not name lines.qty: with `dynamic: strict` a document that has it is quarantined; "
            "add it under `properties`",
        )
    ]


def test_a_field_that_is_gone_is_told() -> None:
    lines = {"properties": {**LINES["properties"], "price": LONG}}
    assert told({"dynamic": False, "properties": {**WHOLE, "surname": TEXT, "lines": lines}}) == [
        ("mapping", "names lines.price, surname, which no document has: take it out, or show the column in the view")
    ]


def test_of_many_the_first_are_named() -> None:
    (note,) = told({"dynamic": False, "properties": {**WHOLE, **{f"f{n}": TEXT for n in range(12)}}})
    assert note[1].startswith("names f0, f1, f2, f3, f4, f5, f6, f7, f8, f9 and 2 more, which no document has")


def test_a_cache_has_nothing_to_say() -> None:
    model = config_model("redis").model_validate({"url": "redis://h:1", "key": "a:{id}"})
    assert list(model.notes(DOCUMENT)) == []
