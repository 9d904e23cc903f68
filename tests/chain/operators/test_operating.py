"""What an operator does: apply, plan, check, status, wait, and a follower added when the source is down."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest

from driftless import Waiter
from driftless.errors import ConfigError
from stack import Stack
from tests.chain.conftest import MakePipeline
from tests.chain.support.broken import make_standby
from tests.support.compare import OpenSearch, View
from tests.support.machine import until
from tests.support.pipeline import Pipeline

pytestmark = pytest.mark.server

ITEM = View("item", "public.items")
LSN = re.compile(r"[0-9A-F]{1,8}/[0-9A-F]{1,8}")


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    """A pipeline that was applied and runs."""
    source.execute("create table items (id int primary key, name text)")
    source.execute("create table loose (name text)")
    source.execute("insert into items select n, 'item ' || n from generate_series(1, 200) n")
    pipeline = make_pipeline(ITEM)
    pipeline.apply()
    pipeline.run()
    return pipeline


def position(text: str) -> tuple[int, int]:
    """An LSN such that later ones are greater."""
    high, low = text.split("/")
    return int(high, 16), int(low, 16)


def test_plan_says_what_would_change_and_exits_1(make_pipeline: MakePipeline, pipeline: Pipeline) -> None:
    new = make_pipeline(View("other", "public.items"))
    planned = new.here("plan", "--json")
    assert planned.code == 1, planned.err
    verbs = {(change["verb"], change["what"].split()[0]) for change in planned.json()["changes"]}
    assert verbs >= {("create", "publication"), ("create", "topic"), ("create", "connector"), ("create", "follower")}
    assert new.here("plan", "--json").json() == planned.json(), "planning changed something"
    as_sql = new.here("plan", "--sql")
    assert f"create publication driftless_{new.name}" in as_sql.out
    assert pipeline.name not in as_sql.out


def test_apply_twice_changes_nothing(pipeline: Pipeline) -> None:
    planned = pipeline.here("plan", "--json")
    assert (planned.code, planned.json()["changes"]) == (0, [])
    assert planned.json()["samples"].keys() == pipeline.views.keys()
    records = len(pipeline.records("public.items"))
    again = pipeline.here("apply")
    assert (again.code, again.out.strip()) == (0, "nothing to change")
    assert len(pipeline.records("public.items")) == records


def test_check_is_content_with_what_was_applied(pipeline: Pipeline) -> None:
    done = pipeline.here("check", "--json")
    assert (done.code, done.json()) == (0, {"ok": True, "findings": []})


@pytest.mark.soak
def test_check_and_plan_tell_of_a_failed_connector(pipeline: Pipeline) -> None:
    """Here for a publication that there is not; `apply` puts it right and starts it again."""
    connect = OpenSearch(pipeline.endpoints.connect, "")
    path = f"/connectors/driftless-{pipeline.name}"
    right = connect.call("GET", f"{path}/config")
    try:
        connect.call("PUT", f"{path}/config", {**right, "publication.name": "nobody"})

        def told() -> bool:
            return "the connector has failed" in pipeline.here("check").out

        until("check to tell of the failed connector", told)
        assert pipeline.here("plan").code == 1
    finally:
        pipeline.apply()
    # Positions stood still meanwhile, and they move when the connector has started.
    until("check to be content", lambda: pipeline.here("check").out.strip() == "everything is ready")
    pipeline.assert_in_step()


@pytest.fixture
def unfit_server(stack: Stack) -> Iterator[str]:
    """The DSN of a weak role on a standby of its own, whose wal_level is too low."""
    unfit = Stack(f"{stack.name}-unfit", servers=("postgres",))
    try:
        server = unfit.up().postgres
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("alter system set wal_level = 'replica'")
            connection.execute("create role weak login password 'feeble'")
            connection.execute("create table items (id int primary key, name text, shape box)")
            connection.execute("create table loose (name text)")
        unfit.stop("postgres")
        make_standby(unfit)
        unfit.start("postgres")
        yield psycopg.conninfo.make_conninfo(server, user="weak", password="feeble")  # noqa: S106 - it is the test
    finally:
        unfit.destroy()


def test_check_finds_every_mistake_in_one_go(make_pipeline: MakePipeline, unfit_server: str) -> None:
    """Those of the server, of its tables and of the configuration, in one list."""
    wrong = make_pipeline(View("item", "public.items", fields={"nmae": "nmae"}), View("l", "public.loose"))
    wrong.sync["source"]["tables"] |= {"public.itms": {}, "public.items": {"exclude": ["nope", "id"]}}
    wrong.sync["kafka"] |= {"replication": 3, "heartbeat_prefix": f"{wrong.name}.public"}
    wrong.sync["source"]["tables"][f"public.{wrong.name}"] = {}
    wrong.here.write()
    wrong.here.environment = {**wrong.here.environment, "SOURCE_DSN": unfit_server}
    done = wrong.here("check")
    assert done.code == 1, done.err
    for what in (
        "source.dsn leads to a standby",
        "wal_level is replica: run `alter system set wal_level = logical`",
        "lacks REPLICATION",
        "public.loose has no primary key, nor a unique index without nulls",
        "no table public.itms; did you mean `public.items`?",
        "there is no column nope",
        "id belongs to the key",
        f"error: the brokers would not make the topic {wrong.name}.",
        "Unable to replicate the partition 3 time(s)",
        f"gives Debezium's own topic the name of a table's, {wrong.name}.public.{wrong.name}",
        "no column nmae; did you mean `name`?",
        "note: public.items: the column shape has the type box",
    ):
        assert what in done.out, f"{what!r} is not among:\n{done.out}"
    lines = (wrong.here.folder / "sync.yaml").read_text().splitlines()
    at = 1 + next(n for n, line in enumerate(lines) if '"nmae"' in line)
    assert f"error: sync.yaml:{at}: views.item.columns.nmae: public.items has no column nmae" in done.out
    assert "feeble" not in done.out + done.err
    assert wrong.here("apply").code == 2, "apply starts nothing where check found something"
    assert wrong.here("plan").code == 2


def test_an_idle_follower_stays_fresh(pipeline: Pipeline) -> None:
    """Its position rises with the markers, though no row changes."""
    pipeline.wait()
    before = {f["name"]: position(f["applied_lsn"]) for f in pipeline.status()["followers"]}

    def all_risen() -> bool:
        now = pipeline.status()["followers"]
        return all(position(f["applied_lsn"]) > before[f["name"]] for f in now)

    for _ in range(2):
        until("the position of every idle follower to rise", all_risen)
        before = {f["name"]: position(f["applied_lsn"]) for f in pipeline.status()["followers"]}


def test_a_commit_that_was_waited_for_can_be_read_in_both_stores(
    pipeline: Pipeline, source: psycopg.Connection
) -> None:
    for n in range(5):
        key = 10_000 + n
        source.execute("insert into items values (%s, 'new')", (key,))
        lsn = source.execute("select pg_current_wal_lsn()::text").fetchone()
        assert lsn is not None
        pipeline.wait(lsn=lsn[0])
        for name, store in pipeline.stores.items():
            found = store.get(store.name((str(key),)))
            assert found == {"id": key, "name": "new"}, f"{name} after `wait --lsn {lsn[0]}`"


def test_an_application_waits_for_its_commits(
    pipeline: Pipeline, source: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one connection for all of them, also for what it has not committed itself."""
    for name, value in pipeline.here.environment.items():
        monkeypatch.setenv(name, value)
    with Waiter(pipeline.here.folder / "sync.yaml") as waiter:
        for n in range(5):
            source.execute("insert into items values (%s, 'waited for')", (20_000 + n,))
            assert waiter.wait(pipeline.lsn() if n % 2 else None, timeout=60)
            for name, store in pipeline.stores.items():
                assert store.get(store.name((str(20_000 + n),))) == {"id": 20_000 + n, "name": "waited for"}, name
        with pytest.raises(ConfigError, match="item-cache"):
            waiter.wait(None, "item-cahe")


def test_status_has_exactly_the_fields_of_the_contract(pipeline: Pipeline) -> None:
    pipeline.wait()
    status = pipeline.status()
    number = (int, float)
    contract: dict[str, Any] = {
        "pipeline": str,
        "source": {"lsn": LSN, "slot": str, "slot_lag_bytes": int},
        "views": [
            {
                "name": str,
                "state": str,
                "generation": int,
                "frontier_lsn": LSN,
                "lag_records": int,
                "dirty": int,
            }
        ],
        "followers": [
            {
                "name": str,
                "view": str,
                "state": str,
                "generation": int,
                "generations": [{"n": int, "live": bool, "state": str, "applied_lsn": LSN}],
                "applied_lsn": LSN,
                "lag_seconds": number,
                "lag_records": int,
                "documents": int,
                "quarantined": int,
            }
        ],
    }
    assert not list(violations(status, contract, "status"))
    assert status["pipeline"] == pipeline.name
    rows = pipeline.connection.execute("select count(*) from items").fetchone()
    assert rows is not None
    for follower in status["followers"]:
        assert (follower["state"], follower["generation"], follower["quarantined"]) == ("live", 1, 0)
        wanted = (follower["name"], rows[0])
        until(f"status to count {wanted}", partial(counted, pipeline, *wanted))


def counted(pipeline: Pipeline, follower: str, documents: int) -> bool:
    return bool(pipeline.follower(follower)["documents"] == documents)


def live(pipeline: Pipeline, follower: str) -> bool:
    return bool(pipeline.follower(follower)["state"] == "live")


def violations(found: Any, wanted: Any, where: str) -> Iterator[str]:
    """Where JSON lacks a field or holds another type than wanted. Further fields are allowed."""
    if isinstance(wanted, dict):
        for name, kind in wanted.items():
            if name not in found:
                yield f"{where}.{name} is missing"
            else:
                yield from violations(found[name], kind, f"{where}.{name}")
    elif isinstance(wanted, list):
        if not isinstance(found, list) or not found:
            yield f"{where} is not a list with something in it"
        else:
            for item in found:
                yield from violations(item, wanted[0], f"{where}[]")
    elif isinstance(wanted, re.Pattern):
        if not isinstance(found, str) or not wanted.fullmatch(found):
            yield f"{where} is {found!r}"
    elif not isinstance(found, wanted) or (isinstance(found, bool) and wanted is not bool):
        yield f"{where} is {found!r}"


def test_status_for_people_shows_every_follower(pipeline: Pipeline) -> None:
    shown = pipeline.here("status")
    assert shown.code == 0
    for name in pipeline.stores:
        assert re.search(rf"{name}\s+item\s+live", shown.out), shown.out


@pytest.mark.soak
def test_a_follower_added_while_source_and_connect_are_down_is_built_from_the_log(
    pipeline: Pipeline, source: psycopg.Connection, stack: Stack
) -> None:
    until("the run to have read the file without the follower", partial(live, pipeline, "item-search"), 120)
    source.execute("update items set name = name || ' late' where id % 3 = 0")
    source.execute("delete from items where id % 7 = 0")
    later = View("later", ITEM.table, fields={"number": "id", "label": "name"})
    pipeline.add(later)
    pipeline.apply()
    pipeline.wait("item-search")
    try:
        source.close()
        stack.stop("connect")
        stack.stop("postgres")
        job = pipeline.run("later-search", "later-cache")
        count = len(pipeline.stores["item-cache"].documents())
        for name in pipeline.of("later"):
            until(f"{name} to be live", partial(live, pipeline, name), 120)
            assert len(pipeline.stores[name].documents()) == count
        told = pipeline.here("status", "--json")
        assert (told.code, told.json()["source"]["lsn"]) == (3, None), "the source cannot be reached"
        assert pipeline.here("apply").code == 3
        assert job.running
    finally:
        stack.start("postgres")
        stack.start("connect")
    pipeline.connect()
    pipeline.assert_in_step()


def test_wait_exits_1_when_time_runs_out_and_names_who_is_late(pipeline: Pipeline) -> None:
    for job in pipeline.jobs():
        assert job.stop() == 0, job.output()
    states = {f["name"]: f["state"] for f in pipeline.status()["followers"]}
    assert set(states.values()) == {"stopped"}
    done = pipeline.here("wait", "--lsn", pipeline.lsn(), "--timeout", "1", "item-cache")
    assert done.code == 1
    assert "item-cache" in done.err


def test_wait_refuses_what_is_not_a_position_or_a_follower(pipeline: Pipeline) -> None:
    assert pipeline.here("wait", "--lsn", "yesterday").code == 2
    nobody = pipeline.here("wait", "--lsn", "0/1", "item-cahe")
    assert nobody.code == 2
    assert "item-cache" in nobody.err


def test_a_server_that_cannot_be_reached_is_exit_code_3(pipeline: Pipeline) -> None:
    for field, name in (("kafka", "Kafka"), ("connect", "Connect")):
        broken = json.loads(json.dumps(pipeline.sync))
        broken[field] = {"bootstrap": "127.0.0.1:1"} if field == "kafka" else {"url": "http://127.0.0.1:1"}
        machine = pipeline.machine(f"no-{field}")
        machine.sync = broken
        machine.write()
        done = machine("check")
        assert (done.code, name in done.err) == (3, True), done.err
