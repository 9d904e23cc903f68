"""Run docker-compose.yml for real where no image can be pulled, by going through docs/compose.md.

    .venv/bin/python -m tests.compose.try FOLDER        # as root, on Debian 12; 15 minutes and 8 GB the first time

An engine of our own (engine.py) runs stand-ins for the published images (standins/) under their names, and the two
images that are ours, built as anybody builds them. So this shows our images, the wiring, the page's commands, and what
is promised about ports, users and passwords; of the published images it shows that their names and variables are used
as the stand-ins understand them. Not part of CI.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
from ruamel.yaml import YAML

from stack import fetch
from stack.machine import unpack
from stack.machine.ports import DEFAULT_PORTS
from tests.compose.engine import MIRROR, SUITE, Tools, engine, run
from tests.support.files import ROOT

PAGE = ROOT / "docs" / "compose.md"
CERTIFICATES = Path("/usr/local/share/ca-certificates")
BASE = "python:3.13-slim-trixie"
INDEX = "http://127.0.0.1:59200/products/_search?size=10"


class Compose:
    """`docker compose` on the repository's file, as the page's reader has it."""

    def __init__(self, environment: Mapping[str, str], password: str, folder: Path) -> None:
        self.token = secrets.token_hex(16)
        more = {"POSTGRES_PASSWORD": password, "SYNC_FILE": str(folder / "sync.yaml"), "SERVE_TOKEN": self.token}
        self.environment = {**environment, **more}

    def __call__(self, *arguments: str) -> str:
        return run("docker", "compose", *arguments, folder=ROOT, environment=self.environment)

    def shell(self, block: str) -> str:
        """Type a block of the page."""
        print("".join(f"$ {line}\n" for line in block.splitlines()), end="", flush=True)
        said = run("bash", "-euc", block, folder=ROOT, environment=self.environment)
        print(said, flush=True)
        return said

    def sql(self, statement: str) -> str:
        return self("exec", "-T", "postgres", "psql", "-U", "postgres", "-Atc", statement).strip()

    def cached(self, key: int) -> dict[str, object] | None:
        text = self("exec", "-T", "redis", "redis-cli", "get", f"product:{key}").strip()
        return json.loads(text) if text else None

    def found(self) -> dict[int, object]:
        """id -> price, of the whole index."""
        hits = json.loads(run("curl", "-sf", INDEX))["hits"]["hits"]
        return {hit["_source"]["id"]: hit["_source"]["price"] for hit in hits}

    def containers(self) -> dict[str, dict[str, str]]:
        lines = self("ps", "--all", "--format", "json").splitlines()
        return {entry["Service"]: entry for entry in map(json.loads, lines)}

    def healthy(self) -> bool:
        return all(container["Health"] == "healthy" for container in self.containers().values())

    def wait(self) -> None:
        self("run", "--rm", "driftless", "wait", "--lsn", self.sql("select pg_current_wal_lsn()"), "--timeout", "120")


def main(folder: Path) -> None:
    """Build, start, go through the page, look at the promises, take everything away."""
    if os.geteuid() != 0:
        raise SystemExit("this starts a Docker engine: run it as root")
    folder.mkdir(parents=True, exist_ok=True)
    tools = Tools(folder)
    tools.fetch()
    with engine(tools) as environment:
        stand_ins(tools, environment)
        compose = Compose(environment, secrets.token_urlsafe(12), folder)
        say("building our images")
        compose("--profile", "*", "build")
        try:
            page(compose, folder)
            promises(compose)
            mishaps(compose)
        except BaseException:
            shown = subprocess.run(
                ["docker", "compose", "logs", "--tail", "60"],
                cwd=ROOT, env=compose.environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            print(shown.stdout[-12000:], flush=True)
            raise
        finally:
            compose("--profile", "*", "down", "--volumes", "--timeout", "20")
    say("everything holds; the network is as it was")


def say(what: str) -> None:
    print(f"== {time.strftime('%H:%M:%S')} {what}", flush=True)


def images(environment: Mapping[str, str]) -> set[str]:
    return set(run("docker", "images", "--format", "{{.Repository}}:{{.Tag}}", environment=environment).split())


def stand_ins(tools: Tools, environment: Mapping[str, str]) -> None:
    """Make an image for every name that is published elsewhere."""
    if BASE not in images(environment):
        say("making the base image")
        rootfs = tools.folder / "rootfs"
        shutil.rmtree(rootfs, ignore_errors=True)
        packages = "--include=ca-certificates,python3,python3-venv"
        run("debootstrap", "--variant=minbase", packages, SUITE, rootfs, MIRROR, environment=environment)
        # What this machine trusts beside the public authorities.
        for certificate in CERTIFICATES.glob("*.crt"):
            shutil.copy(certificate, rootfs / CERTIFICATES.relative_to("/"))
        run("chroot", rootfs, "update-ca-certificates")
        run("bash", "-c", f"tar -C {rootfs} -c . | docker import - standin/base", environment=environment)
        run("docker", "tag", "standin/base", BASE, environment=environment)
        shutil.rmtree(rootfs)
    context = tools.folder / "standins"
    shutil.rmtree(context, ignore_errors=True)
    shutil.copytree(Path(__file__).parent / "standins", context)
    files = fetch(["kafka"], print)
    (context / "kafka").mkdir()
    for jar in files["kafka"]:
        shutil.copy(jar, context / "kafka")
    shutil.copy(unpack.redis_tree(print) / "redis-server", context)
    shutil.copytree(unpack.opensearch_tree(21, print), context / "opensearch")
    services = YAML(typ="safe").load(ROOT / "docker-compose.yml")["services"]
    for name, entry in services.items():
        if "build" not in entry:
            say(f"making a stand-in for {entry['image']}")
            run("docker", "build", "--target", name, "--tag", entry["image"], context, environment=environment)
    shutil.rmtree(context)


def page(compose: Compose, folder: Path) -> None:
    """Every command of docs/compose.md, in its order."""
    text = PAGE.read_text(encoding="utf-8")
    for kind, block in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        say(f"the page's next block ({kind})")
        if kind == "yaml":
            (folder / "sync.yaml").write_text(block)
            continue
        said = compose.shell(block)
        if "compose ps" in block:
            until(
                "every server to be healthy",
                lambda: all(c["Health"] == "healthy" for c in compose.containers().values()),
            )
        if "wait --lsn" in block:
            expect('"price":99.00' in said.replace(" ", ""), "the changed row is in the cache")
            expect("Waterproof jacket" in said, "the index finds it")
            expect("live" in said, "status says live")
        if "prometheus" in block:
            watched(compose)
    expect(compose.found() == {1: 99.0, 2: 14.5, 3: 24.0}, "the index holds the three rows")


def watched(compose: Compose) -> None:
    """Prometheus scrapes the page's service, with the token, and has our rules; without the token nobody does."""

    def asked(path: str) -> Any:
        return json.loads(run("curl", "-sf", f"http://127.0.0.1:59090/api/v1/{path}"))["data"]

    def scraped() -> bool:
        return [one["value"][1] for one in asked("query?query=driftless_source_up")["result"]] == ["1"]

    until("Prometheus to scrape the service", scraped)
    rules = [rule["name"] for group in asked("rules")["groups"] for rule in group["rules"]]
    expect("DriftlessDrift" in rules and "DriftlessServeIsAway" in rules, f"it has {len(rules)} rules")
    url = "http://127.0.0.1:58480/status"
    code = run("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", url)
    expect(code == "401", "the service says nothing without the token")
    said = run("curl", "-sf", "-H", f"Authorization: Bearer {compose.token}", url)
    expect(json.loads(said)["problems"] == [], "and with it that all is well")


def promises(compose: Compose) -> None:
    """Nobody is root, nothing listens beyond loopback, and Connect's topics hold no password."""
    running = compose.containers()
    for service in running:
        expect(compose("exec", "-T", service, "id", "-u").strip() != "0", f"{service} is not root")
    listening = re.findall(r"(\S+):(\d+) ", run("ss", "--no-header", "--listening", "--tcp", "--numeric"))
    heard = {address for address, port in listening if int(port) in {*DEFAULT_PORTS.values(), 58480, 59090}}
    expect(heard == {"127.0.0.1"}, f"ports are open on loopback alone: {heard}")
    password = compose.environment["POSTGRES_PASSWORD"]
    look = ["grep", "-rlaF", "--", password, "/var/lib/kafka/data"]
    command = ["docker", "compose", "exec", "-T", "kafka", *look]
    found = subprocess.run(command, cwd=ROOT, env=compose.environment, capture_output=True, text=True, check=False)
    expect(found.returncode == 1 and not found.stdout, "the password is in no file of Kafka")
    known = ["grep", "-rlaF", "--", "SOURCE_PASSWORD", "/var/lib/kafka/data"]
    expect("_connect-configs" in compose("exec", "-T", "kafka", *known), "its name is: the search works")


def mishaps(compose: Compose) -> None:
    """A killed follower comes back, data outlive `down`, and deletes are carried."""
    say("the follower is killed")
    number = compose("ps", "--quiet", "driftless").strip()
    pid = int(run("docker", "inspect", "--format", "{{.State.Pid}}", number, environment=compose.environment))
    psutil.Process(pid).kill()
    compose.sql("update products set price = 12.34 where id = 2; delete from products where id = 3")
    compose.wait()
    expect(compose.cached(2) == {"id": 2, "title": "Merino socks", "price": 12.34}, "it came back and went on")
    expect(compose.cached(3) is None, "the deleted row is gone from the cache")
    # A search shows what was written before the last refresh, which comes every second.
    until("it to be gone from the index", lambda: compose.found() == {1: 99.0, 2: 12.34}, 20)
    say("everything is stopped and started again")
    compose("--profile", "*", "down", "--timeout", "30")
    compose("up", "-d")
    compose("up", "-d", "driftless")
    compose.sql("insert into products values (4, 'Scarf', 31)")
    compose.wait()
    left = {1: 99.0, 2: 12.34, 4: 31.0}
    until("data to have outlived `down`, and the follower to go on", lambda: compose.found() == left, 20)
    expect("nothing to change" in compose("run", "--rm", "driftless", "plan"), "plan has nothing to do")


def until(what: str, probe: Callable[[], bool], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not probe():
        if time.monotonic() > deadline:
            raise SystemExit(f"after {seconds:g} s still waiting for: {what}")
        time.sleep(1)
    print(f"ok: {what}", flush=True)


def expect(true: bool, what: str) -> None:
    if not true:
        raise SystemExit(f"NOT SO: {what}")
    print(f"ok: {what}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(f"{__doc__}")
    main(Path(sys.argv[1]).absolute())
