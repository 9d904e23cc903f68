"""The text that `init` writes: names made for it, secrets seen by their names, YAML that gives every name back."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.proposal.spelling import key, shown, slug, value
from connectors.postgres.init import looks_secret
from driftless.config_file.yaml import YamlFile

identifiers = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12)


@pytest.mark.parametrize(
    "column",
    ["password", "password_hash", "PasswordHash", "userToken", "api_key", "apiKey", "APIKey", "SSN", "pass.word"],
)
def test_a_column_that_looks_secret(column: str) -> None:
    assert looks_secret(column)


@pytest.mark.parametrize("column", ["compass", "hashtag", "key", "name", "tokenizer", "salted_butter", "card", "api"])
def test_a_column_that_does_not_look_secret(column: str) -> None:
    assert not looks_secret(column)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("Order Lines", "order_lines"),
        ("OrderLines", "order_lines"),
        ("Größe", "groe"),
        ("таблица", "table"),
        ("2024_orders", "table_2024_orders"),
        ("__x__", "x"),
        ("a" * 60, "a" * 40),
    ],
)
def test_a_view_is_named_after_its_table(name: str, made: str) -> None:
    assert slug(name) == made


@given(
    st.lists(identifiers | st.sampled_from(["null", "yes", "${A}", "$${", "a: b", "- a", "#", "1e5", "~"]), max_size=4)
)
def test_every_name_comes_back_from_yaml(wanted: list[str]) -> None:
    lines = [f"{number} {name}" for number, name in enumerate(wanted)]
    text = "keys:\n" + "".join(f"  {key(line)}: x\n" for line in lines) if lines else "keys: {}\n"
    text += "values:\n" + "".join(f"  - {value(name)}\n" for name in wanted) if wanted else "values: []\n"
    text += "".join(f"# {shown(name)}\n" for name in wanted)
    with TemporaryDirectory() as folder:
        path = Path(folder, "sync.yaml")
        path.write_text(text, encoding="utf-8")
        file = YamlFile(path)
    assert file.problems == []
    assert file.data == {"keys": dict.fromkeys(lines, "x"), "values": wanted}


@given(identifiers)
def test_a_slug_is_a_name(name: str) -> None:
    assert re.fullmatch("[a-z][a-z0-9_]{0,39}", slug(name))
