"""`down --purge` leaves nothing of a stack's pipelines on the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.base import app
from stack import Stack


def test_what_the_pipelines_of_a_stack_kept_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRIFTLESS_HOME", str(tmp_path))
    Stack("try").write_secret("shop", "secret")
    for pipeline in ("shop", "other"):
        for kept in ("rows", "verify"):
            (tmp_path / kept / pipeline).mkdir(parents=True)
    assert CliRunner().invoke(app, ["down", "--name", "try"]).exit_code == 0
    assert (tmp_path / "rows" / "shop").is_dir()
    purged = CliRunner().invoke(app, ["down", "--name", "try", "--purge"])
    assert purged.exit_code == 0, purged.output
    assert sorted(path.name for kept in ("rows", "verify") for path in (tmp_path / kept).iterdir()) == ["other"] * 2
    assert not Stack("try").folder.exists()
