"""What the server says of itself, of a table's file and of a slot."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from driftless.table import join_name

FILTERS_SINCE = 150000
"""The version of Postgres since which a publication may leave out rows or columns."""
BY_PARTITION = "by partition"
"""How a publication carries a partitioned table whose rows it does not carry under that table's name."""


@dataclass(frozen=True)
class ServerFacts:
    """What the server says of itself. `system_identifier` and `timeline` tell one log history from another.

    `login`: as whom we logged in. `role`: whose rights we have, which a setting of the login may make another's.
    `has_replication`: the login has the attribute, which is not all that may let it read the log.
    """

    version: int
    system_identifier: str
    timeline: int
    wal_level: str
    has_replication: bool
    database: str
    role: str
    login: str
    is_standby: bool


@dataclass(frozen=True)
class Partition:
    """A partition, of whatever depth. `mark`: what put it there. `is_born`: it was made as a partition, so that all its
    rows are in the log. `kind`, `persistence`, `identity`: as in pg_class. `tells`: it has our trigger.
    """

    oid: str
    schema: str
    name: str
    mark: str
    is_born: bool
    kind: str
    persistence: str
    identity: str
    tells: bool

    @property
    def full_name(self) -> str:
        return join_name(self.schema, self.name)

    @property
    def holds_rows(self) -> bool:
        return self.kind != "p"

    def obstacle(self) -> str:
        """Why its rows are not in the log; empty where they are."""
        if self.kind == "f":
            return f"its partition {self.full_name} is a foreign table, whose rows are in no log here"
        if self.holds_rows and self.persistence != "p":
            return f"its partition {self.full_name} is unlogged, so its changes are not in the log"
        return ""


@dataclass(frozen=True)
class Storage:
    """What tells that a table's rows were rewritten without a change of any row in the log.

    `node`: the file that it is in: another one after TRUNCATE, VACUUM FULL, and ALTER TABLE that rewrites. `columns`:
    for each the transaction that last changed its definition, which VACUUM FULL does not. `numbers`: of the columns;
    one that was dropped and made again has another. `labels`: of those that are enums, the values. `trigger`: the one
    that tells of TRUNCATE, and what last changed it. `partitions`: of each, by its oid, the name, what put it there,
    and whether it was made there; `truncations`: how many were of one of them alone.
    """

    node: int
    columns: dict[str, str]
    numbers: dict[str, int] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)
    trigger: str = ""
    partitions: dict[str, tuple[str, str, bool]] = field(default_factory=dict)
    truncations: int = 0

    def to_json(self) -> dict[str, object]:
        """As it is registered. What only partitioned tables have is left out of the others'."""
        fields = asdict(self)
        if not self.partitions:
            del fields["partitions"]
        if not self.truncations:
            del fields["truncations"]
        return fields

    def rewritten(self, before: Storage) -> bool:
        """Whether a column that was there before has been changed along with the file."""
        known = self.columns.keys() & before.columns.keys()
        return self.node != before.node and any(self.columns[name] != before.columns[name] for name in known)

    def changed(self, before: Storage) -> str:
        """Why rows may show something else than before, or be gone, and the log does not tell; empty where not."""
        if self.rewritten(before):
            return "it was rewritten by ALTER TABLE"
        numbers = self.numbers.keys() & before.numbers.keys()
        if recreated := sorted(name for name in numbers if self.numbers[name] != before.numbers[name]):
            return f"{', '.join(recreated)} was dropped, or renamed, and made again under its name"
        labels = self.labels.keys() & before.labels.keys()
        if renamed := sorted(name for name in labels if set(before.labels[name]) - set(self.labels[name])):
            return f"values of the enum {', '.join(renamed)} were renamed"
        if before.trigger and self.trigger != before.trigger and self.node != before.node:
            return "it may have been truncated while the trigger that tells of that was off"
        return self._moved(before)

    def _moved(self, before: Storage) -> str:
        """What partitions brought or took along: the log has neither."""
        for oid, (name, mark, is_born) in self.partitions.items():
            known = before.partitions.get(oid)
            if (not is_born) if known is None else known[1] != mark:
                return f"the partition {name} was attached, and its rows are not in the log"
        for oid, (name, *_) in before.partitions.items():
            if oid not in self.partitions:
                return f"the partition {name} was detached or dropped, and the log has its rows still"
        return (
            "a partition was truncated, and the log has its rows still" if self.truncations > before.truncations else ""
        )


@dataclass(frozen=True)
class Slot:
    """A replication slot. `confirmed`: the log is safely in Kafka up to it. `reader`: the process that reads it.

    `failover`: standbys that synchronize slots keep it as well. `left_bytes`: what may be written before the server
    gives it up; None where it never does.
    """

    name: str
    confirmed: int | None
    reader: int | None
    lag_bytes: int
    wal_status: str | None
    invalidated: str = ""
    failover: bool = False
    left_bytes: int | None = None

    @property
    def active(self) -> bool:
        return self.reader is not None
