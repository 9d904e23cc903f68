"""A database of many tables whose names and columns are unusual, each in its own way."""

from __future__ import annotations

import random
from collections.abc import Iterator

SHAPES = {
    "plain": "id int primary key, mood mood, n positive, v text, at timestamptz, paid numeric(10,2)",
    "composite": 'a int, "B c" uuid, mood mood, v jsonb, primary key (a, "B c")',
    "self": "id bigint generated always as identity primary key, parent bigint references {name}, tags text[]",
    "foreign": "id uuid primary key, of int references {other}, twice int generated always as (of * 2) stored, v bytea",
    "unique": "a int not null, b int not null, unique (a, b)",
    "keyless": "nothing text",
}
FOLLOWED = len(SHAPES) - 1
"""Of each kind of table but the last."""
_SCHEMAS = ("public", "sales", '"Odd Schema"', '"select"')


def statements(tables: int, seed: int) -> Iterator[str]:
    """A multiple of the kinds of tables, with a row in each that takes one."""
    chance, plain = random.Random(seed), list[str]()
    yield "CREATE TYPE mood AS ENUM ('a', 'b c', 'ü')"
    yield "CREATE DOMAIN positive AS int CHECK (value > 0)"
    for schema in _SCHEMAS[1:]:
        yield f"CREATE SCHEMA {schema}"
    for number in range(tables):
        shape = [*SHAPES][number % len(SHAPES)]
        long = "x" * (55 - len(str(number)))
        names = (f"t{number}", f'"Table {number}"', f'"select{number}"', f'"Tä.ble-{number}"', f'"{long}{number}"')
        name = f"{chance.choice(_SCHEMAS)}.{chance.choice(names)}"
        other = chance.choice(plain) if plain else ""
        yield f"CREATE TABLE {name} ({SHAPES[shape].format(name=name, other=other)})"
        if shape == "plain":
            plain.append(name)
            yield f"INSERT INTO {name} VALUES (1, 'b c', 7, 'ü', now(), 1.50)"
        elif shape == "unique":
            yield f"INSERT INTO {name} VALUES (1, 2), (1, 3)"
