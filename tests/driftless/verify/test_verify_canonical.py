"""The canonical text of a JSON value: equal just where the independent comparer finds two values equal."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftless.verify.canonical import canonical
from tests.support.compare import parse, same

NUMBERS = st.one_of(
    st.integers(-(10**25), 10**25),
    st.integers(-20, 20),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-1000, max_value=1000),
    st.decimals(allow_nan=False, allow_infinity=False),
)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)


def write(value: Any, rng: random.Random) -> str:
    """One of the many texts of a value."""
    space = rng.choice(["", " ", "\n\t"])
    match value:
        case bool() | None:
            return json.dumps(value)
        case int() | Decimal():
            return _digits(Decimal(value), rng)
        case str():
            return json.dumps(value, ensure_ascii=rng.random() < 0.5)
        case list():
            return "[" + f",{space}".join(write(part, rng) for part in value) + space + "]"
    members = list(value.items())
    rng.shuffle(members)
    written = (f"{write(name, rng)}{space}:{space}{write(part, rng)}" for name, part in members)
    return "{" + space + f",{space}".join(written) + "}"


def _digits(number: Decimal, rng: random.Random) -> str:
    forms = [f"{number:E}".replace("E+", rng.choice(["e+", "E", "e"]))]
    if abs(number.adjusted()) < 40:
        plain = f"{number:f}"
        forms += [plain, plain + "0" * rng.randrange(3) if "." in plain else f"{plain}.{'0' * rng.randrange(1, 4)}"]
    return rng.choice(forms)


@given(VALUES, st.integers(0, 1 << 32))
def test_every_text_of_a_value_has_one_canonical_text(value: Any, seed: int) -> None:
    rng = random.Random(seed)
    left, right = write(value, rng), write(value, rng)
    assert same(parse(left), parse(right))
    assert canonical(left) == canonical(right)


@given(VALUES, VALUES, st.integers(0, 1 << 32))
def test_different_values_have_different_ones(one: Any, other: Any, seed: int) -> None:
    rng = random.Random(seed)
    left, right = write(one, rng), write(other, rng)
    assert (canonical(left) == canonical(right)) is same(parse(left), parse(right))


DEEP = "[" * 1200 + '1.50,{"a":0,"b":"é]"}' + "]" * 1200
"""Deeper than a parser of Python's goes."""


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("1.10", "1.1"),
        ("1", "1.0"),
        ("1E3", "1000"),
        ("-0.0", "0"),
        ("18446744073709551616", "18446744073709551616.0"),
        ("9" * 6000, "9" * 6000 + ".0"),
        ("1" + "0" * 5000, "1e5000"),
        ("1e-7", "0.00000010"),
        ('"\\u00e9"', '"é"'),
        ('{"b":[1.50],"a":1.00}', '{ "a": 1, "b": [1.5] }'),
        (DEEP, DEEP.replace(",", " , ").replace("1.50", "1.5")),
        (DEEP, DEEP.replace('"a":0,"b":"é]"', '"b":"\\u00e9]","a":7,"a":0')),
    ],
)
def test_the_same_value(left: str, right: str) -> None:
    assert canonical(left) == canonical(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("1", "true"),
        ('"1"', "1"),
        ('"1.5"', "1.5"),
        ("null", "false"),
        ('{"a": null}', "{}"),
        ("[1, 2]", "[2, 1]"),
        ("9007199254740993", "9007199254740992"),
        ("0.1", "0.1000000000000000055511151231257827"),
        ("12345678901234567890.10", "12345678901234567890.11"),
        ("1e-9999", "0"),
        (DEEP, DEEP.replace("1.50", "1.51")),
        (DEEP, DEEP.replace('"b"', '"c"')),
        (DEEP, f"[{DEEP}]"),
    ],
)
def test_another_value(left: str, right: str) -> None:
    assert canonical(left) != canonical(right)


@pytest.mark.parametrize("text", ["", "{", "NaN", '{"a": Infinity}', "1 2", "[" * 100_000])
def test_what_is_no_json_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        canonical(text)
