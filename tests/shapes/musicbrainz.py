"""A schema in the shape of MusicBrainz: 14 kinds of things, joined with each other by tables with an `id` of their own.

Most of its tables say something about a few: aliases, tags, ratings, edits, links, and examples of links.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement

ENTITIES: tuple[str, ...] = ("area", "artist", "event", "genre", "instrument", "label", "mood", "place", "recording")
ENTITIES += ("release", "release_group", "series", "url", "work")
PAIRS = tuple(combinations_with_replacement(ENTITIES, 2))

_STAMPS = "edits_pending int not null default 0, last_updated timestamptz default now()"
_OWN = {
    "area": "",
    "artist": ", sort_name text not null, area int references area, gender int references gender, ended bool",
    "event": ", setlist text, cancelled bool not null default false, time time",
    "genre": "",
    "mood": "",
    "instrument": ", description text not null default ''",
    "label": ", label_code int, area int references area",
    "place": ", address text not null default '', area int references area, coordinates point",
    "recording": ", artist_credit int not null references artist_credit, length int, video bool not null default false",
    "release": ", artist_credit int not null references artist_credit, release_group int not null"
    " references release_group, status int references release_status, packaging int references release_packaging,"
    " language int references language, script int references script, barcode text",
    "release_group": ", artist_credit int not null references artist_credit",
    "series": ", ordering_type int not null references series_ordering_type",
    "url": "",
    "work": "",
}
_KINDS: tuple[str, ...] = ("gender", "language", "script", "release_status", "release_packaging", "medium_format")
_KINDS += ("series_ordering_type", "editor_collection_type", "alternative_release_type", "cover_art_type")


def statements() -> Iterator[str]:
    """All that makes it, in order."""
    yield "create schema documentation"
    yield "create schema cover_art_archive"
    yield "create schema statistics"
    yield "create schema wikidocs"
    yield "create domain mbid as uuid"
    yield "create type edit_state as enum ('open', 'applied', 'rejected')"
    for kind in _KINDS:
        yield _kind(kind)
    yield from _people()
    yield (
        "create table artist_credit (id serial primary key, name text not null, artist_count smallint not null, "
        f"ref_count int default 0, created timestamptz default now(), gid uuid not null, {_STAMPS})"
    )
    for entity in ("area", "artist", *(e for e in ENTITIES if e not in ("area", "artist", "release")), "release"):
        yield from _entity(entity)
    yield from _music()
    yield from _links()
    yield from _others()


def tables() -> list[str]:
    """Full names of its tables."""
    made = (statement.split()[2] for statement in statements() if statement.startswith("create table"))
    return [name if "." in name else f"public.{name}" for name in made]


def _kind(name: str, schema: str = "") -> str:
    table = f"{schema}{name}"
    return (
        f"create table {table} (id serial primary key, name text not null, parent int references {table}, "
        "child_order int not null default 0, description text, gid uuid not null)"
    )


def _people() -> Iterator[str]:
    yield (
        "create table editor (id serial primary key, name text not null, privs int default 0, email text, "
        "website text, bio text, member_since timestamptz default now(), last_login_date timestamptz default now(), "
        "gender int references gender, password text not null, ha1 text not null, deleted bool not null default false)"
    )
    yield "create table tag (id serial primary key, name text not null, ref_count int not null default 0)"
    yield (
        "create table edit (id serial primary key, editor int not null references editor, type smallint not null, "
        "status edit_state not null default 'open', autoedit smallint not null default 0, "
        "open_time timestamptz default now(), close_time timestamptz, language int references language)"
    )
    yield "create table edit_data (edit int primary key references edit, data jsonb not null)"
    yield (
        "create table edit_note (id serial primary key, editor int not null references editor, "
        "edit int not null references edit, text text not null, post_time timestamptz default now())"
    )
    yield (
        "create table vote (id serial primary key, editor int not null references editor, "
        "edit int not null references edit, vote smallint not null, vote_time timestamptz default now())"
    )
    yield (
        "create table annotation (id serial primary key, editor int not null references editor, text text, "
        "changelog text, created timestamptz default now())"
    )
    yield "create table editor_preference (id serial primary key, editor int not null references editor, name text)"
    yield (
        "create table editor_collection (id serial primary key, gid uuid not null, editor int not null "
        "references editor, name text not null, public bool default false, description text not null default '', "
        "type int not null references editor_collection_type)"
    )
    yield (
        "create table editor_collection_collaborator (collection int not null references editor_collection, "
        "editor int not null references editor, primary key (collection, editor))"
    )
    yield (
        "create table editor_subscribe_editor (id serial primary key, editor int not null references editor, "
        "subscribed_editor int not null references editor, last_edit_sent int not null)"
    )
    yield "create table editor_oauth_token (id serial primary key, editor int references editor, access_token text)"


def _entity(name: str) -> Iterator[str]:
    own = f"{name} int references {name}"
    yield _kind(f"{name}_type")
    yield _kind(f"{name}_alias_type")
    title = "url text not null" if name == "url" else "name text not null"
    yield (
        f"create table {name} (id serial primary key, gid uuid not null, {title}{_OWN[name]}, "
        f"type int references {name}_type, comment text not null default '', {_STAMPS})"
    )
    yield (
        f"create table {name}_alias (id serial primary key, {name} int not null references {name}, name text not null, "
        f"locale text, type int references {name}_alias_type, sort_name text not null, {_STAMPS}, "
        "primary_for_locale bool not null default false)"
    )
    yield (
        f"create table {name}_annotation ({name} int not null references {name}, "
        f"annotation int not null references annotation, primary key ({name}, annotation))"
    )
    yield (
        f"create table {name}_attribute_type (id serial primary key, name text not null, comment text not null "
        f"default '', free_text bool not null, parent int references {name}_attribute_type, gid uuid not null)"
    )
    yield (
        f"create table {name}_attribute_type_allowed_value (id serial primary key, {name}_attribute_type int not null "
        f"references {name}_attribute_type, value text, gid uuid not null)"
    )
    yield (
        f"create table {name}_attribute (id serial primary key, {name} int not null references {name}, "
        f"{name}_attribute_type int not null references {name}_attribute_type, {name}_attribute_type_allowed_value int "
        f"references {name}_attribute_type_allowed_value, {name}_attribute_text text)"
    )
    yield (
        f"create table {name}_gid_redirect (gid mbid primary key, new_id int not null references {name}, "
        "created timestamptz default now())"
    )
    yield (
        f"create table {name}_meta (id int primary key references {name} on delete cascade, rating smallint, "
        "rating_count int)"
    )
    yield (
        f"create table {name}_rating_raw ({name} int not null references {name}, editor int not null "
        f"references editor, rating smallint not null, primary key ({name}, editor))"
    )
    yield (
        f"create table {name}_tag ({name} int not null references {name}, tag int not null references tag, "
        f"count int not null, last_updated timestamptz default now(), primary key ({name}, tag))"
    )
    yield (
        f"create table {name}_tag_raw ({name} int not null references {name}, editor int not null references editor, "
        f"tag int not null references tag, is_upvote bool not null default true, primary key ({name}, editor, tag))"
    )
    yield f"create table edit_{name} (edit int references edit, {own}, primary key (edit, {name}))"
    yield (
        f"create table editor_collection_{name} (collection int not null references editor_collection, "
        f"{name} int not null references {name}, added timestamptz default now(), position int not null default 0, "
        f"comment text not null default '', primary key (collection, {name}))"
    )
    yield (
        f"create table editor_subscribe_{name} (id serial primary key, editor int not null references editor, "
        f"{name} int not null references {name}, last_edit_sent int not null references edit)"
    )
    yield f"create table {name}_ipi ({own}, ipi char(11), {_STAMPS}, primary key ({name}, ipi))"
    yield f"create table {name}_isni ({own}, isni char(16), {_STAMPS}, primary key ({name}, isni))"
    yield (
        f"create table documentation.{name}_example (id int primary key references {name}, published bool not null "
        "default false, name text not null)"
    )


def _music() -> Iterator[str]:
    yield (
        "create table artist_credit_name (artist_credit int not null references artist_credit on delete cascade, "
        "position smallint not null, artist int not null references artist, name text not null, "
        "join_phrase text not null default '', primary key (artist_credit, position))"
    )
    yield (
        "create table medium (id serial primary key, release int not null references release, position int not null, "
        f"format int references medium_format, name text not null default '', track_count int default 0, {_STAMPS})"
    )
    yield (
        "create table track (id serial primary key, gid uuid not null, recording int not null references recording, "
        "medium int not null references medium, position int not null, number text not null, name text not null, "
        f"artist_credit int not null references artist_credit, length int, {_STAMPS})"
    )
    yield (
        "create table release_label (id serial primary key, release int not null references release, "
        "label int references label, catalog_number text, last_updated timestamptz default now())"
    )
    yield "create table country_area (area int primary key references area)"
    yield (
        "create table release_country (release int not null references release, country int not null "
        "references country_area, date_year smallint, primary key (release, country))"
    )
    yield (
        "create table isrc (id serial primary key, recording int not null references recording, isrc char(12), "
        "source smallint, created timestamptz default now())"
    )
    yield (
        "create table iswc (id serial primary key, work int not null references work, iswc char(15), source smallint, "
        "created timestamptz default now())"
    )
    yield "create table cdtoc (id serial primary key, discid char(28) not null, track_count int, track_offset int[])"
    yield (
        "create table medium_cdtoc (id serial primary key, medium int not null references medium, cdtoc int not null "
        f"references cdtoc, {_STAMPS})"
    )
    yield (
        "create table work_language (work int references work, language int references language, "
        f"{_STAMPS}, primary key (work, language))"
    )
    yield "create table release_group_secondary_type (id serial primary key, name text not null)"
    yield (
        "create table release_group_secondary_type_join (release_group int not null references release_group, "
        "secondary_type int not null references release_group_secondary_type, created timestamptz default now(), "
        "primary key (release_group, secondary_type))"
    )
    for code in ("iso_3166_1", "iso_3166_2", "iso_3166_3"):
        yield f"create table {code} (area int not null references area, code char(8) primary key)"


def _links() -> Iterator[str]:
    yield (
        "create table link_type (id serial primary key, parent int references link_type, gid uuid not null, "
        "entity_type0 text, entity_type1 text, name text not null, description text, link_phrase text not null)"
    )
    yield (
        "create table link (id serial primary key, link_type int not null references link_type, begin_year smallint, "
        "end_year smallint, attribute_count int not null default 0, created timestamptz default now())"
    )
    yield (
        "create table link_attribute_type (id serial primary key, parent int references link_attribute_type, "
        "gid uuid not null, name text not null)"
    )
    yield (
        "create table link_attribute (link int not null references link, attribute_type int not null references "
        "link_attribute_type, created timestamptz default now(), primary key (link, attribute_type))"
    )
    for one, other in PAIRS:
        yield (
            f"create table l_{one}_{other} (id serial primary key, link int not null references link, "
            f"entity0 int not null references {one}, entity1 int not null references {other}, {_STAMPS}, "
            "link_order int not null default 0, entity0_credit text not null default '', "
            "entity1_credit text not null default '')"
        )
        yield (
            f"create table documentation.l_{one}_{other}_example (id int primary key references l_{one}_{other}, "
            "published bool not null default false, name text not null)"
        )


def _others() -> Iterator[str]:
    yield (
        "create table cover_art_archive.cover_art (id bigint primary key, release int not null references release, "
        "comment text not null default '', edit int not null references edit, ordering int not null, "
        f"date_uploaded timestamptz default now(), {_STAMPS})"
    )
    yield (
        "create table cover_art_archive.cover_art_with_type (id bigint references cover_art_archive.cover_art, "
        "type_id int not null references cover_art_type, primary key (id, type_id))"
    )
    yield "create table statistics.statistic (id serial primary key, name text not null, value int, on_day date)"
    yield "create table statistics.statistic_event (date date primary key, title text not null, link text not null)"
    yield "create table wikidocs.wikidocs_index (page_name text primary key, revision int not null)"
    yield "create table replication_control (id serial primary key, current_schema_sequence int not null)"
    yield "create table application (id serial primary key, owner int references editor, name text, oauth_secret text)"
    yield "create table old_editor_name (name text primary key)"
    yield (
        "create table autoeditor_election (id serial primary key, candidate int references editor, "
        "proposer int references editor, status int not null default 1, propose_time timestamptz default now())"
    )


def rows() -> Iterator[str]:
    """Some of artists, releases and what belongs to them."""
    for kind in (*_KINDS, "artist_type", "release_type", "release_group_type", "recording_type", "area_type"):
        yield f"insert into {kind} (name, gid) select '{kind} ' || n, gen_random_uuid() from generate_series(1, 3) n"
    for kind in ("artist", "release"):
        yield f"insert into {kind}_alias_type (name, gid) select 'Kind', gen_random_uuid() from generate_series(1, 3)"
    yield "insert into editor (name, password, ha1) select 'Editor ' || n, 'x', 'y' from generate_series(1, 5) n"
    yield "insert into tag (name) select 'tag ' || n from generate_series(1, 10) n"
    yield "insert into annotation (editor, text) select 1 + n % 5, 'text ' || n from generate_series(1, 20) n"
    yield "insert into area (gid, name) select gen_random_uuid(), 'Area ' || n from generate_series(1, 10) n"
    yield (
        "insert into artist (gid, name, sort_name, area, type) select gen_random_uuid(), 'Artist ' || n, n || ', A', "
        "1 + n % 10, 1 + n % 3 from generate_series(1, 60) n"
    )
    yield (
        "insert into artist_credit (name, artist_count, gid) select 'Credit ' || n, 1, gen_random_uuid() "
        "from generate_series(1, 60) n"
    )
    yield "insert into artist_credit_name select n, 0, n, 'Artist ' || n, '' from generate_series(1, 60) n"
    yield (
        "insert into artist_alias (artist, name, sort_name, type) select 1 + n % 60, 'Alias ' || n, 'A', 1 + n % 3 "
        "from generate_series(1, 90) n"
    )
    yield "insert into artist_annotation select n, n from generate_series(1, 20) n"
    yield "insert into artist_tag select 1 + n % 60, 1 + n / 60, n from generate_series(0, 119) n"
    yield "insert into artist_meta select id, 50, 1 from artist where id % 2 = 0 on conflict do nothing"
    yield (
        "insert into release_group (gid, name, artist_credit) select gen_random_uuid(), 'Group ' || n, 1 + n % 60 "
        "from generate_series(1, 70) n"
    )
    yield (
        "insert into release (gid, name, artist_credit, release_group, status) select gen_random_uuid(), "
        "'Release ' || n, 1 + n % 60, 1 + n % 70, 1 + n % 3 from generate_series(1, 80) n"
    )
    yield "insert into medium (release, position) select 1 + n % 80, 1 + n / 80 from generate_series(0, 119) n"
    yield "insert into release_tag select 1 + n % 80, 1 + n / 80, n from generate_series(0, 119) n"
    yield "analyze"
