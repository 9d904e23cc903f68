"""PGSync, which asks the database for every document: what views are measured beside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from psycopg.conninfo import conninfo_to_dict

from bench.orders import pgsync_schema
from stack import Endpoints, stack_home

VERSION = "7.3.0"
_SETTINGS = {
    "NUM_WORKERS": "2",
    "ELASTICSEARCH_CHUNK_SIZE": "5000",
    "ELASTICSEARCH_THREAD_COUNT": "4",
    "QUERY_CHUNK_SIZE": "10000",
    "LOGICAL_SLOT_CHUNK_SIZE": "5000",
    "LOG_LEVEL": "WARNING",
}
"""As its users tune it for speed."""


class PGSync:
    """Installed once, in an environment of its own beside the stacks."""

    def __init__(self, endpoints: Endpoints, dsn: str, index: str, folder: Path) -> None:
        self._place = stack_home() / "peers" / f"pgsync-{VERSION}"
        self._folder = folder
        database = conninfo_to_dict(dsn)
        (folder / "schema.json").write_text(json.dumps(pgsync_schema(str(database["dbname"]), index)))
        cache, search = urlsplit(endpoints.redis), urlsplit(endpoints.opensearch)
        self._environment = {
            "PATH": os.environ["PATH"],
            **_SETTINGS,
            "PG_USER": str(database["user"]),
            "PG_PASSWORD": str(database.get("password", "")),
            "PG_HOST": str(database["host"]),
            "PG_PORT": str(database["port"]),
            "OPENSEARCH": "true",
            "ELASTICSEARCH": "false",
            "ELASTICSEARCH_HOST": str(search.hostname),
            "ELASTICSEARCH_PORT": str(search.port),
            "ELASTICSEARCH_SCHEME": search.scheme,
            "REDIS_HOST": str(cache.hostname),
            "REDIS_PORT": str(cache.port),
            "CHECKPOINT_PATH": str(folder),
        }

    def install(self) -> None:
        if not (self._place / "bin" / "pgsync").exists():
            subprocess.run([sys.executable, "-m", "venv", str(self._place)], check=True)
            pip = [str(self._place / "bin" / "pip"), "install", "--quiet", f"pgsync=={VERSION}"]
            subprocess.run(pip, check=True)

    def bootstrap(self) -> None:
        """Its triggers and its slot."""
        self._run("bootstrap")

    def tear_down(self) -> None:
        self._run("bootstrap", "--teardown")

    def sync(self) -> float:
        """Seconds that one run takes: of everything at first, then of what is new."""
        begun = time.monotonic()
        self._run("pgsync")
        return time.monotonic() - begun

    @contextmanager
    def following(self) -> Iterator[None]:
        """While it follows."""
        with (self._folder / "pgsync.log").open("wb") as log:
            process = subprocess.Popen(
                self._command("pgsync", "--daemon"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=self._environment,
            )
            try:
                yield
            finally:
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def _run(self, name: str, *more: str) -> None:
        done = subprocess.run(
            self._command(name, *more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=1800,
            cwd=self._folder,
            env=self._environment,
        )
        assert done.returncode == 0, f"{name} ended with {done.returncode}: {done.stderr[-2000:]}"

    def _command(self, name: str, *more: str) -> list[str]:
        return [str(self._place / "bin" / name), "--config", "schema.json", *more]
