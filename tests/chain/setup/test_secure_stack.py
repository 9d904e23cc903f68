"""The stack of `driftless up --secure`: TLS and a login on every hop, few rights, and the whole chain there."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

import psycopg
import pytest
import redis
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from driftless.config.kafka_security import KafkaSecurity, librdkafka
from stack import SERVERS, Endpoints, Stack
from stack.servers import http
from stack.servers.kafka import login_of
from tests.support import run
from tests.support.machine import Machine
from tests.support.security.rejected import LIMIT, ROWS, make_docs, verified

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

NAME = "secured"
STACK = f"{run.STACK}-secure"


@dataclass(frozen=True)
class Place:
    """A pipeline on the secured stack. `admin`: a connection of the superuser."""

    stack: Stack
    endpoints: Endpoints
    sections: dict[str, Any]
    here: Machine
    admin: psycopg.Connection

    @property
    def security(self) -> KafkaSecurity:
        fields = dict(self.sections["kafka"]["security"])
        return KafkaSecurity.model_validate({**fields, "password": _secret(fields["password"])})

    def proof(self) -> dict[str, tuple[int, int, int]]:
        return verified(self.here)[1]

    def wait(self) -> None:
        lsn = self.admin.execute("select pg_current_wal_insert_lsn()::text").fetchone()
        assert lsn is not None
        done = self.here("wait", "--lsn", lsn[0], "--start", "240", "--timeout", "240", seconds=300)
        assert done.code == 0, done.err + "\n".join(job.output()[-3000:] for job in self.here.jobs)


def _secret(reference: str) -> str:
    return Path(reference.removeprefix("${file:").removesuffix("}")).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def place(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The session's own stack is stopped meanwhile: there is room for one."""
    stack.down()
    here = Machine(tmp_path_factory.mktemp("secured"), {}, {})
    secured = Stack(STACK)
    try:
        done = here("up", "--name", STACK, "--secure", "--pipeline", NAME, "--json", seconds=300)
        assert done.code == 0, done.err
        sections = json.loads(done.out)
        endpoints = secured.endpoints()
        assert endpoints is not None
        with psycopg.connect(endpoints.postgres, autocommit=True) as admin:
            make_docs(admin)
            here.sync = _sync(sections)
            here.write()
            applied = here("apply", seconds=180)
            assert applied.code == 0, applied.out + applied.err
            yield Place(secured, endpoints, sections, here, admin)
        for job in here.jobs:
            job.destroy()
    finally:
        secured.destroy()
        stack.up()


def _sync(sections: dict[str, Any]) -> dict[str, Any]:
    lines = {"table": "public.lines", "by": "doc", "order_by": ["id"]}
    index = {"index": "docs", "settings": {"mapping.total_fields.limit": LIMIT}, "mapping": {"dynamic": True}}
    return {
        "name": NAME,
        "source": {**sections["source"], "tables": {"public.docs": {}, "public.lines": {}}},
        "kafka": {**sections["kafka"], "partitions": 2},
        "connect": sections["connect"],
        "views": {
            "doc": {"root": "public.docs"},
            "whole": {"root": "public.docs", "columns": ["id", "title"], "many": {"lines": lines}},
        },
        "followers": {
            "doc-search": {"view": "doc", "opensearch": {**sections["opensearch"], **index}},
            "whole-cache": {"view": "whole", "redis": {**sections["redis"], "key": "whole:{id}"}},
        },
    }


def test_every_step_of_a_pipelines_life(place: Place) -> None:
    checked = place.here("check", seconds=60)
    assert (checked.code, checked.out.strip()) == (0, "everything is ready"), checked.err
    job = place.here.run()
    place.wait()
    assert place.proof() == {"doc-search": (ROWS - 1, 1, 0), "whole-cache": (ROWS, 0, 0)}
    assert place.here("quarantine", "list", "doc-search", "--json").json()["count"] == 1

    place.admin.execute("update docs set title = 'changed' where id between 2 and 9")
    place.wait()
    job.kill()
    place.admin.execute("delete from docs where id = 10")
    place.admin.execute("update lines set qty = 7 where id < 30")
    place.admin.execute("update docs set extra = '{}' where id = 1")
    job = place.here.run()
    place.wait()
    assert place.here("rebuild", "doc-search", seconds=240).code == 0
    assert place.proof() == {"doc-search": (ROWS - 1, 0, 0), "whole-cache": (ROWS - 1, 0, 0)}
    assert job.stop() == 0


def test_who_does_not_log_in_gets_nowhere(place: Place) -> None:
    plain = place.endpoints.postgres.partition("?")[0]
    with pytest.raises(psycopg.OperationalError, match="no encryption"):
        psycopg.connect(f"{plain}?sslmode=disable", connect_timeout=5)
    quiet: dict[str, str | int | float | bool] = {"bootstrap.servers": place.endpoints.kafka, "log_level": 0}
    with pytest.raises(KafkaException):
        AdminClient(quiet).list_topics(timeout=3)
    trusting = {"security.protocol": "SSL", "ssl.ca.location": str(place.sections["kafka"]["security"]["ca"])}
    with pytest.raises(KafkaException):
        AdminClient({**quiet, **trusting}).list_topics(timeout=3)
    address, _, certificates = place.endpoints.redis.rpartition("@")[2].partition("?")
    with pytest.raises(redis.AuthenticationError):
        redis.Redis.from_url(f"rediss://{address}?{certificates}").ping()
    with pytest.raises(redis.ConnectionError):
        redis.Redis.from_url(f"redis://{address}").ping()
    keys = place.stack.keys
    for url in (place.endpoints.connect, f"https://{place.endpoints.opensearch.rpartition('@')[2]}"):
        assert http.call("GET", f"{url}/", keys=keys) == 401


def test_who_logs_in_may_do_no_more_than_a_pipeline_needs(place: Place) -> None:
    admin = AdminClient({"bootstrap.servers": place.endpoints.kafka, **librdkafka(place.security)})
    with pytest.raises(KafkaException, match="AUTHORIZATION_FAILED"):
        next(iter(admin.create_topics([NewTopic("other.topic", 1)]).values())).result()
    with (
        psycopg.connect(_resolved(place.sections["source"]["dsn"])) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("delete from docs")
    with redis.Redis.from_url(place.endpoints.redis) as cache:
        for forbidden in ("flushall", "config set maxmemory 1", "acl list", "keys *"):
            with pytest.raises(redis.exceptions.NoPermissionError):
                cache.execute_command(*forbidden.split())
    login, _, address = place.endpoints.opensearch.removeprefix("https://").rpartition("@")
    for method, path, body in (
        ("PUT", "_cluster/settings", {"transient": {"action.auto_create_index": "true"}}),
        ("GET", "_plugins/_security/api/internalusers", None),
        ("GET", "_cat/nodes", None),
    ):
        url = f"https://{address}/{path}"
        assert http.call(method, url, body, keys=place.stack.keys, login=login) == 403, path


def test_no_password_is_in_any_output_log_topic_or_file(place: Place) -> None:
    """Kafka keeps its topics, also those of Connect and its own, as they were sent."""
    secrets = [path.read_bytes().strip() for path in _password_files(place.stack)]
    assert len(secrets) > 6
    for command in ("status", "plan", "check"):
        done = place.here(command, seconds=60)
        assert not any(secret.decode() in done.out + done.err for secret in secrets), command
    kept = [path for path in Path(place.here.folder).rglob("*") if path.is_file()]
    assert any(path.name.startswith("run-") for path in kept)
    logs = [place.stack.log(server) for server in SERVERS]
    topics = list((place.stack.folder / "data" / "kafka").rglob("*.log"))
    assert {f"{NAME}.control-0", "_connect-configs-0"} <= {path.parent.name for path in topics}
    for path in kept + logs + topics:
        content = path.read_bytes()
        assert not any(secret in content for secret in secrets), path


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("source.dsn", "password authentication failed"),
        ("source.admin_dsn", "source.admin_dsn: Postgres at"),
        ("kafka.security.password", "refuses the login of `driftless`"),
        ("connect.password_http", "401"),
        ("followers.doc-search.opensearch.url", "401"),
        ("followers.whole-cache.redis.url", "Redis denies access"),
    ],
)
def test_a_wrong_password_is_told_and_not_shown(place: Place, tmp_path: Path, where: str, said: str) -> None:
    """By `check`, with what the server says; and no command shows it, or ends with a traceback."""
    wrong = "canary-wrong-8821"
    sync: dict[str, Any] = copy.deepcopy(dict(place.here.sync))
    *path, last = where.split(".")
    part = sync
    for name in path:
        part = part[name]
    part[last] = re.sub(r"\$\{file:[^}]*\}", wrong, part[last])
    assert wrong in part[last]
    machine = Machine(tmp_path / "wrong", sync, {})
    machine.write()
    for command in ("check", "plan", "apply", "status", "verify"):
        done = machine(command, seconds=60)
        output = done.out + done.err
        assert wrong not in output, (command, output)
        assert "Traceback" not in output, (command, output)
        if command == "check":
            assert done.code in (1, 2), output
            assert said in output


def test_up_again_changes_nothing(place: Place) -> None:
    running = place.stack.running()
    done = place.here("up", "--name", STACK, "--secure", "--pipeline", NAME, "--json", seconds=120)
    assert (done.code, json.loads(done.out)) == (0, place.sections)
    assert place.stack.running() == running


def test_passwords_of_kafka_and_postgres_are_changed_without_reading_anything_anew(place: Place) -> None:
    """As docs/security.md has it. What was followed before is not read again."""
    keys, old = place.stack.keys, _resolved(place.sections["source"]["dsn"])
    assert keys is not None
    job = place.here.run()
    place.wait()
    changed = {server: f"changed-{server}-{token_urlsafe(12)}" for server in ("postgres", "kafka")}
    place.admin.execute(f"alter role driftless password '{changed['postgres']}'".encode())
    admin = AdminClient({"bootstrap.servers": place.endpoints.kafka, **librdkafka(login_of(keys, "admin"))})
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion("driftless", credential, changed["kafka"].encode())
    for done in admin.alter_user_scram_credentials([change]).values():
        done.result()
    for server, password in changed.items():
        keys.password_file(server).write_text(password, encoding="utf-8")
    assert job.stop() == 0
    applied = place.here("apply", seconds=120)
    assert (applied.code, "nothing to change" in applied.out) == (0, True), applied.out + applied.err
    login = f"driftless:{keys.password('connect')}"
    restart = f"{place.endpoints.connect}/connectors/driftless-{NAME}/restart?includeTasks=true"
    assert http.call("POST", restart, keys=keys, login=login, seconds=30) in (202, 204)
    job = place.here.run()
    place.admin.execute("update docs set title = 'after' where id = 3")
    place.wait()
    assert set(place.proof().values()) == {(ROWS - 1, 0, 0)}
    assert "epoch 2" not in place.here("status", seconds=60).out
    assert job.stop() == 0
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(old, connect_timeout=5)


def test_plan_says_what_the_connect_worker_needs(place: Place, tmp_path: Path) -> None:
    """Of a pipeline that has no connector yet, which is let in beside the other."""
    done = place.here("up", "--name", STACK, "--secure", "--pipeline", "second", "--json", seconds=120)
    assert done.code == 0, done.err
    machine = Machine(tmp_path / "second", {**place.here.sync, "name": "second", "followers": {}}, {})
    machine.write()
    planned = machine("plan", seconds=60)
    assert planned.code == 1, planned.err
    assert "\n  producer.security.protocol=SASL_SSL\n" in planned.out
    assert "PASSWORD" in planned.out
    assert "worker" not in place.here("plan", seconds=60).out


def test_a_stack_without_security_gets_none(stack: Stack, place: Place) -> None:
    done = place.here("up", "--name", stack.name, "--secure")
    assert done.code == 2
    assert "was made without TLS and logins" in done.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--secure", "--pipeline", "My Shop"), "did you mean `my-shop`?"),
        (("--pipeline", "shop"), "without --secure everybody is let in"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_starts(
    place: Place, options: tuple[str, ...], said: str
) -> None:
    done = place.here("up", "--name", "never", *options)
    assert done.code == 2
    assert said in done.err
    assert not Stack("never").folder.exists()


def _password_files(stack: Stack) -> list[Path]:
    return [*stack.folder.glob("*.password"), *(stack.folder / "keys").glob("*.password")]


def _resolved(dsn: str) -> str:
    before, _, rest = dsn.partition("${file:")
    path, _, after = rest.partition("}")
    return before + Path(path).read_text(encoding="utf-8").strip() + after
