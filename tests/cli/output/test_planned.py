"""What `plan` and `apply` print: every step of a short plan, kinds of steps of a long one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cli.output.planned import SHORT, samples_told, steps_told
from connectors.pipeline.plan_context import Action, steps
from connectors.pipeline.samples import Sample

TABLES = [f"public.t{n:03}" for n in range(500)]


def told(actions: Sequence[Action], *, whole: bool = False) -> list[str]:
    return list(steps_told(actions, whole=whole))


def first_apply() -> list[Action]:
    """What `apply` does for 500 tables that nobody has followed yet."""
    made = [Action("grant", "the role app", f"it may not read {name}") for name in TABLES]
    made += [Action("create", "schema driftless", "for the following")]
    for name in TABLES:
        made.append(Action("create", f"trigger driftless_truncate on {name}", "so that a TRUNCATE is told"))
        made.append(Action("change", f"table {name}", "so that a TRUNCATE is told"))
    made += [Action("change", f"table {name}", "replica identity full, so that values stay") for name in TABLES[:40]]
    made += [Action("create", "publication driftless_shop", "500 tables")]
    made += [Action("create", f"topic shop.{name}", "4 partitions, compact") for name in TABLES]
    made += [Action("register", f"columns of {name}", f"id, {name[-2:]}") for name in TABLES]
    made += [Action("register", f"epoch 1 of {name}") for name in TABLES]
    made += [Action("create", "connector driftless_shop")]
    made += [Action("create", f"follower f{n}", f"generation 1 of the view f{n} in redis") for n in range(16)]
    return made


def test_a_plan_of_500_tables_is_a_summary_by_kind() -> None:
    assert told(first_apply()) == [
        "grant the role app: it may not read public.t000; it may not read public.t001; it may not read public.t002 "
        "and 497 more",
        "create schema driftless: for the following",
        "create trigger driftless_truncate on 500 tables (so that a TRUNCATE is told): public.t000, public.t001, "
        "public.t002 and 497 more",
        "change 500 tables (so that a TRUNCATE is told): public.t000, public.t001, public.t002 and 497 more",
        "change 40 tables (replica identity full, so that values stay): public.t000, public.t001, public.t002 "
        "and 37 more",
        "create publication driftless_shop: 500 tables",
        "create 500 topics (4 partitions, compact): shop.public.t000, shop.public.t001, shop.public.t002 and 497 more",
        "register columns of 500 tables: public.t000, public.t001, public.t002 and 497 more",
        "register epoch 1 of 500 tables: public.t000, public.t001, public.t002 and 497 more",
        "create connector driftless_shop",
        "create 16 followers: f0, f1, f2 and 13 more",
    ]


def test_all_lists_every_step() -> None:
    actions = first_apply()
    assert told(actions, whole=True) == [str(action) for action in actions]
    assert told(actions[:SHORT]) == [str(action) for action in actions[:SHORT]]


def test_what_goes_away_is_listed_however_much_it_is() -> None:
    actions = [Action("drop", f"topic shop.{name}") for name in TABLES]
    assert told(actions) == [str(action) for action in actions]


def test_few_steps_of_a_kind_with_a_reason_each_are_listed() -> None:
    reasons = [Action("snapshot", f"table {name}", f"reason {name}") for name in TABLES[:8]]
    assert told([*first_apply(), *reasons])[-8:] == [str(action) for action in reasons]


def test_steps_that_follow_each_other_are_done_in_one_go() -> None:
    done: list[object] = []

    def write(parts: Sequence[object]) -> None:
        done.append(list(parts))

    actions = [
        Action("register", "columns of a", together=write, part=1),
        Action("register", "columns of b", together=write, part=2),
        Action("create", "connector c", do=lambda: done.append("c")),
        Action("create", "connector c", do=lambda: done.append("c again")),
        Action("register", "columns of d", together=write, part=3),
    ]
    sizes = []
    for some, do in steps(actions):
        sizes.append(len(some))
        do()
    assert done == [[1, 2], "c", "c again", [3]]
    assert sizes == [2, 1, 1, 1]


@pytest.mark.parametrize("whole", [False, True])
def test_many_documents_are_told_by_their_fields(whole: bool) -> None:
    document = {f"column_{n}": "int4" for n in range(20)}
    samples = {f"view{n}": Sample(document, "no row to show yet" if n == 1 else "") for n in range(16)}
    lines = "\n".join(samples_told(samples, whole=whole)).splitlines()
    if whole:
        assert len(lines) == 16 * 24 + 1
    else:
        assert len(lines) == 18
        shown = ", ".join(f"column_{n}" for n in range(8))
        assert lines[1:4] == [
            "Documents, by their fields; --all shows them whole:",
            f"  view view0: {shown}, ...",
            f"  view view1: {shown}, ... (no row to show yet)",
        ]


def test_few_documents_stand_whole() -> None:
    assert list(samples_told({"a": Sample({"id": "int8"})}, whole=False)) == [
        '\nview a, a document:\n{\n  "id": "int8"\n}'
    ]
