"""What `init` proposes for databases in the shape of public ones builds, follows, and equals the source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psycopg
import pytest

from stack import Endpoints
from tests.cli.proposal.proposals import uncommented
from tests.shapes import musicbrainz, pagila
from tests.support.pipeline import Pipeline

pytestmark = [pytest.mark.server, pytest.mark.soak]

Make = Callable[[Iterable[str]], Pipeline]


@pytest.fixture
def shape(endpoints: Endpoints, database: str, connection: psycopg.Connection, tmp_path: Path) -> Iterator[Make]:
    """Fill the database; a pipeline that stands for it."""
    made: list[Pipeline] = []

    def make(statements: Iterable[str]) -> Pipeline:
        for statement in statements:
            connection.execute(statement.encode())
        pipeline = Pipeline(tmp_path / "pipeline", endpoints, database, [])
        pipeline.here.environment = pipeline.variables_of_init
        made.append(pipeline)
        return pipeline

    yield make
    for pipeline in made:
        pipeline.remove()


def follow(pipeline: Pipeline) -> dict[str, int]:
    """Apply, run and prove what stands in sync.yaml; how many documents each follower has."""
    for step in (("check",), ("apply",), ("run", "--until-caught-up")):
        done = pipeline.here(*step, seconds=400)
        assert done.code == 0, f"{step}: {done.out}{done.err}"
    job = pipeline.run()
    pipeline.wait()
    proven = pipeline.here("verify", "--json", seconds=400)
    job.stop()
    assert proven.code == 0, proven.out + proven.err
    return {f["name"]: f["follower_documents"] for f in proven.json()["followers"]}


def test_a_shop_that_rents_films(shape: Make) -> None:
    """Every follower that is written to run, and two nested views out of the comments."""
    pipeline = shape(pagila.statements())
    made = pipeline.here("init", "--dsn", pipeline.dsn, "--name", pipeline.name, "--force")
    assert made.code == 0, made.err
    file = pipeline.here.folder / "sync.yaml"
    file.write_text(chosen(file.read_text(), "film_nested", "customer_nested"))
    counts = follow(pipeline)
    assert counts["film-search"] == counts["film_nested-search"] == 100
    assert counts["customer-search"] == counts["customer_nested-search"] > 0
    assert counts["rental-search"] == 200
    assert counts["actor-search"] == 40
    assert not {name for name in counts if name.startswith(("film_actor", "film_category", "login"))}


def chosen(text: str, *views: str) -> str:
    """As somebody would take the `# ` away from these views and from their followers in OpenSearch."""
    lines, taken = [], False
    for line in text.splitlines():
        name = line.removeprefix("  # ").split(":")[0]
        if line.startswith("  # ") and not line.startswith("  #  "):
            taken = name in {*views, *(f"{view}-search" for view in views)}
        lines.append(uncommented(f"\nviews:\n{line}\n").split("\n")[2] if taken else line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("view", "count"), [("release", 80), ("artist", 60)])
def test_music(shape: Make, view: str, count: int) -> None:
    """One nested view, from a database of more than 500 tables."""
    pipeline = shape((*musicbrainz.statements(), *musicbrainz.rows()))
    made = pipeline.here("init", "--dsn", pipeline.dsn, "--name", pipeline.name, "--force", "--view", view, "--nested")
    assert made.code == 0, made.err
    assert follow(pipeline) == {f"{view}-search": count}
