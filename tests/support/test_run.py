from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.run import unmount


def test_a_disk_that_a_test_left_mounted_does_not_keep_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "stack" / "data" / "small"
    folder.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode()}")
    with (folder / "open").open("w"):
        unmount(tmp_path / "stack")
        shutil.rmtree(tmp_path / "stack")
    assert not (tmp_path / "stack").exists()
