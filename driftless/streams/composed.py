"""The SQL of a stream that reads other streams: their SQL stands within it, so that all is one query over events."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from driftless.streams.spark_words import SqlWord, is_called_outermost, outermost, spark_words

OWN = "/* the stream's own SQL */"
"""Where the SQL begins that was written for the stream itself."""
TIME = "window_time"
"""A column that each row of a stream of windows has beside its own: when it was, for windows of windows."""
_WINDOW = "window"
_HIDDEN = "_its_window"


def composed_sql(name: str, streams: Mapping[str, str]) -> str:
    """What a stream computes, over events alone: as it is written where it reads no stream.

    `streams`: the SQL of all, by name. Raises ValueError, with a text for the operator, where streams read each other
    in a circle.
    """
    return _composed(name, streams, ())


def _composed(name: str, streams: Mapping[str, str], readers: tuple[str, ...]) -> str:
    readers = (*readers, name)
    own = streams[name]
    read = _streams_read(own, streams)
    for each in read:
        if each in readers:
            circle = " -> ".join(f"`{one}`" for one in (*readers[readers.index(each) :], each))
            raise ValueError(f"streams that read each other in a circle: {circle}")
    if not read:
        return own
    grouped = is_called_outermost(own, _WINDOW)
    parts = [
        f"{each} AS (\n{_as_source(_composed(each, streams, readers), streams, each, grouped=grouped)}\n)"
        for each in read
    ]
    words = spark_words(own)
    if _is(words[0], "with"):
        begin = words[0].start
        own = f"{own[:begin]}    {own[begin + len('with') :]}"
        return f"WITH {', '.join(parts)}, {OWN}\n{own}"
    return f"WITH {', '.join(parts)} {OWN}\n{own}"


def _streams_read(sql: str, streams: Mapping[str, str]) -> list[str]:
    """Those streams that stand in it after FROM or JOIN, unless it gives another meaning to the name itself."""
    words = spark_words(sql)
    named = {after.text.lower() for before, after in pairwise(words) if _is(before, "from") or _is(before, "join")}
    own = {word.text.lower() for word, *after in zip(words, words[1:], words[2:], strict=False) if _defines(*after)}
    return [name for name in streams if name in named - own]


def _as_source(sql: str, streams: Mapping[str, str], name: str, *, grouped: bool) -> str:
    """The rows of a stream as others read them: with TIME where they are of windows, and with their windows where who
    reads them does not group by windows of its own.
    """
    if not _has_windows(name, streams):
        return sql
    place = next(outermost(spark_words(sql), "select"), None)
    if place is None:
        return sql
    begin = place.start + len(place.text)
    shown = [] if grouped or _shows(sql, _WINDOW) else [f"{_HIDDEN} AS {_WINDOW}"]
    shown += [] if _shows(sql, TIME) else [f"window_time({_HIDDEN}) AS {TIME}"]
    inner = f"{sql[:begin]} {_WINDOW} AS {_HIDDEN}, {sql[begin:].lstrip()}"
    return f"SELECT {', '.join([*shown, f'* EXCEPT ({_HIDDEN})'])} FROM (\n{inner}\n)"


def _has_windows(name: str, streams: Mapping[str, str]) -> bool:
    """Whether each row of a stream is of one window: of its own, or of the stream whose rows it picks."""
    if is_called_outermost(streams[name], _WINDOW):
        return True
    if any(True for _ in outermost(spark_words(streams[name]), "group")):
        return False
    return any(_has_windows(each, streams) for each in _streams_read(streams[name], streams) if each != name)


def _shows(sql: str, column: str) -> bool:
    """Whether a column of the result seems to have that name."""
    words = spark_words(sql)
    places = [word.start for word in outermost(words, column)]
    return any(
        word.start in places and before.text.lower() in ("select", ",", "as") and after.text.lower() in (",", "from")
        for before, word, after in zip(words, words[1:], words[2:], strict=False)
    )


def _is(word: SqlWord, text: str) -> bool:
    return not word.quoted and word.text.lower() == text


def _defines(after: SqlWord, opening: SqlWord) -> bool:
    return _is(after, "as") and opening.text == "("
