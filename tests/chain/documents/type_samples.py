"""Values of every type that Postgres has, the awkward ones among them, as texts that Postgres casts itself.

The key is the type as a column declares it. test_every_type.py holds each against `to_jsonb`.
"""

from __future__ import annotations

SETUP = """
create extension if not exists hstore;
create extension if not exists ltree;
create extension if not exists citext;
create extension if not exists cube;
create extension if not exists isn;
create type mood as enum ('sad', 'it''s "ok"', 'größe, ☃');
create type pair as (n int, "a b" text);
create type nested as (id bigint, p pair, tags text[], pairs pair[], at timestamptz, t timestamp, amount numeric,
  ok boolean, doc jsonb, raw bytea);
create type priced as (n int, m money);
create type span as range (subtype = float8);
create domain price as numeric(12, 2) check (value >= 0);
create domain discount as price check (value < 100);
create domain email as citext check (value ~ '@');
create domain feeling as mood;
create domain numbers as int[];
create domain moment as timestamptz;
create domain flags as bit(5);
create function utc(timetz[]) returns timetz[] return
  (select array_agg(t at time zone 'UTC' order by n) from unnest($1) with ordinality as u(t, n));
"""

_FLOATS = ("0", "-0", "1", "0.1", "1e15", "123456789012345", "-1e-5", "0.0001", "1.5e300", "NaN", "-Infinity")
_DAYS = ("1970-01-01", "2024-02-29", "0001-01-01", "1500-02-28", "9999-12-31", "12345-06-07", "0044-03-15 BC")


def _moments(zone: str) -> tuple[str, ...]:
    return (
        *(f"{day[:10].strip()} 12:00:00.5{zone}{day[10:]}" for day in _DAYS if day[0:5] != "12345"),
        f"12345-06-07 12:00:00.5{zone}",
        "infinity",
        "-infinity",
    )


SAMPLES: dict[str, tuple[str, ...]] = {
    "smallint": ("0", "-32768", "32767"),
    "integer": ("0", "-2147483648", "2147483647"),
    "bigint": ("0", "-9223372036854775808", "9007199254740993", "9223372036854775807"),
    "boolean": ("t", "f"),
    "text": ("", " a ", 'it\'s "q" \\ \n\t☃𝄞', "null", "__debezium_unavailable_value"),
    "varchar(20)": ("", "plain "),
    "char(5)": ("ab", ""),
    '"char"': ("x", "", "\\351"),
    "name": ("plain", 'it\'s "q" ☃', ""),
    "numeric": ("0", "0.00", "-0.10", "NaN", "Infinity", "-Infinity", "1e-30", "7e40", "123456789012345678901.10"),
    "numeric(10,2)": ("1.10", "-99999999.99", "NaN"),
    "numeric(5,-2)": ("12300", "-5100"),
    "real": ("0", "1.5", "0.1", "NaN", "Infinity", "-Infinity"),
    "double precision": ("0", "0.1", "-1.5e300", "NaN", "Infinity", "-Infinity"),
    "money": ("0", "1234567.89", "-0.01", "-92233720368547758.08", "92233720368547758.07"),
    "bytea": ("\\x", "\\x00ff5c", "\\xdeadbeef"),
    "uuid": ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",),
    "bit(1)": ("0", "1"),
    "bit(5)": ("00000", "00001", "10000", "01010"),
    "bit(16)": ("0000000011111111", "1000000000000001"),
    "bit(70)": ("1" * 70, "0" * 69 + "1", "1" + "0" * 69),
    "varbit": ("", "0", "1", "0001", "1000", "000000000"),
    "varbit(1)": ("", "0", "1"),
    "varbit(9)": ("", "0001", "100000000"),
    "date": (*_DAYS, "1582-10-10", "infinity", "-infinity", "5874897-12-31", "4713-01-01 BC"),
    "time": ("00:00", "23:59:59.999999", "24:00", "10:00:00.12"),
    "time(0)": ("10:00:00",),
    "timetz": ("00:00+00", "10:00:00.12+05:30", "23:59:59.999999-11", "01:00+02"),
    "timestamp": (
        *(f"{d} 12:00:00.5" if "BC" not in d else "0044-03-15 12:00 BC" for d in _DAYS),
        "infinity",
        "-infinity",
    ),
    "timestamp(0)": ("2024-02-29 23:59:59",),
    "timestamptz": (
        *(f"{d} 12:00:00.5+02" if "BC" not in d else "0044-03-15 12:00+00 BC" for d in _DAYS),
        "infinity",
        "-infinity",
    ),
    "timestamptz(3)": ("2024-02-29 23:59:59.123+00",),
    "interval": (
        "0",
        "1 year 2 mons 3 days 04:05:06.789",
        "-1 year",
        "1 mon -3 days",
        "-00:00:00.000001",
        "1 day",
        "25:00",
        "-1 mon 2 days -3:00",
        "100000 years",
        "-178000000 years",
        "1193046:00:00",
        "00:00:59.999999",
        "13 mons",
        "-13 mons 1 day",
    ),
    "interval year to month": ("1 year 2 mons",),
    "json": (
        "null",
        '{"a": 1, "b": [1.10, {"c": null}]}',
        '{"a": 1, "a": 2}',
        ' [1 , "two"] ',
        '"x"',
        '{"a": {"b": 1, "b": {"c": 1, "c": 2}}}',
        '{"n": 12345678901234567890123.10}',
    ),
    "jsonb": ("null", '{"a": 1, "b": [1.10, {"c": null}]}', "[]", '"x"', "1e400"),
    "jsonpath": ("$", '$.a[*] ? (@.b > 1 && @.c == "x")'),
    "xml": ("<a>ü&amp;</a>", "text <b/>", '<?xml version="1.0"?><a/>'),
    "inet": ("192.168.0.1", "10.0.0.0/8", "::1", "2001:db8::/32"),
    "cidr": ("10.0.0.0/8", "2001:db8::/32"),
    "macaddr": ("08:00:2b:01:02:03",),
    "macaddr8": ("08:00:2b:01:02:03:04:05",),
    "point": tuple(f"({f},1.5)" for f in _FLOATS),
    "line": ("{1,2,3}", "{-0.5,1,1e20}"),
    "lseg": ("[(1,2),(3.5,-4e20)]",),
    "box": ("(1,2),(0.1,-4e20)", "(1,NaN),(0,Infinity)"),
    "path": ("[(1,2),(3,4),(5,6)]", "((0,0),(1,1e-10))", "[(1,1)]"),
    "polygon": ("((0,0),(1,1),(2,0))", "((1,1))"),
    "circle": ("<(1,2),3.5>", "<(-1e20,0.1),0>"),
    "tsvector": ("'a':1A,2 'it''s':3", "", "'ü' '\\\\x'"),
    "tsquery": ("'a' & !( 'b' | 'c':*AB )", "", "'it''s'"),
    "pg_lsn": ("0/0", "16/B374D848"),
    "oid": ("0", "4294967295"),
    "xid": ("3", "4294967295"),
    "xid8": ("3", "18446744073709551615"),
    "cid": ("3",),
    "tid": ("(0,1)", "(4294967295,65535)"),
    "regclass": ("pg_class", "pg_catalog.pg_type"),
    "regtype": ("integer", "mood"),
    "txid_snapshot": ("10:20:10,14,15",),
    "pg_snapshot": ("10:20:10,14,15", "1:1:"),
    "refcursor": ("cursor",),
    "int2vector": ("", "1 2 3"),
    "oidvector": ("", "1 2 3"),
    "aclitem": ("=r/postgres",),
    "int4range": ("[1,10)", "empty", "(,)", "[3,)"),
    "int8range": ("[1,9007199254740993)", "empty"),
    "numrange": ("[1.10,2.20]", "(,-0.5)", "[NaN,NaN]", "empty"),
    "daterange": ("[2024-01-01,2024-02-01)", "(,infinity)", "[0044-03-15 BC,)", "empty"),
    "tsrange": ('["2024-01-01 10:00:00.5",)', '["0044-03-15 00:00:00 BC",infinity]', "empty"),
    "tstzrange": ('["2024-01-01 10:00:00.5+02",)', '["0044-03-15 00:00:00+00 BC",infinity]', "empty"),
    "int4multirange": ("{}", "{[1,3),[5,)}"),
    "int8multirange": ("{[1,9007199254740993)}",),
    "nummultirange": ("{[1.10,2.20]}",),
    "datemultirange": ("{[2024-01-01,2024-02-01)}",),
    "tsmultirange": ('{["2024-01-01 10:00:00.5",)}',),
    "tstzmultirange": ('{["2024-01-01 10:00:00.5+02",)}',),
    "span": ("[0.1,1e20)", "empty"),
    "hstore": ("", "a=>1, b=>NULL", '"it\'s \\"q\\" \\\\"=>"☃, =>"', 'k=>""', 'n=>NULL, m=>"NULL"'),
    "ltree": ("", "a.b_1.c"),
    "lquery": ("a.*{1,2}.b|c@",),
    "ltxtquery": ("a & !b*@",),
    "citext": ("MiXed ☃", ""),
    "cube": ("(1,2),(3,4)", "(0.1)"),
    "isbn": ("978-0-393-04002-9",),
    "ean13": ("978-0-393-04002-9",),
    "mood": ("sad", 'it\'s "ok"', "größe, ☃"),
    "pair": ("(1,x)", "(,)", '(2,"it\'s ""q"" \\\\ (a,b) ☃\n")', '(3,"")', "(4,null)"),
    "nested": (
        """row(1, row(2, 'a,b "(c)"'), array['a', null, 'b c', 'q"\\', ''], array[row(3, 'x\\"'), null]::pair[],
            '2024-01-01 10:00:00.5+02', '0044-03-15 12:00 BC', 1.10, true, '{"k": [1, "\\""]}', '\\x00ff')""",
        "row(null, row(null, null), '{}', null, 'infinity', '-infinity', 'NaN', false, '\"x\"', '')",
        "row(null, null, null, null, null, null, null, null, null, null)",
    ),
    "priced": ("(1,$2.00)",),
    "price": ("0", "1.10"),
    "discount": ("99.99",),
    "email": ("A@b",),
    "feeling": ("sad",),
    "numbers": ("{}", "{1,NULL,3}"),
    "moment": ("2024-01-01 10:00:00.5+02", "infinity", "0044-03-15 12:00+00 BC"),
    "flags": ("00101",),
    # Arrays
    "smallint[]": ("{}", "{1,NULL,-32768}"),
    "integer[]": ("{}", "{1,NULL,2147483647}", "[0:1]={4,5}"),
    "bigint[]": ("{}", "{1,NULL,9223372036854775807}"),
    "boolean[]": ("{t,NULL,f}",),
    "text[]": ("{}", '{a,NULL,"null","","it\'s \\"q\\" \\\\ , {} ☃"}'),
    "varchar(20)[]": ('{a,NULL,""}',),
    "char(5)[]": ("{ab,NULL}",),
    '"char"[]': ("{a,NULL}",),
    "name[]": ("{a,NULL}",),
    "numeric[]": ("{1.10,NULL,-0.001,7e40}", "{}"),
    "numeric(10,2)[]": ("{1.10,NULL}",),
    "real[]": ("{1.5,NULL,NaN,-Infinity}",),
    "double precision[]": ("{0.1,NULL,NaN,-Infinity}",),
    "money[]": ("{1.10,NULL}",),
    "bytea[]": ('{"\\\\x00ff",NULL,"\\\\x"}',),
    "uuid[]": ("{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL}",),
    "bit(5)[]": ("{00101,NULL}",),
    "bit(1)[]": ("{0,1,NULL}",),
    "varbit[]": ("{00101,NULL}",),
    "date[]": ("{2024-02-29,NULL,1970-01-01}", "{1500-02-28}", "{infinity,-infinity}", "{12345-06-07,0001-01-01}"),
    "time[]": ("{10:00:00.123,NULL}", "{10:00:00.123456,24:00}"),
    "timetz[]": ("{10:00:00.12+05:30,NULL}",),
    "timestamp[]": (
        '{"2024-02-29 10:00:00.123456",NULL}',
        '{"1500-02-28 12:00:00.5","0001-01-01 00:00:00.000001","1582-10-04 23:59:59.9","1582-10-15 00:00"}',
        "{infinity,-infinity}",
        '{"0044-03-15 12:00 BC","4713-01-01 00:00 BC"}',
        '{"12345-06-07 01:02:03"}',
    ),
    "timestamptz[]": (
        '{"2024-02-29 10:00:00.123456+02",NULL}',
        '{"1500-02-28 12:00:00.5+00"}',
        "{infinity,-infinity}",
        '{"12345-06-07 01:02:03+00"}',
    ),
    "interval[]": ('{"1 day",NULL}',),
    "json[]": ('{"{\\"a\\": 1}",NULL,"null"}', '{"{\\"a\\": 1, \\"a\\": 2}"}'),
    "jsonb[]": ('{"{\\"a\\": 1.10}",NULL,"null"}',),
    "jsonpath[]": ("{$,NULL}",),
    "xml[]": ("{<a/>,NULL}",),
    "inet[]": ("{10.0.0.0/8,NULL,::1}",),
    "cidr[]": ("{10.0.0.0/8,NULL}",),
    "macaddr[]": ("{08:00:2b:01:02:03,NULL}",),
    "macaddr8[]": ("{08:00:2b:01:02:03:04:05,NULL}",),
    "point[]": ('{"(1,2)",NULL}',),
    "circle[]": ('{"<(1,2),3>",NULL}',),
    "box[]": ("{(1,2),(0,1);(3,4),(2,2)}",),
    "tsvector[]": ("{\"'a':1\",NULL}",),
    "tsquery[]": ("{\"'a'\",NULL}",),
    "pg_lsn[]": ("{16/B374D848,NULL}",),
    "oid[]": ("{4294967295,NULL}",),
    "xid[]": ("{3,NULL}",),
    "regtype[]": ("{integer,NULL}",),
    "int4range[]": ('{"[1,10)",NULL,empty}',),
    "int8range[]": ('{"[1,10)",NULL}',),
    "numrange[]": ('{"[1.10,10)",NULL}',),
    "daterange[]": ('{"[2024-01-01,2024-02-01)",NULL}',),
    "tsrange[]": ('{"[\\"2024-01-01 10:00:00\\",)",NULL}',),
    "tstzrange[]": ('{"[\\"2024-01-01 10:00:00+02\\",)",NULL}',),
    "int4multirange[]": ('{"{[1,10),[20,30)}",NULL}',),
    "span[]": ('{"[1,10)",NULL}',),
    "hstore[]": ('{"a=>1",NULL}', "{}"),
    "ltree[]": ("{a.b,c}", "{}"),
    "citext[]": ('{"A,B",NULL}',),
    "cube[]": ('{"(1, 2)",NULL}',),
    "mood[]": ("{sad}", '{"größe, ☃","it\'s \\"ok\\""}', "{}", "{sad,NULL}"),
    "pair[]": ('{"(1,x)",NULL,"(2,\\"a,b\\")"}',),
    "price[]": ("{1.10,NULL,2.00}",),
    "email[]": ("{A@b,NULL}",),
    "feeling[]": ("{sad}",),
    "integer[][]": ("{{1,2},{3,4}}", "{1,2}"),
}

REFUSED = frozenset(
    {
        *("lseg", "box", "path", "polygon", "varbit", "varbit(1)", "varbit(9)", "refcursor", "int2vector", "oidvector"),
        *("regclass", "regtype", "priced", "integer[][]", "name[]", "money[]", "bit(1)[]", "bit(5)[]", "varbit[]"),
        *("time[]", "interval[]", "jsonpath[]", "xml[]", "point[]", "circle[]", "box[]", "tsvector[]", "tsquery[]"),
        *("pg_lsn[]", "xid[]", "regtype[]", "int4multirange[]", "span[]", "cube[]", "mood[]", "pair[]"),
        *("price[]", "email[]", "feeling[]"),
    }
)
"""What documents leave out."""

SHOWN_AS = {"timetz": "{} at time zone 'UTC'", "timetz[]": "utc({})", "money": "{}::numeric"}
"""What is shown by a rule instead of the value itself."""
