"""Why a record is left out of what a stream computes."""

from __future__ import annotations

REASON = "_reason"
"""The column that says so; null where it is not."""
LATE, TOO_LATE = "late", "too late"
"""It was received too late after it happened; so late that it corrects nothing either."""
INVALID = "invalid"
"""It is no JSON object of the declared columns, has no time, or is not of the connector where a table's log is read."""
CHANGED, DELETED = "changed", "deleted"
"""A row was updated, or deleted: what was counted of it stays counted."""
REPEATED = "repeated"
"""A snapshot has read a row that the log has already: no news, and not counted."""
COUNTED = {"late": LATE, "invalid": INVALID, "too_late": TOO_LATE, "changed": CHANGED, "deleted": DELETED}
"""What is counted: the name of the field in `status`, and the reason."""
