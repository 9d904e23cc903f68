"""How a document is kept under its name in Redis: as JSON text, or as a hash with a field for each column."""

from __future__ import annotations

from collections.abc import Iterator
from json import JSONDecoder
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NoReturn, Protocol

import orjson
import pyarrow as pa

from driftless.sink import Rejected

Shape = list[str]


class Format(Protocol):
    """What the rest of the sink need not know about the form of a document."""

    @property
    def name(self) -> str:
        """What the scripts are told."""

    def pack(self, writes: pa.RecordBatch) -> tuple[pa.RecordBatch, tuple[Rejected, ...]]:
        """The writes as `cas.lua` takes them, and those that this form cannot show."""

    def text(self, found: Any, about: str) -> str:
        """The JSON text of a document as `read.lua` gives it, with what was kept about it beside its version."""


class JsonText:
    """`GET` gives the document's text, byte by byte as it was given to us."""

    name = "json"

    def pack(self, writes: pa.RecordBatch) -> tuple[pa.RecordBatch, tuple[Rejected, ...]]:
        return writes, ()

    def text(self, found: Any, about: str) -> str:  # noqa: ARG002
        return str(found, "utf-8", "replace")


class HashOfColumns:
    """`HGETALL` gives a field for each column: texts as they are, everything else as its JSON text (`12.50`, `true`,
    `[1,2]`, `{"a":1}`), and no field for null, so that `HGET` answers nil. A document of nothing but nulls has one
    field without a name, since a hash cannot be empty.

    So a field does not tell the text `12` from the number. What each was is kept beside the version, as the document's
    shape: for each column a letter (`t` text, `j` other JSON, `n` null) and the name. With it the document is read back
    as it was, but for the spaces between tokens and for how a text was escaped.

    Documents are taken apart in Python, at some 10 microseconds each.
    """

    name = "hash"

    def pack(self, writes: pa.RecordBatch) -> tuple[pa.RecordBatch, tuple[Rejected, ...]]:
        fields: list[str | None] = []
        shapes: list[str | None] = []
        kept: list[int] = []
        refused = []
        for place, document in enumerate(writes.column("document").to_pylist()):
            try:
                flat, shape = ([], []) if document is None else take_apart(document)
            except _Unfit as unfit:
                key, version = (writes.column(name)[place].as_py() for name in ("key", "version"))
                refused.append(Rejected(key, version, str(unfit)))
                continue
            kept.append(place)
            fields.append(None if document is None else orjson.dumps(flat).decode())
            shapes.append("" if document is None else orjson.dumps(shape).decode())
        if refused:
            writes = writes.take(pa.array(kept, pa.int64()))
        columns = {"key": writes.column("key"), "version": writes.column("version")}
        columns |= {"document": pa.array(fields, pa.string()), "shape": pa.array(shapes, pa.string())}
        return pa.record_batch(columns), tuple(refused)

    def text(self, found: Any, about: str) -> str:
        fields = dict(zip(found[::2], found[1::2], strict=True))
        shape = orjson.loads(about) if about else []
        if not (isinstance(shape, list) and all(isinstance(entry, str) and entry for entry in shape)):
            raise ValueError("no shape")
        return put_together(fields, shape)


class _Unfit(Exception):
    """A document that cannot be a hash; says why, without values."""


def take_apart(document: str) -> tuple[list[str], Shape]:
    """Fields and values in turn, and the document's shape."""
    flat: list[str] = []
    shape: Shape = []
    try:
        for name, raw, value in _members(document):
            name.encode()
            if raw == "null":
                shape.append("n" + name)
            elif raw[0] == '"' and _has_bytes(value):
                shape.append("t" + name)
                flat += (name, value)
            else:
                shape.append("j" + name)
                flat += (name, raw)
    except (ValueError, IndexError) as exc:
        raise _Unfit("the document is not a JSON object, so it cannot be a hash") from exc
    except RecursionError as exc:
        raise _Unfit("the document is nested too deeply to be taken apart into a hash") from exc
    if len({entry[1:] for entry in shape}) < len(shape):
        raise _Unfit("a field stands twice in the document, so it cannot be a hash")
    return flat or ["", ""], shape


def put_together(found: dict[bytes, bytes], shape: Shape) -> str:
    """The document's JSON text. What others changed shows: a field taken away is missing, one added is a text."""
    fields = {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in found.items()}
    if all(entry[0] == "n" for entry in shape) and fields.get("") == "":
        del fields[""]
    parts = []
    for entry in shape:
        kind, name = entry[0], entry[1:]
        value = fields.pop(name, None)
        if value is not None:
            parts.append((name, value if kind == "j" and _is_json(value) else orjson.dumps(value).decode()))
        elif kind == "n":
            parts.append((name, "null"))
    parts += [(name, orjson.dumps(value).decode()) for name, value in fields.items()]
    return "{" + ",".join(f"{orjson.dumps(name).decode()}:{value}" for name, value in parts) + "}"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


# Numbers stay text: as numbers they would lose digits, and Python refuses to read those of more than 4300.
_DECODER = JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)


def _members(text: str) -> Iterator[tuple[str, str, Any]]:
    """Name, text of the value, and value with numbers as text, of each member of an object. Raises for all else."""
    scan: Any = _DECODER.scan_once  # type: ignore[attr-defined]
    at = _skip(text, 0)
    _expect(text, at, "{")
    at = _skip(text, at + 1)
    more = text[at] != "}"
    while more:
        _expect(text, at, '"')
        name, at = scanstring(text, at + 1)
        at = _skip(text, at)
        _expect(text, at, ":")
        at = _skip(text, at + 1)
        start = at
        try:
            value, at = scan(text, at)
        except StopIteration as exc:  # inside a generator it would mean something else
            raise ValueError("no value") from exc
        yield name, text[start:at], value
        at = _skip(text, at)
        more = text[at] == ","
        if more:
            at = _skip(text, at + 1)
    _expect(text, at, "}")
    if _skip(text, at + 1) != len(text):
        raise ValueError("something follows")


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\n\r":
        at += 1
    return at


def _expect(text: str, at: int, char: str) -> None:
    if text[at] != char:
        raise ValueError(char)


def _has_bytes(text: str) -> bool:
    # Half of a surrogate pair can be written in JSON, as an escape, and nowhere else.
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_json(text: str) -> bool:
    try:
        _DECODER.decode(text)
    except (ValueError, RecursionError):
        return False
    return True
