"""Fill the Connect image: the same jars, settings and options as the local stack's worker (stack/images/Dockerfile).

python -m stack.image /opt/connect
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from stack.machine import artifacts
from stack.machine.home import Report
from stack.servers.connect import HEAP, LEVELS, MAIN, worker_settings
from stack.servers.server import jvm_options, log4j2, properties

SECRETS = Path("/run/secrets")
"""Where Compose and Swarm put the files of secrets."""


def settings(folder: Path) -> dict[str, object]:
    """The worker's settings in docker-compose.yml's network, with the plugins in `folder`."""
    return {
        **worker_settings(bootstrap="kafka:9092", plugins=folder / "plugins", secrets=SECRETS),
        "group.id": "connect-compose",
        "listeners": "http://0.0.0.0:8083",
        "rest.advertised.host.name": "connect",
        "rest.advertised.port": 8083,
    }


def fill(folder: Path, report: Report) -> None:
    """Put all that the worker needs into the folder."""
    files = artifacts.fetch(["kafka", "debezium"], report)
    for jars, place in ((files["kafka"], folder / "lib"), (files["debezium"], folder / "plugins" / "debezium")):
        place.mkdir(parents=True)
        for jar in jars:
            shutil.copy(jar, place)
    logging = folder / "log4j2.properties"
    logging.write_text(log4j2(LEVELS), encoding="utf-8")
    (folder / "worker.properties").write_text(properties(settings(folder)), encoding="utf-8")
    # `java @options ...`: one argument a line.
    options = [*jvm_options(HEAP), f"-Dlog4j2.configurationFile={logging}", "-cp", f"{folder / 'lib'}/*", MAIN]
    (folder / "java.options").write_text("".join(f"{option}\n" for option in options), encoding="utf-8")


if __name__ == "__main__":
    fill(Path(sys.argv[1]), print)
