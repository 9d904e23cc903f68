"""Whether a run that ends when all is applied has anything left to wait for."""

from __future__ import annotations

from collections.abc import Sequence

from driftless.errors import SourceError, SyncError
from driftless.facts.builds import standings
from driftless.facts.state import State
from driftless.facts.streams import stream_progress_key
from jobs.follow.progress import Progress
from jobs.streams.progress import StreamProgress
from jobs.views.progress import BuildProgress

Standing = Progress | BuildProgress | StreamProgress


def reached(progress: Standing, all_: Sequence[Standing], state: State, lsn: int | None) -> bool:
    """Whether this one has come as far as it can: to the log's end, or it has failed, or the view has that it reads.

    `all_`: of what this process runs. `lsn`: a position of the source that must have been applied, too.
    """
    if progress.error is not None or progress.state == "paused" or getattr(progress, "stuck", False):
        return True
    if progress.lag == 0 and failed_view(progress, all_, state) is not None:
        return True
    return (
        progress.state == "live"
        and progress.lag == 0
        and not getattr(progress, "dirty", 0)
        and (lsn is None or progress.lsn >= lsn)
    )


def is_replaced(progress: Standing, all_: Sequence[Standing]) -> bool:
    """Whether readers see a newer generation of the follower, or a newer build of the view is whole: what has ended
    this one is mended.
    """

    def replaces(other: Standing) -> bool:
        if isinstance(progress, StreamProgress):
            return (
                isinstance(other, StreamProgress)
                and other.build.stream == progress.build.stream
                and other.build.number > progress.build.number
                and other.frontier is not None
            )
        if isinstance(progress, BuildProgress):
            if not isinstance(other, BuildProgress) or other.build.view.name != progress.build.view.name:
                return False
            return other.build.number > progress.build.number and other.frontier is not None
        if not isinstance(other, Progress) or other.name != progress.name:
            return False
        return other.generation > progress.generation and other.live

    return any(other.error is None and replaces(other) for other in all_)


def failed_view(progress: Standing, all_: Sequence[Standing], state: State) -> SyncError | None:
    """What has ended the view whose log a follower reads, in this process or in another."""
    if isinstance(progress, BuildProgress | StreamProgress):
        return None
    generation = state.get(f"generation/{progress.name}/{progress.generation}") or {}
    place = progress.view, int(str(generation.get("build", 0)))
    if number := int(str(generation.get("stream", 0))):
        return _failed_stream(progress.view, number, all_, state)
    if not place[1]:
        return None
    builds = [p for p in all_ if isinstance(p, BuildProgress) and (p.build.view.name, p.build.number) == place]
    if builds:
        return next((p.error for p in builds if p.error is not None), None)
    for shard in standings(state, *place):
        if shard.get("state") == "failed":
            return SourceError(f"the view {place[0]} has failed: {shard.get('trouble')}", hint="see `driftless status`")
    return None


def _failed_stream(stream: str, number: int, all_: Sequence[Standing], state: State) -> SyncError | None:
    for p in all_:
        if isinstance(p, StreamProgress) and (p.build.stream, p.build.number) == (stream, number):
            return p.error
    fact = state.get(stream_progress_key(stream, number)) or {}
    if fact.get("state") != "failed":
        return None
    return SourceError(f"the stream {stream} has failed: {fact.get('trouble')}", hint="see `driftless status`")
