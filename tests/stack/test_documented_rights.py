"""What docs/security.md lets users do is what the secured stack lets them do, where the whole chain is tried."""

from __future__ import annotations

import argparse
import json
import re

from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from stack.servers import opensearch, redis
from stack.servers.kafka_rights import Right, rights_of_events, rights_of_pipeline
from tests.support.files import ROOT

_PAGE = ROOT / "docs" / "security.md"


def _block(kind: str) -> str:
    (text,) = re.findall(rf"^```{kind}\n(.*?)^```$", _PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return str(text)


def _documented(block: str) -> list[Right]:
    return [_right(line) for line in _block(block).splitlines()]


def _right(line: str) -> Right:
    """A line of `kafka-acls.sh`."""
    given = argparse.ArgumentParser()
    given.add_argument("--add", action="store_true", required=True)
    given.add_argument("--allow-principal", required=True)
    given.add_argument("--resource-pattern-type", default="literal")
    given.add_argument("--operation", action="append", required=True)
    for option in ("topic", "transactional-id", "group"):
        given.add_argument(f"--{option}")
    found = given.parse_args(line.split())
    assert found.allow_principal == "User:shop"
    kinds = {
        ResourceType.TOPIC: found.topic,
        ResourceType.TRANSACTIONAL_ID: found.transactional_id,
        ResourceType.GROUP: found.group,
    }
    ((kind, thing),) = ((kind, thing) for kind, thing in kinds.items() if thing)
    pattern = ResourcePatternType[found.resource_pattern_type.upper()]
    does = (AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()] for operation in found.operation)
    return Right(kind, thing, pattern, tuple(does))


def _comparable(rights: list[Right]) -> set[tuple[str, str, str, frozenset[str]]]:
    return {(r.kind.name, r.name, r.pattern.name, frozenset(o.name for o in r.operations)) for r in rights}


def test_those_of_a_pipeline_are_documented() -> None:
    assert _comparable(_documented("kafka-acls")) == _comparable(rights_of_pipeline("shop"))


def test_those_of_a_topic_of_events_are_documented() -> None:
    assert _comparable(_documented("kafka-acls-of-events")) == _comparable(rights_of_events("app.clicks"))


def test_those_of_opensearch_are_documented() -> None:
    role = json.loads(_block("opensearch-role").partition("\n")[2])
    assert role["cluster_permissions"] == list(opensearch.OF_CLUSTER)
    assert role["index_permissions"][0]["allowed_actions"] == list(opensearch.OF_INDICES)


def test_those_of_redis_are_documented() -> None:
    words = _block("redis-acl").split()
    assert [word.removeprefix("+") for word in words if word.startswith("+")] == list(redis.COMMANDS)
    assert "-@all" in words
