"""The documents of a build that are larger than its log takes: each is held back by itself, until it fits."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from driftless import names
from driftless.control.quarantine import QuarantineLog
from driftless.facts.builds import Build
from driftless.kafka.topic_settings import DOCUMENT_BYTES, MAX_MESSAGE_BYTES
from driftless.views.shard import shard_of

_log = logging.getLogger(__name__)
Write = tuple[str, str | None]


class Oversized:
    """Of one shard of a build. Its entries are in the quarantine topic under the name of the view's lease.

    What the log has of such a key stays as it was: followers still show the document from before, or none where there
    was none. An entry goes away when a document that fits, or a tombstone, has been published. It is written before the
    row store takes the document for published, so a crash repeats it and forgets none.
    """

    def __init__(self, log: QuarantineLog, build: Build, shard: int = 0, most: int = DOCUMENT_BYTES) -> None:
        """`most`: bytes of a document with its key."""
        self._log = log
        self._name = names.view_lease(build.view.name)
        self._build = build
        self._shard = shard
        self._most = most
        self._held: set[str] = set()

    def __len__(self) -> int:
        return len(self._held)

    def load(self) -> None:
        """Take up what is held from the topic."""
        shards = self._build.view.shards
        held = (entry.key for entry in self._log.read(self._name, self._build.number))
        self._held = {key for key in held if shard_of(key, shards) == self._shard}

    def keys(self, named: Sequence[str] | None = None) -> list[str]:
        """The held keys, of these or of all."""
        return sorted(self._held if named is None else self._held.intersection(named))

    def hold(self, writes: list[Write]) -> list[Write]:
        """The writes that fit; what does not is held when this returns."""
        sizes = {key: size for key, document in writes if (size := self._too_large(key, document))}
        if not sizes:
            return writes
        reasons = {key: (0, f"{size:,} bytes: the log of the view takes {self._most:,}") for key, size in sizes.items()}
        self._log.write(self._name, self._build.number, reasons)
        self._held |= sizes.keys()
        _log.warning(
            "%s: %d documents are too large for the log and quarantined; see `driftless quarantine list`",
            self._name,
            len(self._held),
        )
        return [write for write in writes if write[0] not in sizes]

    def published(self, writes: Iterable[Write]) -> None:
        """Let go what is among these writes, which are in the log."""
        if self._held:
            self.discard([key for key, _ in writes if key in self._held])

    def discard(self, keys: Sequence[str]) -> None:
        """Let documents go, whatever became of them."""
        if keys:
            self._log.write(self._name, self._build.number, {}, keys)
            self._held.difference_update(keys)

    @staticmethod
    def limit(settings: Mapping[str, object]) -> int:
        """What a document may have with its key, by the settings of Kafka's clients: an operator may have set less."""
        most = int(str(settings.get("message.max.bytes", MAX_MESSAGE_BYTES)))
        return min(DOCUMENT_BYTES, most - (MAX_MESSAGE_BYTES - DOCUMENT_BYTES))

    def _too_large(self, key: str, document: str | None) -> int:
        """How large it is, where that is too much; else 0."""
        if document is None or 4 * (len(document) + len(key)) <= self._most:  # a character is at most four bytes
            return 0
        size = len(document.encode()) + len(key.encode())
        return size if size > self._most else 0
