"""What `init` proposes for databases in the shape of public ones is what a person would have chosen first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from ruamel.yaml import YAML

from cli.proposal.syncfile import write_sync, write_views
from connectors.pipeline.views import view_source
from connectors.postgres.client import Postgres, captured_tables
from connectors.postgres.init import Proposal, propose
from driftless.config.models import Config
from driftless.errors import ConfigError
from driftless.views.sql import select
from tests.cli.proposal.proposals import loaded, trees, uncommented
from tests.conftest import fresh_database
from tests.shapes import musicbrainz, pagila

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def film_shop(postgres: str) -> Iterator[Postgres]:
    yield from made(postgres, pagila.statements())


@pytest.fixture(scope="module")
def music(postgres: str) -> Iterator[Postgres]:
    yield from made(postgres, musicbrainz.statements())


def made(server: str, statements: Iterable[str]) -> Iterator[Postgres]:
    with fresh_database(server) as dsn:
        with psycopg.connect(dsn) as connection:
            for statement in statements:
                connection.execute(statement.encode())
        with Postgres(dsn) as source:
            yield source


def views(text: str) -> dict[str, Any]:
    """As they stand in the file, once everything is uncommented."""
    found: dict[str, Any] = YAML(typ="safe").load(uncommented(text))["views"]
    return found


def accepted(source: Postgres, config: Config) -> None:
    """As `check` does, and Postgres understands each view."""
    tables = {name: table for name, table in captured_tables(source, config).items() if table is not None}
    with psycopg.connect(source._dsn) as connection:
        for tree in trees(config, view_source(config, source, tables)):
            connection.execute(f"explain {select(tree)}".encode())


FOLLOWED_FILMS = ["address", "customer", "film", "store", "inventory", "rental", "staff", "city", "actor", "category"]
FILM = {
    "root": "public.film",
    "one": {
        "language": {"table": "public.language", "by": "language_id"},
        "original_language": {"table": "public.language", "by": "original_language_id"},
    },
    "many": {
        "actors": {"table": "public.actor", "through": "public.film_actor", "by": "film_id", "to": "actor_id"},
        "categories": {
            "table": "public.category",
            "through": "public.film_category",
            "by": "film_id",
            "to": "category_id",
            "order_by": ["between.position"],
        },
        "inventories": {
            "table": "public.inventory",
            "by": "film_id",
            "one": {"store": {"table": "public.store", "by": "store_id"}},
        },
    },
}


def test_films_are_followed_and_what_joins_them_is_not(film_shop: Postgres, tmp_path: Path) -> None:
    proposal = propose(film_shop, "shop")
    text = write_sync("shop", proposal)
    config = loaded(tmp_path, text)
    followed = {follower.view for follower in config.followers.values()}
    assert followed == {*FOLLOWED_FILMS, "country", "language", "payment"}
    assert {"film_actor", "film_category", "login_sessions", "audit_log"} == config.views.keys() - followed
    assert views(text)["film_nested"] == FILM
    everything = loaded(tmp_path, uncommented(text))
    assert {"film_actor-search", "film_nested-search", "film_nested-cache"} < everything.followers.keys()
    accepted(film_shop, everything)


def test_what_frameworks_keep_is_left_out_with_the_reason(film_shop: Postgres) -> None:
    left_out = propose(film_shop, "shop").left_out
    for name in ("public.schema_migrations", "public.ar_internal_metadata"):
        assert left_out[name] == ["is what Rails keeps for itself: name it under source.tables if you want it"]


def test_one_nested_view_is_written_with_what_it_needs(film_shop: Postgres, tmp_path: Path) -> None:
    text = write_views("shop", propose(film_shop, "shop"), ["film"], nested=True)
    config = loaded(tmp_path, text)
    assert list(config.source.tables) == [
        f"public.{name}" for name in ("actor", "category", "film", "film_actor", "film_category", "inventory")
    ] + ["public.language", "public.store"]
    assert list(config.views) == ["film"]
    assert list(config.followers) == ["film-search"]
    assert YAML(typ="safe").load(text)["views"]["film"] == FILM
    properties = config.followers["film-search"].sink["mapping"]["properties"]
    assert list(properties["actors"]["properties"]) == ["actor_id", "first_name", "last_name", "last_update"]
    accepted(film_shop, config)
    both = loaded(tmp_path, uncommented(text))
    assert list(both.followers) == ["film-search", "film-cache"]


def test_one_view_alone_needs_its_table_alone(film_shop: Postgres, tmp_path: Path) -> None:
    proposal = propose(film_shop, "shop")
    config = loaded(tmp_path, write_views("shop", proposal, ["public.actor", "customer"], nested=False))
    assert list(config.source.tables) == ["public.actor", "public.customer"]
    assert list(config.views) == ["actor", "customer"]
    with pytest.raises(ConfigError, match="--view: there is no table for a view flim; did you mean `film`"):
        write_views("shop", proposal, ["flim"], nested=True)


FOLLOWED_MUSIC = {*musicbrainz.ENTITIES} - {"url"}


def test_artists_and_releases_are_followed_and_examples_are_not(music: Postgres, tmp_path: Path) -> None:
    proposal = propose(music, "shop")
    text = write_sync("shop", proposal)
    config = loaded(tmp_path, text)
    followed = {follower.view for follower in config.followers.values()}
    assert len(config.source.tables) == len(proposal.tables) >= 500
    assert followed > {"artist", "release", "release_group", "recording", "work", "label"}
    assert followed > FOLLOWED_MUSIC
    assert len(followed) == 16
    assert len(config.views) == 64
    found = views(text)
    nested = [name for name in found if name.endswith("_nested")]
    assert set(nested) > {"artist_nested", "release_nested", "recording_nested"}
    assert not [name for name in nested if "example" in name or name.startswith("l_")]
    release = found["release_nested"]
    assert release["one"]["artist_credit_row"]["table"] == "public.artist_credit"
    assert release["many"].keys() > {"aliases", "annotations", "labels", "tags"}
    assert len(text.splitlines()) < 6000


def test_everything_that_is_proposed_for_music_is_accepted(music: Postgres, tmp_path: Path) -> None:
    accepted(music, loaded(tmp_path, uncommented(write_sync("shop", propose(music, "shop")))))


def test_size_decides_between_what_is_alike(music: Postgres) -> None:
    proposal = propose(music, "shop")
    rows = {"public.artist_credit": 3_000_000, "public.track": 50_000_000}
    text = write_sync("shop", grown(proposal, rows))
    assert "\n  artist_credit-search:\n" in text


def grown(proposal: Proposal, rows: dict[str, int]) -> Proposal:
    return Proposal(**{**vars(proposal), "rows": {**proposal.rows, **rows}})
