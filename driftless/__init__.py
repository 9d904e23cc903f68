"""The domain of driftless: changes, keys, versions, views, sinks, configuration, errors.

For applications: `from driftless import Waiter`, which loads neither Spark nor what the command needs to print.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from driftless.client import Waiter

__all__ = ["Waiter"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Only who asks for it loads what it needs."""
    if name == "Waiter":
        from driftless.client import Waiter

        return Waiter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
