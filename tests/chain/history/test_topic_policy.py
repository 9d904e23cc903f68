"""Brokers whose owner says by a class what topics may be called: `check` has their reason before anything is made."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest

from driftless.config.models import KafkaConfig
from driftless.errors import SyncError
from driftless.kafka.client import Kafka
from stack import Endpoints, Stack
from tests.chain.conftest import MakePipeline
from tests.support.compare import View
from tests.support.machine import until

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(300)]

POLICY = """
public class NamePolicy implements org.apache.kafka.server.policy.CreateTopicPolicy {
    public void configure(java.util.Map<String, ?> settings) {}
    public void close() {}
    public void validate(RequestMetadata asked) {
        if (!asked.topic().startsWith("team-"))
            throw new org.apache.kafka.common.errors.PolicyViolationException("topics begin with team-");
    }
}
"""


@contextmanager
def policed(stack: Stack, endpoints: Endpoints) -> Iterator[None]:
    """The stack's broker starts again with the policy."""
    javac = shutil.which("javac")
    if javac is None:
        pytest.skip("this machine has no Java compiler")
    broker = psutil.Process(stack.running()["kafka"])
    command, environment, folder = broker.cmdline(), broker.environ(), broker.cwd()
    settings = next(Path(part) for part in command if part.endswith("server.properties"))
    owner, here = settings.stat(), settings.parent
    path = command.index("-cp") + 1
    (here / "NamePolicy.java").write_text(POLICY)
    subprocess.run([javac, "-cp", command[path], "-d", here, here / "NamePolicy.java"], check=True)
    mine = here / "policed.properties"
    mine.write_text(f"{settings.read_text()}\ncreate.topic.policy.class.name=NamePolicy\n")
    for made in (mine, here / "NamePolicy.class"):
        shutil.chown(made, owner.st_uid, owner.st_gid)
    command[path] += f":{here}"
    command[command.index(str(settings))] = str(mine)
    stack.stop("kafka")
    with (here / "policed.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT,
            user=owner.st_uid, group=owner.st_gid, extra_groups=[],
        )  # fmt: skip
    try:
        until("the broker to answer", lambda: _answers(endpoints), 60)
        yield
    finally:
        process.terminate()
        process.wait(60)
        stack.start("kafka")


def _answers(endpoints: Endpoints) -> bool:
    try:
        return Kafka(KafkaConfig(bootstrap=endpoints.kafka)).topics() is not None
    except SyncError:
        return False


def test_check_has_the_reason_of_a_policy_and_makes_nothing(
    make_pipeline: MakePipeline, source: psycopg.Connection, stack: Stack, endpoints: Endpoints
) -> None:
    source.execute("create table items (id int primary key)")
    pipeline = make_pipeline(View("item", "public.items"))
    pipeline.here.write()
    with policed(stack, endpoints):
        for command, code in (("check", 1), ("apply", 2)):
            done = pipeline.here(command)
            assert done.code == code, done
            assert "topics begin with team-" in done.out + done.err
        assert not any(pipeline.name in name for name in Kafka(KafkaConfig(bootstrap=endpoints.kafka)).topics())
        slots = source.execute(
            "select count(*) from pg_replication_slots where slot_name like %s", (f"%{pipeline.name}",)
        )
        assert slots.fetchone() == (0,)
    pipeline.apply()
