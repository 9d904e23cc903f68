"""What verify keeps on disk: every spool is a file of its own, and gives back what was put into it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from driftless.verify.spool import SOURCE, Spool


def test_spools_of_tables_whose_names_differ_behind_a_dot_are_kept_apart(tmp_path: Path) -> None:
    spools = {name: Spool(tmp_path / f"public.orders-0-{name}", SOURCE) for name in ("log", "source")}
    for number, (name, spool) in enumerate(spools.items()):
        for _ in range(2):
            spool.append({"key": [name], "hash": np.array([number]), "canon": np.array([7])})
            spool.close()
    assert {name: spool.keys(np.array([0, 1])) for name, spool in spools.items()} == {
        "log": {0: "log"},
        "source": {1: "source"},
    }
    assert len(list(tmp_path.iterdir())) == 4
