"""Which `_id` a key has in OpenSearch."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sinks._arrow import length

MAX_ID_BYTES = 512
_HASHED = "sha256:"


def document_id(key: str) -> str:
    """The key's text; where that cannot be, `sha256:` and its SHA-256 in hexadecimal.

    Hashed are keys that are empty or longer than 512 bytes, and those that themselves begin with `sha256:`, so that no
    two keys meet.
    """
    text = key.encode()
    if 0 < len(text) <= MAX_ID_BYTES and not key.startswith(_HASHED):
        return key
    return _HASHED + sha256(text).hexdigest()


def document_ids(keys: Any) -> Any:
    """The same for a column of keys, without looking at each in Python where none is hashed."""
    sizes: Any = length(keys)
    fits = not len(keys) or (pc.min(sizes).as_py() > 0 and pc.max(sizes).as_py() <= MAX_ID_BYTES)
    if fits and not pc.any(pc.starts_with(keys, pattern=_HASHED)).as_py():
        return keys
    return pa.array([document_id(key) for key in keys.to_pylist()], pa.string())
