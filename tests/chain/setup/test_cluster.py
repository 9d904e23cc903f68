"""A Spark standalone cluster on loopback: followers are submitted to it, and executors write to the stores."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from jobs.spark.private import is_private_spark_known
from jobs.spark.source import DRIVER_OFFSETS
from stack import fetch
from stack.machine.ports import LOOPBACK, choose_ports
from tests.chain.conftest import MakePipeline
from tests.support.compare import OpenSearch, View
from tests.support.files import ROOT
from tests.support.machine import Job, until
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(600)]

ROWS = 20 * DRIVER_OFFSETS


@dataclass
class Cluster:
    """A master and its workers, each a process of Spark's own classes."""

    folder: Path
    master: str
    web: str
    processes: dict[str, subprocess.Popen[bytes]]

    def state(self) -> Any:
        """What the master says of its workers and applications."""
        return OpenSearch(self.web, "").call("GET", "/json/")  # plain HTTP with JSON is all that is needed

    def logs(self) -> dict[str, str]:
        """What each worker's executors said."""
        found = {}
        for worker in ("worker-1", "worker-2"):
            logs = sorted((self.folder / worker).glob("app-*/*/stderr"))
            found[worker] = "".join(log.read_text(errors="replace") for log in logs)
        return found

    def python_workers(self) -> list[psutil.Process]:
        """Of the executors, as far as they have started any."""
        family = [child for p in self.processes.values() for child in psutil.Process(p.pid).children(recursive=True)]
        return [process for process in family if process.name() != "java" and _is_daemon(process)]


def _is_daemon(process: psutil.Process) -> bool:
    try:
        return "pyspark.daemon" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


def _spark_home() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers of one core each."""
    folder = tmp_path_factory.mktemp("cluster")
    ports = list(choose_ports(str(folder), ()).values())
    found = Cluster(folder, f"spark://{LOOPBACK}:{ports[0]}", f"http://{LOOPBACK}:{ports[1]}", {})
    environment = {**os.environ, "SPARK_HOME": str(_spark_home()), "SPARK_LOCAL_IP": LOOPBACK}
    environment["SPARK_DAEMON_MEMORY"] = "256m"

    def start(name: str, *arguments: object) -> None:
        command = [_spark_home() / "bin" / "spark-class", *arguments, "--host", LOOPBACK]
        with (folder / f"{name}.log").open("wb") as log:
            found.processes[name] = subprocess.Popen(
                [str(part) for part in command], env=environment, stdout=log, stderr=log, cwd=folder
            )

    try:
        start("master", "org.apache.spark.deploy.master.Master", "--port", ports[0], "--webui-port", ports[1])
        for number in (1, 2):
            worker = ["org.apache.spark.deploy.worker.Worker", "--port", ports[2 * number], "--cores", 1]
            worker += ["--webui-port", ports[2 * number + 1], "--memory", "512m"]
            start(f"worker-{number}", *worker, "--work-dir", folder / f"worker-{number}", found.master)
        until("two workers to be registered", lambda: _registered(found), 120)
        yield found
    finally:
        for process in reversed(found.processes.values()):
            process.terminate()
        for process in found.processes.values():
            process.wait(30)


def _registered(cluster: Cluster) -> bool:
    """Whether both workers say that the master knows them. Its own page answers before it is ready."""
    said = {name: (cluster.folder / f"{name}.log").read_text() for name in cluster.processes}
    for name, process in cluster.processes.items():
        assert process.poll() is None, f"{name} ended:\n{said[name][-2000:]}"
    return all("Successfully registered with master" in said[name] for name in said if name != "master")


class Submitted(Job):
    """`spark-submit jobs/main.py NAME...`, as docs/cluster.md says."""

    command = Path(sys.executable).with_name("spark-submit")

    def __init__(self, pipeline: Pipeline, cluster: Cluster, *names: str) -> None:
        jars = ",".join(str(jar) for jar in fetch(["spark"], print)["spark"])
        options = ["--master", cluster.master, "--jars", jars, "--driver-memory", "512m", "--executor-memory", "512m"]
        options += ["--conf", f"spark.driver.host={LOOPBACK}"]
        options += ["--driver-java-options", f"-Dlog4j2.configurationFile={ROOT / 'jobs' / 'log4j2.properties'}"]
        super().__init__(
            [*options, str(ROOT / "jobs" / "main.py"), *names],
            folder=pipeline.here.folder,
            environment={**pipeline.here.environ(), "PYSPARK_PYTHON": sys.executable},
            log=cluster.folder / f"submitted-{'-'.join(Path(name).name for name in names)}.log",
        )
        pipeline.here.jobs.append(self)

    def driver(self) -> int:
        """The Python process; the one that was started is a JVM."""
        found = []
        for process in self.family():
            with suppress(psutil.NoSuchProcess):  # a zombie, too
                if "main.py" in " ".join(process.cmdline()):
                    found.append(process.pid)
        (python,) = found
        return int(python)


def wrote(log: str) -> tuple[int, int]:
    """How many tasks an executor ran, and how many of them had Python write to a store."""
    return len(re.findall(r"Running task \d", log)), len(re.findall(r"MapInBatch.*Times: total", log))


def _writes(found: dict[str, tuple[int, int]]) -> dict[str, int]:
    return {worker: writes for worker, (_, writes) in found.items()}


@pytest.fixture(scope="module")
def pipeline(make_pipeline: MakePipeline, source: psycopg.Connection) -> Pipeline:
    source.execute("create table goods (id int primary key, name text, price numeric(10,2))")
    source.execute("insert into goods select n, 'good ' || n, n / 100.0 from generate_series(1, %s) n", (ROWS,))
    pipeline = make_pipeline(View("good", "public.goods"))
    pipeline.apply()
    return pipeline


def test_executors_of_both_workers_build_followers_and_the_driver_follows(
    pipeline: Pipeline, cluster: Cluster, source: psycopg.Connection
) -> None:
    job = Submitted(pipeline, cluster)
    pipeline.assert_in_step()
    (application,) = cluster.state()["activeapps"]
    assert (application["name"], application["cores"]) == ("driftless", 2)
    built = {worker: wrote(log) for worker, log in cluster.logs().items()}
    assert all(tasks and writes for tasks, writes in built.values()), built

    source.execute("update goods set name = 'changed' where id % 5000 = 0")
    source.execute("delete from goods where id % 7000 = 0")
    pipeline.assert_in_step()
    followed = {worker: wrote(log) for worker, log in cluster.logs().items()}
    # A small slice is read and written by the driver; in the public way, a job decodes it.
    assert _writes(followed) == _writes(built)
    if is_private_spark_known():
        assert followed == built

    os.kill(job.driver(), signal.SIGTERM)
    assert job.wait(60) == 0
    until("the application to be finished", lambda: not cluster.state()["activeapps"])


def test_a_follower_added_later_is_built_on_the_cluster(pipeline: Pipeline, cluster: Cluster) -> None:
    before = {worker: wrote(log)[1] for worker, log in cluster.logs().items()}
    pipeline.follow("later", View("good", "public.goods"), {"redis": {}})
    pipeline.apply()
    job = Submitted(pipeline, cluster, "later", "--until-caught-up")
    assert job.wait(240) == 0, job.output()
    assert not pipeline.differences(["later"])
    after = {worker: wrote(log)[1] for worker, log in cluster.logs().items()}
    assert all(after[worker] > before[worker] for worker in after), (before, after)


def test_a_follower_is_rebuilt_on_the_cluster(pipeline: Pipeline, cluster: Cluster) -> None:
    job = Submitted(pipeline, cluster, "good-search")
    until("the follower to be live", lambda: pipeline.follower("good-search")["state"] == "live", 120)
    before = {worker: wrote(log)[1] for worker, log in cluster.logs().items()}
    done = pipeline.here("rebuild", "good-search", "--json", seconds=240)
    assert done.json() == {"follower": "good-search", "generation": 2, "promoted": True}, done.err
    after = {worker: wrote(log)[1] for worker, log in cluster.logs().items()}
    assert all(after[worker] > before[worker] for worker in after), (before, after)
    pipeline.assert_in_step("good-search")
    os.kill(job.driver(), signal.SIGTERM)
    assert job.wait(60) == 0


def test_a_python_worker_that_is_killed_holds_nothing_up(pipeline: Pipeline, cluster: Cluster) -> None:
    """While it writes to the store: Spark gives its task to another."""
    job = Submitted(pipeline, cluster, "good-search")
    until("the follower to be live", lambda: pipeline.follower("good-search")["state"] == "live", 120)
    number = max(g["n"] for g in pipeline.follower("good-search")["generations"]) + 1
    rebuild = pipeline.here.start("rebuild", "good-search", "--json")
    for worker in until("executors to start Python", cluster.python_workers, 120):
        with suppress(psutil.NoSuchProcess):
            worker.kill()
    assert rebuild.wait(240) == 0, rebuild.output()
    answer = json.loads(rebuild.output().splitlines()[-1])  # progress stands before it
    assert answer == {"follower": "good-search", "generation": number, "promoted": True}
    pipeline.assert_in_step("good-search")
    os.kill(job.driver(), signal.SIGTERM)
    assert job.wait(60) == 0


def test_a_process_group_that_is_told_to_end_ends_without_a_trace(pipeline: Pipeline, cluster: Cluster) -> None:
    """As systemd does it: the JVM gets the signal too, and is gone before Python has finished."""
    job = Submitted(pipeline, cluster, "good-cache")
    until("the follower to be live", lambda: pipeline.follower("good-cache")["state"] == "live", 120)
    family = job.family()
    os.killpg(job.process.pid, signal.SIGTERM)
    job.wait(60)
    until("Python to end", lambda: not any(process.is_running() for process in family), 30)
    assert "Traceback" not in job.output()
    assert pipeline.follower("good-cache")["state"] == "stopped"


def test_a_submission_without_the_kafka_source_says_what_is_missing(pipeline: Pipeline, cluster: Cluster) -> None:
    command = [Submitted.command, "--master", cluster.master]
    command += ["--conf", f"spark.driver.host={LOOPBACK}", "--executor-memory", "512m", ROOT / "jobs" / "main.py"]
    environment = {**pipeline.here.environ(), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=pipeline.here.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "without its Kafka source" in done.stdout  # spark-submit puts both of Python's outputs there
    assert "Traceback" not in done.stdout + done.stderr
