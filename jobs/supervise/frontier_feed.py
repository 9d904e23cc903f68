"""Where a generation hears how far its log is: from the source's messages, or from whoever writes the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from driftless.facts.epochs import TopicLog
from driftless.facts.followed_log import FollowedLog
from driftless.facts.state import State
from driftless.marker import Marker
from jobs.log.frontier import Frontier, FrontierReader, Pending


class FrontierFeed:
    """Fills `pending` with the frontiers of one log, until it is left."""

    def __init__(self, followed: FollowedLog, log: TopicLog, frontiers: FrontierReader) -> None:
        self._followed = followed
        self._frontiers = frontiers
        self._newest = 0
        self.pending = Pending(log.topic, log.partitions) if followed.ours else frontiers.follow(log)

    def hear(self, state: State) -> None:
        """Take in what the writers of the log say in the control topic; the source's messages come by themselves."""
        frontier = frontier_of(self._followed.progress(state), self.pending.topic)
        if frontier is not None and frontier.marker.lsn > self._newest:
            self._newest = frontier.marker.lsn
            self.pending.add(frontier)

    def leave(self) -> None:
        if not self._followed.ours:
            self._frontiers.leave(self.pending)


def frontier_of(shards: Sequence[Mapping[str, Any]], topic: str) -> Frontier | None:
    """The newest position of the source of which every shard has published everything; None where there is none yet.

    It counts as awaited: the writers do not say whether somebody waits. `shards`: what each says of itself. What one
    published later lies behind its own ends, so the furthest of them bound all of it.
    """
    if not shards or any(shard.get("marker") is None for shard in shards):
        return None
    ends: dict[int, int] = {}
    for shard in shards:
        for partition, offset in shard["ends"].items():
            ends[int(partition)] = max(offset, ends.get(int(partition), 0))
    lsn, at = min(shard["marker"] for shard in shards)
    return Frontier(Marker(lsn, at, awaited=True), {topic: ends})
