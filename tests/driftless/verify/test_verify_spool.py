"""What verify keeps on disk: every spool is a file of its own, and gives back what was put into it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from driftless.verify.spool import SOURCE, Spool, hashes


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


def test_what_a_store_keeps_under_another_name_is_judged_under_its_own(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "search", SOURCE)
    held = ["sha256:02", "7", "sha256:01"]
    spool.append({"key": held, "hash": hashes(held), "canon": np.array([2, 7, 1])})
    spool.rename({"sha256:01": "a long key", "sha256:02": "another", "sha256:03": "one that is not there"})
    wanted = hashes(["another", "7", "a long key"])
    assert spool.load("hash", "canon")["hash"].tolist() == wanted.tolist()
    assert spool.load("canon", only=wanted[2:])["canon"].tolist() == [1]
    assert spool.keys(wanted[:1]) == {int(wanted[0]): "sha256:02"}
