"""What users may do on a broker that denies everything else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from driftless import names

_READS = (AclOperation.DESCRIBE, AclOperation.READ)
_WRITES = (AclOperation.DESCRIBE, AclOperation.WRITE)
_MAKES = (AclOperation.CREATE, AclOperation.DELETE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)
_LITERAL, _PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED


@dataclass(frozen=True)
class Right:
    """On one thing, or on all whose names begin so."""

    kind: ResourceType
    name: str
    pattern: ResourcePatternType
    operations: tuple[AclOperation, ...]


def rights_of_pipeline(pipeline: str) -> list[Right]:
    """What driftless needs; docs/security.md says the same."""
    heartbeats = f"__debezium-heartbeat.{pipeline}"
    return [
        Right(ResourceType.TOPIC, f"{pipeline}.", _PREFIXED, (*_READS, AclOperation.WRITE, *_MAKES)),
        Right(ResourceType.TOPIC, heartbeats, _LITERAL, (*_READS, *_MAKES)),
        Right(ResourceType.TRANSACTIONAL_ID, f"driftless.{pipeline}.", _PREFIXED, _WRITES),
        Right(ResourceType.GROUP, "driftless", _PREFIXED, (AclOperation.DESCRIBE,)),
    ]


def rights_of_events(topic: str) -> list[Right]:
    """What a stream needs of a topic that applications write."""
    return [Right(ResourceType.TOPIC, topic, _LITERAL, (*_READS, AclOperation.DESCRIBE_CONFIGS))]


def rights_of_worker(group: str) -> list[Right]:
    """What a Connect worker needs for itself, where its topics begin with `_connect-`."""
    keeps = (AclOperation.CREATE, AclOperation.DESCRIBE_CONFIGS)
    return [
        Right(ResourceType.TOPIC, "_connect-", _PREFIXED, (*_READS, AclOperation.WRITE, *keeps)),
        Right(ResourceType.GROUP, group, _LITERAL, _READS),
        Right(ResourceType.TRANSACTIONAL_ID, f"connect-cluster-{group}", _LITERAL, _WRITES),
    ]


def rights_of_connector(pipeline: str, group: str) -> list[Right]:
    """What the user of a worker of this group needs to write what Debezium reads for a pipeline."""
    return [
        Right(ResourceType.TOPIC, f"{pipeline}.", _PREFIXED, _WRITES),
        Right(ResourceType.TOPIC, f"__debezium-heartbeat.{pipeline}", _LITERAL, _WRITES),
        Right(ResourceType.TRANSACTIONAL_ID, f"{group}-{names.connector(pipeline)}-", _PREFIXED, _WRITES),
    ]


def allow(admin: AdminClient, user: str, rights: Iterable[Right]) -> None:
    """Give a user these rights, from wherever it comes. Nothing changes for one who has them."""
    for done in admin.create_acls(list(_bindings(user, rights)), request_timeout=10).values():
        done.result()


def _bindings(user: str, rights: Iterable[Right]) -> Iterator[AclBinding]:
    for right in rights:
        for operation in right.operations:
            place = right.kind, right.name, right.pattern
            yield AclBinding(*place, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
