-- A database that was not made for driftless. What can be followed:
create schema "My Schema";
create schema "dotted.name";
create schema sales;
create schema sales_eu;
create type mood as enum ('happy', 'so la la');
create domain email as text check (value like '%@%');
create table customers (id bigint primary key, name text, password_hash text, "apiKey" text, mail email, mood mood,
    twice int generated always as (3) stored);
create table "Customers" (id int primary key, note text, secret text, "Secret sauce" text);
create table sales.customers (id uuid primary key, name varchar(40), tags text[], at timestamptz);
create table "My Schema"."Order Lines" ("Order Id" int, "line, no" int, "Größe" numeric(12,3), "a.b" text, a text,
    _id text, "it's ""so""" jsonb, "null" boolean, " end " text, "#x: y" text, primary key ("Order Id", "line, no"));
create table "dotted.name"."ta.ble" (id int primary key, v text, "pass.word" text);
create table "таблица" (id text primary key, "значение" text);
create table "emoji 😀 ${HOME} $1 %s, (a|b)* \d" (id int primary key, "emoji 😀 ${HOME} $1 %s, (a|b)* \d" text, "Token" text);
create table "quo""te's" ("k""'s" int primary key, "v""'s" text);
create table employees (id int primary key, boss int references employees, name text);
create table moods (mood mood primary key, n int);
create table swapped (n int, v int, primary key (n) deferrable);
create table cats (id int primary key, name text);
create table braces ("{id}" int primary key, v text);
create table sales.eu_x (id int primary key);
-- What cannot:
create table audit (what text);
create table events (id int, at date, what text, primary key (id, at)) partition by range (at);
create table events_2026 partition of events for values from ('2026-01-01') to ('2027-01-01');
create view happy as select * from customers where mood = 'happy';
create materialized view count_of as select count(*) from customers;
create unlogged table scratch (id int primary key);
create table mails (mail email primary key);
create table sessions ("sessionToken" text primary key, data text);
create table animals (id int primary key);
alter table cats inherit animals;
create table twins (id int primary key, "Value" text, "value" text);
create table spatial_ref_sys (srid int primary key);
create table sales_eu.x (id int primary key);
create table "'' in it" (id int primary key);
create extension postgres_fdw;
create server elsewhere foreign data wrapper postgres_fdw;
create foreign table far (id int) server elsewhere;
