"""Read each stage of a subject into a spool: the source at a position, the log, and a follower's documents."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from driftless.errors import NoDocument
from driftless.kafka.client import Kafka, Offsets
from driftless.verify.beyond import Beyond
from driftless.verify.spool import ABSENT, ITEMS, LOG, SOURCE, Spool, hash_documents, hashes, save
from driftless.verify.steps import RateLimiter, Step
from driftless.verify.subject import UNREADABLE, PinnedSource, Subject, Target
from driftless.version import MAX_OFFSET


def read_source(
    subject: Subject, moment: PinnedSource, path: Path, pace: RateLimiter, step: Step, keys: Sequence[str] | None = None
) -> tuple[Spool, dict[str, str]]:
    """What the source shows, of these keys alone, where they are given; and which documents it cannot show: key -> the
    place of the value.
    """
    spool, beyond = Spool(path, SOURCE), Beyond(moment)
    for page in _pages(subject, moment, keys, beyond):
        if page is None:
            spool, step.done = Spool(path.with_name(f"{path.name}-again"), SOURCE), 0
            continue
        names = [key for key, _ in page]
        canon = hash_documents(text for _, text in page)
        spool.append({"key": names, "hash": hashes(names), "canon": canon})
        step.done += len(page)
        pace(len(page))
    step.end()
    spool.close()
    return spool, beyond.found


def _pages(
    subject: Subject, moment: PinnedSource, keys: Sequence[str] | None, beyond: Beyond
) -> Iterator[list[tuple[str, str]] | None]:
    """Pages of documents. None: what was given so far is to be forgotten, since it is read again from the start."""
    try:
        yield from moment.documents(subject.statement, keys)
    except NoDocument:
        if not subject.careful:
            raise
        yield None
        for page in moment.documents(subject.careful, keys, aside=True):
            yield [(key, beyond.look(key, text)) for key, text in page]


class LogSpool:
    """A log from its floor on; read further with every look. `aliases`: what stores have for keys they cannot hold."""

    def __init__(self, subject: Subject, kafka: Kafka, path: Path, step: Step) -> None:
        """Goes on with what another process has left at the path, where that is of the same log."""
        self._path = path.with_name(f"{path.name}.json")
        kept = self._kept(subject)
        self.spool = Spool(path, LOG, kept.get("parts", 0), kept.get("rows", 0))
        self.at: Offsets = {int(p): at for p, at in kept.get("at", subject.log.floor).items()}
        self.aliases: dict[str, str] = kept.get("aliases", {})
        self.unreadable: dict[str, str] = kept.get("unreadable", {})
        """Keys whose newest record is none that a document can be made of, with the reason."""
        self._subject = subject
        self._kafka = kafka
        self._step = step
        self._step.done = self._step.total = self.spool.rows

    def _kept(self, subject: Subject) -> dict[str, Any]:
        try:
            kept: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return kept if kept["log"] == _identity(subject) else {}

    def _keep(self) -> None:
        """What has been read so far, so that another process can go on from there."""
        self.spool.close()
        state = {"parts": self.spool.parts, "rows": self.spool.rows, "at": self.at, "aliases": self.aliases}
        state["unreadable"] = self.unreadable
        save(self._path, {"log": _identity(self._subject), **state})

    def read_on(self) -> None:
        """To the end as it is now, whatever is still undecided before it."""
        log = self._subject.log
        ends = self._kafka.decided_ends(log.topic, log.partitions)
        self._step.total += sum(ends[p] - self.at[p] for p in ends)
        for table in self._subject.history.read(self.at, ends):
            for batch in table.to_batches():
                self._append(batch)
            self._keep()
        self.at = {p: max(self.at[p], end) for p, end in ends.items()}
        self._step.end()

    def _append(self, batch: pa.RecordBatch) -> None:
        names, texts = _texts(batch)
        columns = {
            "key": names,
            "hash": hashes(names),
            "canon": hash_documents(texts),
            "raw": hashes(texts),
            "version": batch.column("version"),
            "partition": batch.column("partition"),
        }
        self.spool.append(columns)
        offsets, partitions = batch.column("version").to_numpy() & MAX_OFFSET, batch.column("partition").to_numpy()
        for p in set(partitions.tolist()):
            self.at[p] = max(self.at[p], int(offsets[partitions == p].max()) + 1)
        self._note_unreadable(names, texts)
        self._note_aliases(cast(pa.StringArray, batch.column("key")))
        self._step.done += len(names)

    def _note_unreadable(self, names: list[str], texts: list[str | None]) -> None:
        bad = [place for place, text in enumerate(texts) if text is not None and text.startswith(UNREADABLE)]
        if not bad and not self.unreadable:
            return
        for place, (name, text) in enumerate(zip(names, texts, strict=True)):
            if bad and place == bad[0]:
                self.unreadable[name] = str(text).removeprefix(UNREADABLE)
                del bad[0]
            else:
                self.unreadable.pop(name, None)

    def _note_aliases(self, keys: pa.StringArray) -> None:
        for target in self._subject.targets:
            held = target.sink.scan_keys(keys)
            if held is not keys:
                pairs: Any = zip(held.to_pylist(), keys.to_pylist(), strict=True)
                self.aliases.update({there: key for there, key in pairs if there != key})


def read_items(
    target: Target,
    batches: Iterable[pa.RecordBatch],
    path: Path,
    pace: RateLimiter,
    step: Step,
    *,
    by_value: bool,
) -> Spool:
    """A follower's documents, under the keys that `scan` and `read` give. `by_value`: whatever their text is like."""
    spool = Spool(path, ITEMS)
    for batch in batches:
        names, texts = _texts(batch)
        looked = by_value or not target.keeps_text
        canon = hash_documents(texts) if looked else np.full(len(texts), ABSENT)
        columns = {
            "key": names,
            "hash": hashes(names),
            "canon": canon,
            "raw": hashes(texts),
            "version": batch.column("version"),
        }
        spool.append(columns)
        step.done += len(names)
        pace(len(names))
    step.end()
    spool.close()
    return spool


def _identity(subject: Subject) -> list[object]:
    log = subject.log
    return [log.topic_id, {str(p): at for p, at in log.floor.items()}, log.newest.number]


def _texts(batch: pa.RecordBatch) -> tuple[list[str], list[str | None]]:
    keys: Any = batch.column("key").to_pylist()
    documents: Any = batch.column("document").to_pylist()
    return keys, documents
