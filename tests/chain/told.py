"""What the control topic holds, read by itself: it takes a moment, where a command takes seconds."""

from __future__ import annotations

import json
from typing import Any

from tests.pipeline import Pipeline


def latest(pipeline: Pipeline) -> dict[bytes, bytes]:
    """Key -> newest record."""
    found: dict[bytes, bytes] = {}
    for key, value in pipeline.records("control"):
        found.pop(key or b"", None)
        if value is not None:
            found[key or b""] = value
    return found


def standings(pipeline: Pipeline, follower: str) -> dict[int, dict[str, Any]]:
    """Generation -> where it stands, as its runner says."""
    start = f"follower/{follower}/".encode()
    facts = latest(pipeline).items()
    return {int(key.removeprefix(start)): json.loads(value) for key, value in facts if key.startswith(start)}
