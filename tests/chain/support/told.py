"""What the control topic holds, read by itself: it takes a moment, where a command takes seconds."""

from __future__ import annotations

import json
from typing import Any

from tests.support.pipeline import Pipeline


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
    return {int(number): fact for number, fact in _facts(pipeline, f"follower/{follower}/").items()}


def answers(pipeline: Pipeline, follower: str) -> dict[str, dict[str, Any]]:
    """Request, as `rebuild/ID` -> what the runner answered."""
    return _facts(pipeline, f"answer/{follower}/")


def _facts(pipeline: Pipeline, start: str) -> dict[str, dict[str, Any]]:
    """What follows `start` in a key -> the newest fact under it."""
    begin = start.encode()
    found = latest(pipeline).items()
    return {key.removeprefix(begin).decode(): json.loads(value) for key, value in found if key.startswith(begin)}
