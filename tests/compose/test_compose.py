"""docker-compose.yml and the images: versions and settings of the local stack, closed, without secrets.

No Docker here. `tests/compose/try.py` runs the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import sinks
from cli.setup import _secret
from connectors.debezium.connector import connector_settings
from driftless.config.load import load
from driftless.config.models import Config
from stack import image
from stack.machine import artifacts, unpack
from stack.machine.ports import DEFAULT_PORTS
from stack.servers import connect, kafka, opensearch, postgres
from stack.servers.server import Site, jvm_options
from stack.stack import KINDS
from tests.support.files import ROOT

PAGE = ROOT / "docs" / "compose.md"
DOCKERFILE = ROOT / "stack" / "images" / "Dockerfile"
COMPOSE: dict[str, Any] = YAML(typ="safe").load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ("connect", "driftless", "serve")
WATCHING = {"serve": 58480, "prometheus": 59090}
"""What watches the pipeline, with the ports on which it is published."""

RUNS_AS = {"opensearch": "its image says USER 1000, and the server refuses to run as root"}
"""Services without a `user` of their own in the file, and why they do not run as root all the same."""

PLACES = {
    "postgres": {"data_directory", "hba_file", "ident_file", "listen_addresses", "port", "unix_socket_directories"},
    "redis": {"bind", "port", "dir", "daemonize", "logfile"},
    "kafka": {
        "controller.quorum.voters",
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "log.dirs",
    },
    "connect": {
        "bootstrap.servers",
        "group.id",
        "listeners",
        "plugin.path",
        "rest.advertised.host.name",
        "rest.advertised.port",
        "config.providers.file.param.allowed.paths",
        "config.providers.dir.param.allowed.paths",
    },
    "opensearch": {"cluster.name", "network.host", "http.port", "transport.port", "path.data", "path.logs"},
}
"""Settings that say where a server is; they differ from the local stack's, and all others must not."""


def test_the_services_are_the_local_stack_and_driftless() -> None:
    assert set(SERVICES) == {*KINDS, "driftless", *WATCHING}


# -- versions -------------------------------------------------------------------------------------------------------


def tag(service: str, repository: str) -> tuple[int, ...]:
    name, _, version = SERVICES[service]["image"].partition(":")
    assert name == repository
    return numbers(version)


def numbers(version: str) -> tuple[int, ...]:
    """`17.11` -> (17, 11); a tag that is not whole numbers, as `latest`, is refused."""
    return tuple(int(part) for part in version.split("."))


@pytest.mark.parametrize(
    ("service", "repository", "conf"),
    [("kafka", "apache/kafka", "kafka"), ("opensearch", "opensearchproject/opensearch", "opensearch3")],
)
def test_an_image_has_the_very_version_of_the_artifacts(service: str, repository: str, conf: str) -> None:
    assert tag(service, repository) == numbers(artifacts.version(conf))


@pytest.mark.parametrize(
    ("service", "ours"),
    [("postgres", artifacts.version("postgres-linux-amd64").removesuffix(".0")), ("redis", unpack.REDIS)],
)
def test_an_image_of_fixes_is_of_the_same_major_and_not_older(service: str, ours: str) -> None:
    """The artifacts end at a minor release that has known holes; later ones of the same major only mend."""
    found = tag(service, service)
    assert found[0] == numbers(ours)[0]
    assert found >= numbers(ours)


def test_our_images_name_no_version_of_their_own_but_the_base() -> None:
    """Jars come by stack/artifacts.xml, Python packages by requirements.lock and its hashes."""
    text = DOCKERFILE.read_text(encoding="utf-8")
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    stages = re.findall(r"^FROM \S+ AS (\S+)$", text, re.MULTILINE)
    assert [base for base in bases if base not in stages] == ["python:3.13-slim-trixie"]
    code = "\n".join(line for line in text.splitlines() if not line.startswith(("#", "FROM python:")))
    assert re.findall(r"\d+\.\d+\S*|https?:|\.jar|==", code) == []
    assert "--require-hashes --requirement requirements.lock" in code
    assert "# syntax" not in text  # its frontend is an image of its own


def test_the_images_hold_what_the_artifact_list_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = {conf: [tmp_path / f"{conf}-{n}.jar" for n in range(2)] for conf in ("kafka", "debezium")}
    asked = []

    def fetch(confs: list[str], _: object) -> dict[str, list[Path]]:
        asked.append(confs)
        return {conf: jars[conf] for conf in confs}

    for paths in jars.values():
        for path in paths:
            path.write_bytes(b"jar")
    monkeypatch.setattr(artifacts, "fetch", fetch)
    image.fill(tmp_path / "image", print)
    assert asked == [["kafka", "debezium"]]
    found = {str(p.relative_to(tmp_path / "image")) for p in (tmp_path / "image").rglob("*") if p.is_file()}
    texts = {"java.options", "log4j2.properties", "worker.properties"}
    assert found == texts | {f"lib/kafka-{n}.jar" for n in range(2)} | {
        f"plugins/debezium/debezium-{n}.jar" for n in range(2)
    }
    options = (tmp_path / "image" / "java.options").read_text().splitlines()
    assert options[: len(jvm_options(connect.HEAP))] == jvm_options(connect.HEAP)
    assert options[-3:] == ["-cp", f"{tmp_path / 'image' / 'lib'}/*", connect.MAIN]
    assert "exactly.once.source.support=enabled\n" in (tmp_path / "image" / "worker.properties").read_text()


def test_the_folder_that_connects_providers_may_read_is_there() -> None:
    """The worker does not start without it (seen), and Compose makes it only for a service that has secrets."""
    stage = DOCKERFILE.read_text().split(" AS connect\n")[1].split("\nFROM ")[0]
    assert f"RUN install -d {image.SECRETS}\n" in stage
    assert str(image.settings(Path("/x"))["config.providers.dir.param.allowed.paths"]) == str(image.SECRETS)


# -- settings -------------------------------------------------------------------------------------------------------


def local(service: str, folder: Path) -> dict[str, str]:
    """What the local stack's server is told, as text, without where it is."""
    settings = KINDS[service](Site("compose", folder, DEFAULT_PORTS, None)).settings()
    assert PLACES[service] <= set(settings), "a setting was renamed"
    return {key: str(value) for key, value in settings.items() if key not in PLACES[service]}


def composed(service: str) -> dict[str, str]:
    """What the compose file, or our image, tells the same server."""
    entry = SERVICES[service]
    if service == "postgres":
        assert entry["command"][0] == "postgres"
        return dict(part.removeprefix("-c").split("=", 1) for part in entry["command"][1:])
    if service == "redis":
        assert entry["command"][0] == "redis-server"
        words = entry["command"][1:]
        return {key.removeprefix("--"): value for key, value in zip(words[::2], words[1::2], strict=True)}
    if service == "connect":
        return {key: str(value) for key, value in image.settings(Path("/opt/connect")).items()}
    environment = {key: str(value) for key, value in entry["environment"].items()}
    if service == "kafka":
        # The image's own rule: KAFKA_NODE_ID is node.id.
        return {
            key.removeprefix("KAFKA_").lower().replace("_", "."): value
            for key, value in environment.items()
            if key.startswith("KAFKA_") and key != "KAFKA_HEAP_OPTS"
        }
    return {key: value for key, value in environment.items() if "." in key}


ONLY_HERE = {
    "redis": {"maxmemory": "512mb"},  # below mem_limit, so that a full store says so before the kernel kills it
    "kafka": {"inter.broker.listener.name": "PLAINTEXT"},  # there are two listeners for clients
}


@pytest.mark.parametrize("service", list(KINDS))
def test_settings_are_those_of_the_local_stack(service: str, tmp_path: Path) -> None:
    told = {key: value for key, value in composed(service).items() if key not in PLACES[service]}
    assert told == local(service, tmp_path) | ONLY_HERE.get(service, {})


def test_heaps_and_locale_are_those_of_the_local_stack() -> None:
    assert SERVICES["kafka"]["environment"]["KAFKA_HEAP_OPTS"] == f"-Xms256m -Xmx{kafka.HEAP}"
    assert SERVICES["opensearch"]["environment"]["OPENSEARCH_JAVA_OPTS"] == opensearch.HEAP
    assert SERVICES["postgres"]["environment"]["POSTGRES_INITDB_ARGS"] == " ".join(postgres.LOCALE)


def test_clients_on_the_host_are_sent_to_the_published_port_of_kafka() -> None:
    told = composed("kafka")
    assert told["advertised.listeners"] == f"PLAINTEXT://kafka:9092,HOST://127.0.0.1:{DEFAULT_PORTS['kafka']}"
    assert SERVICES["kafka"]["ports"] == [f"127.0.0.1:{DEFAULT_PORTS['kafka']}:{DEFAULT_PORTS['kafka']}"]


# -- who may come in, and who runs ----------------------------------------------------------------------------------


def test_ports_are_the_contracts_and_on_loopback_alone() -> None:
    published = {name: port.split(":") for name, entry in SERVICES.items() for port in entry.get("ports", [])}
    assert {name: int(parts[1]) for name, parts in published.items()} == {
        **{n: DEFAULT_PORTS[n] for n in KINDS},
        **WATCHING,
    }
    assert {parts[0] for parts in published.values()} == {"127.0.0.1"}
    assert not [name for name, entry in SERVICES.items() if "network_mode" in entry]


@pytest.mark.parametrize("service", list(SERVICES))
def test_a_service_is_no_root_and_cannot_become_it(service: str) -> None:
    entry = SERVICES[service]
    assert entry["cap_drop"] == ["ALL"]
    assert entry["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "devices", "pid", "ipc"} & set(entry)
    if service in OURS:
        stage = DOCKERFILE.read_text().split(f" AS {entry['build']['target']}\n")[1].split("\nFROM ")[0]
        assert re.findall(r"^USER (.*)$", stage, re.MULTILINE) == ["driftless"]
    elif service not in RUNS_AS:
        assert entry["user"] not in ("root", "0", 0)


@pytest.mark.parametrize("service", list(SERVICES))
def test_a_service_is_watched_bounded_and_started_again(service: str) -> None:
    entry = SERVICES[service]
    assert entry["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    assert re.fullmatch(r"\d+[mg]", entry["mem_limit"])
    assert entry["restart"] == "unless-stopped"
    for need, how in entry.get("depends_on", {}).items():
        assert how == {"condition": "service_healthy"}
        assert need in SERVICES


def test_what_a_server_keeps_is_in_a_named_volume() -> None:
    kept = {entry["volumes"][0].split(":")[0]: name for name, entry in SERVICES.items() if name in COMPOSE["volumes"]}
    assert kept == {name: name for name in ("postgres", "redis", "kafka", "opensearch", "prometheus")}


def test_servers_start_without_a_configuration_and_driftless_only_when_named() -> None:
    assert {name for name, entry in SERVICES.items() if "profiles" in entry} == {"driftless", *WATCHING}
    mount, rows = SERVICES["driftless"]["volumes"]
    assert mount["read_only"]
    # Else Docker would make a folder of that name where the file is missing.
    assert mount["bind"] == {"create_host_path": False}
    assert rows == "rows:/opt/driftless/rows"
    assert "RUN install -d -o driftless /opt/driftless/rows\n" in DOCKERFILE.read_text()


# -- secrets --------------------------------------------------------------------------------------------------------


def texts(node: object) -> Iterator[tuple[str, str]]:
    """Every (key, text) of the file."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from ((str(key), text) for _, text in texts(value)) if isinstance(value, str) else texts(value)
    elif isinstance(node, list):
        for value in node:
            yield from texts(value)
    else:
        yield "", str(node)


def test_a_password_is_asked_of_the_environment_with_a_local_default_at_most() -> None:
    secret = re.compile("password|secret|token", re.IGNORECASE)
    named = {key: text for key, text in texts(SERVICES) if secret.search(key)}
    assert set(named) == {"POSTGRES_PASSWORD", "SOURCE_PASSWORD", "PGPASSWORD"}
    database = "${POSTGRES_PASSWORD:-local-only}"
    assert set(named.values()) == {database, f"${{SOURCE_PASSWORD:-{database}}}"}
    assert not re.search(r"://[^/\s]*:[^/\s]*@", (ROOT / "docker-compose.yml").read_text())


def test_what_is_built_holds_no_file_of_the_operators() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = {
        word
        for words in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
        for word in words.split()
    }
    assert let_in == copied
    assert not let_in & {".git", ".env", "sync.yaml", ".", "*"}


@pytest.fixture
def page_config(tmp_path: Path) -> Config:
    """The page's sync.yaml. It asks for no variable, so it needs no environment."""
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (tmp_path / "sync.yaml").write_text(text)
    return load(tmp_path / "sync.yaml", {kind: sinks.config_model(kind) for kind in sinks.kinds()})


def test_the_pages_configuration_names_the_services(page_config: Config) -> None:
    address = re.compile(r"(?:(?:https?|redis|postgresql)://(?:\w+@)?)?(\w+):(\d+)(?:/\w*)?")
    urls = [page_config.source.dsn, page_config.kafka.bootstrap, page_config.connect.url]
    urls += [follower.sink["url"] for follower in page_config.followers.values()]
    found = {}
    for url in urls:
        match = address.fullmatch(url)
        assert match, url
        found[match[1]] = int(match[2])
    assert found == {"postgres": 5432, "kafka": 9092, "connect": 8083, "opensearch": 9200, "redis": 6379}


def test_connect_is_told_the_name_of_the_password_and_not_the_password(page_config: Config) -> None:
    reference = _secret(page_config, None, store=False)
    assert reference == "${env:SOURCE_PASSWORD}"
    assert "SOURCE_PASSWORD" in SERVICES["connect"]["environment"]
    settings = connector_settings(
        page_config, {"host": "postgres", "port": 5432, "user": "postgres", "dbname": "shop"}, reference, {}
    )
    assert settings["database.password"] == reference
    assert "env" in str(image.settings(Path("/opt/connect"))["config.providers"]).split(",")
