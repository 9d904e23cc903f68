"""What `init` wrote, with what it only proposes, as the loader and `check` take it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sinks
from driftless.config.load import load
from driftless.config.models import Config
from driftless.views.resolve import CapturedTables, resolve
from driftless.views.tree import View


def uncommented(text: str) -> str:
    """With one `# ` less on every line that has one, as an editor takes it away from all that is marked."""
    head, views, rest = text.partition("\nviews:")
    return head + views + re.sub("^  # ", "  ", rest, flags=re.MULTILINE)


def loaded(folder: Path, text: str) -> Config:
    (folder / "sync.yaml").write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOP_DSN", "postgresql://localhost/shop")
        for name in ("KAFKA", "CONNECT_URL", "SEARCH_URL", "CACHE_URL"):
            patch.delenv(name, raising=False)
        return load(folder / "sync.yaml", {kind: sinks.config_model(kind) for kind in sinks.kinds()})


def trees(config: Config, facts: CapturedTables) -> list[View]:
    """Every view, as `check` resolves it."""
    found = []
    for name, view in config.views.items():
        tree, problems = resolve(name, view, facts)
        assert (problems, tree is None) == ([], False)
        found += [] if tree is None else [tree]
    return found
