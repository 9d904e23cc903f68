"""For applications: wait until what was written can be read from followers."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from driftless.control.wait import Positions
from driftless.lsn import parse_lsn
from driftless.pipeline import chosen, control_of, load


class Waiter:
    """Reads your own writes: `wait` returns when followers have applied a position of the source.

    Keeps its connections between two waits. Not to be shared between threads.
    """

    def __init__(self, file: str | Path = "sync.yaml") -> None:
        """Raises ConfigError where the file is wrong, SourceMisconfigured where Kafka refuses the login, and
        SourceUnavailable where Postgres or Kafka cannot be reached.
        """
        from connectors.postgres.client import Postgres

        self._config = load(Path(file))
        self._source = Postgres(self._config.source.dsn)
        self._positions = Positions(control_of(self._config))

    def wait(self, lsn: str | None = None, *followers: str, timeout: float = 30.0) -> bool:
        """True once every commit at or before `lsn` can be read from these followers, or from all if none is named.

        `lsn` is what `pg_current_wal_lsn()` gave after the commit; without it, everything that is committed now.
        False after `timeout` seconds, or before that where a follower will not get there by itself: it has failed, is
        paused, or nobody has run it for 30 s.
        """
        from connectors.pipeline.token import emit_marker

        names = chosen(self._config, list(followers))
        target = self._source.lsn() if lsn is None else parse_lsn(lsn)
        return not self._positions.wait(names, target, timeout, lambda: emit_marker(self._source, self._config.name))

    def close(self) -> None:
        self._positions.close()
        self._source.close()

    def __enter__(self) -> Waiter:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
