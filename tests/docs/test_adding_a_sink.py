"""docs/adding-a-sink.md, followed word by word: a third kind of store in a package of its own, with no list edited."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.files import ROOT

PAGE = (ROOT / "docs" / "adding-a-sink.md").read_text(encoding="utf-8")
FILES: dict[str, str] = dict(re.findall(r"^`(\S+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
(COMMANDS,) = re.findall(r"^```shell\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(FOLLOWER,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SYNC = f"""
name: shop
source:
  dsn: postgresql://localhost/shop
  tables: {{public.products: {{}}}}
kafka: {{bootstrap: "localhost:9092"}}
connect: {{url: "http://localhost:8083"}}
views: {{product: {{root: public.products}}}}
{FOLLOWER}"""
ASK = """
import sys
from pathlib import Path
from driftless.config.load import load
from sinks import config_model, kinds
print(load(Path(sys.argv[1]), {kind: config_model(kind) for kind in kinds()}).followers["product-file"].kind)
"""


class Checkout:
    """The repository with the package beside it, as somebody has them who follows the page."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._installed = folder / "site-packages"
        for name, text in FILES.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Python from the checkout, in an environment where the package is installed."""
        path = os.pathsep.join(map(str, (self._installed, self._folder / "driftless-sqlite")))
        return subprocess.run(
            [sys.executable, *args],
            cwd=ROOT,
            env={**os.environ, "PYTEST_ADDOPTS": "", "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def install(self, package: str) -> None:
        """What `pip install --editable` leaves behind of pyproject.toml, without a download of its build tools."""
        project = tomllib.loads((self._folder / package / "pyproject.toml").read_text())["project"]
        facts = self._installed / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        facts.mkdir(parents=True)
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1\n")
        lines = [
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
            for group, points in project["entry-points"].items()
        ]
        (facts / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_page_adds_a_sink_that_passes_the_suite(checkout: Checkout, tmp_path: Path) -> None:
    install, test = (shlex.split(line) for line in COMMANDS.splitlines())
    assert install[:-1] == [".venv/bin/python", "-m", "pip", "install", "--editable"]
    checkout.install(Path(install[-1]).name)
    assert test[:3] == [".venv/bin/python", "-m", "pytest"]
    done = checkout.run("-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / Path(test[-1]).name))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout

    (tmp_path / "sync.yaml").write_text(SYNC)
    assert checkout.run("-c", ASK, str(tmp_path / "sync.yaml")).stdout == "sqlite\n"


def test_a_package_that_cannot_be_loaded_is_named(checkout: Checkout, tmp_path: Path) -> None:
    checkout.install("driftless-sqlite")
    (tmp_path / "driftless-sqlite" / "driftless_sqlite.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "sync.yaml").write_text(SYNC)
    done = checkout.run("-c", "from cli import main; main()", "check", "-f", str(tmp_path / "sync.yaml"))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "`sqlite` of the package driftless-sqlite cannot be loaded" in done.stdout + done.stderr
    assert "pip uninstall driftless-sqlite" in done.stdout + done.stderr
