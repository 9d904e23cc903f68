"""What every client of an HTTP server has to see to: an answer that was cut off may look like a short one."""

from __future__ import annotations

from collections.abc import Mapping

EMPTY = frozenset({204, 304})


def is_whole(status: int, headers: Mapping[str, str]) -> bool:
    """Whether an answer says where it ends, so that the client has seen it end there.

    Cut off among its headers it seems to end with its connection (RFC 9112, 6.3 and 8), and to have no body.
    """
    length, coding = headers.get("content-length", ""), headers.get("transfer-encoding", "")
    return status in EMPTY or length.isdecimal() or coding.lower() == "chunked"
