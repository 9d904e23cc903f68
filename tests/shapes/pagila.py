"""A schema in the shape of Pagila, a shop that rents films: partitioned payments, a domain, an enum, a tsvector, views.

With rows, and with what a framework and an application leave in such a database.
"""

from __future__ import annotations

from collections.abc import Iterator

_STAMP = "last_update timestamptz not null default now()"
_TABLES = (
    "create domain year as integer check (value between 1901 and 2155)",
    "create domain bigint_pos as bigint check (value > 0)",
    "create type mpaa_rating as enum ('G', 'PG', 'PG-13', 'R', 'NC-17')",
    f"create table actor (actor_id serial primary key, first_name text not null, last_name text not null, {_STAMP})",
    f"create table category (category_id serial primary key, name text not null, {_STAMP})",
    f"create table language (language_id serial primary key, name char(20) not null, {_STAMP})",
    f"create table country (country_id serial primary key, country text not null, {_STAMP})",
    f"create table city (city_id serial primary key, city text not null, country_id int references country, {_STAMP})",
    "create table address (address_id serial primary key, address text not null, address2 text, district text, "
    f"city_id int not null references city, postal_code text, phone text, {_STAMP})",
    "create table store (store_id serial primary key, manager_staff_id int unique, "
    f"address_id int not null references address, {_STAMP})",
    "create table staff (staff_id serial primary key, first_name text, last_name text, address_id int references "
    f"address, email text, store_id int references store, active bool default true, username text, password text, "
    f"picture bytea, {_STAMP})",
    "alter table store add foreign key (manager_staff_id) references staff",
    "create table customer (customer_id serial primary key, store_id int references store, first_name text, "
    "last_name text, email text, address_id int references address, activebool bool not null default true, "
    f"create_date date not null default current_date, {_STAMP})",
    "create table film (film_id serial primary key, title text not null, description text, release_year year, "
    "language_id int not null references language, original_language_id int references language, "
    "rental_duration smallint not null default 3, rental_rate numeric(4,2) not null default 4.99, length smallint, "
    f"rating mpaa_rating default 'G', {_STAMP}, special_features text[], fulltext tsvector)",
    f"create table film_actor (actor_id int references actor, film_id int references film, {_STAMP}, "
    "primary key (actor_id, film_id))",
    # As Rails has it: with an id of its own, two times and a position.
    "create table film_category (id bigserial primary key, film_id int not null references film, "
    "category_id int not null references category, position int not null default 0, "
    "created_at timestamptz not null default now(), updated_at timestamptz not null default now(), "
    "unique (film_id, category_id))",
    "create table inventory (inventory_id serial primary key, film_id int not null references film, "
    f"store_id int not null references store, {_STAMP})",
    "create table rental (rental_id serial primary key, rental_date timestamptz not null, inventory_id int not null "
    "references inventory, customer_id int not null references customer, return_date timestamptz, "
    f"staff_id int not null references staff, {_STAMP})",
    "create table payment (payment_id serial, customer_id int references customer, staff_id int references staff, "
    "rental_id int references rental, amount numeric(5,2) not null, payment_date timestamptz not null, "
    "primary key (payment_date, payment_id)) partition by range (payment_date)",
    "create table payment_p2022_01 partition of payment for values from ('2022-01-01') to ('2022-02-01')",
    "create table payment_p2022_02 partition of payment for values from ('2022-02-01') to ('2022-03-01')",
    "create view actor_info as select a.actor_id, a.first_name from actor a",
    "create materialized view rental_by_category as select c.name from category c",
    # What others leave there.
    "create table schema_migrations (version text primary key)",
    "create table ar_internal_metadata (key text primary key, value text)",
    "create table login_sessions (id bigserial primary key, customer_id int references customer, data text)",
    "create table audit_log (id bigserial primary key, table_name text, at timestamptz default now())",
)
_ROWS = (
    "insert into actor (first_name, last_name) select 'First' || n, 'Last' || n from generate_series(1, 40) n",
    "insert into category (name) select 'Category ' || n from generate_series(1, 8) n",
    "insert into language (name) values ('English'), ('German')",
    "insert into country (country) values ('Peru'), ('Chad')",
    "insert into city (city, country_id) select 'City ' || n, 1 + n % 2 from generate_series(1, 10) n",
    "insert into address (address, city_id) select n || ' Road', 1 + n % 10 from generate_series(1, 30) n",
    "insert into store (address_id) values (1), (2)",
    "insert into staff (first_name, address_id, store_id, password) values ('Mike', 3, 1, 'x'), ('Jon', 4, 2, 'x')",
    "update store set manager_staff_id = store_id",
    "insert into customer (store_id, first_name, last_name, address_id) "
    "select 1 + n % 2, 'C' || n, 'L' || n, 5 + n % 20 from generate_series(1, 60) n",
    "insert into film (title, description, release_year, language_id, special_features, fulltext, rating) "
    "select 'Film ' || n, 'About ' || n, 2006, 1 + n % 2, array['Trailers'], to_tsvector('film ' || n), 'PG' "
    "from generate_series(1, 100) n",
    "insert into film_actor select 1 + (f * 7 + a) % 40, f from generate_series(1, 100) f, generate_series(1, 3) a",
    "insert into film_category (film_id, category_id, position) select n, 1 + n % 8, 1 from generate_series(1, 100) n",
    "insert into inventory (film_id, store_id) select 1 + n % 100, 1 + n % 2 from generate_series(1, 200) n",
    "insert into rental (rental_date, inventory_id, customer_id, staff_id) "
    "select '2022-01-10', n, 1 + n % 60, 1 + n % 2 from generate_series(1, 200) n",
    "insert into payment (customer_id, staff_id, rental_id, amount, payment_date) "
    "select 1 + n % 60, 1, n, 2.99, '2022-01-11' from generate_series(1, 100) n",
    "analyze",
)


def statements() -> Iterator[str]:
    """All that makes it and fills it, in order."""
    yield from _TABLES
    yield from _ROWS
