"""What is asked of Postgres' catalogue: the longer statements of connectors/postgres/client.py."""

from __future__ import annotations

from connectors.postgres.server import BY_PARTITION
from driftless import names

TIMELINE = "('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int"
"""On which timeline the server writes now: its control file tells of a promotion only at the next checkpoint. A standby
fails at it.
"""
COLUMNS = """
with recursive step as (
    select a.attrelid, a.attnum, t.oid, t.typtype, t.typbasetype, a.atttypmod as modifier, t.typtypmod,
           a.attndims::int as dimensions, t.typndims, t.typelem, t.typinput = 'array_in'::regproc as is_array,
           false as is_element, false as domains
    from pg_attribute a join pg_type t on t.oid = a.atttypid
    where a.attrelid = any(%(oids)s) and a.attnum > 0 and not a.attisdropped
    union all
    -- From a domain to what it is made of, from an array to its elements.
    select s.attrelid, s.attnum, t.oid, t.typtype, t.typbasetype, greatest(s.modifier, s.typtypmod), t.typtypmod,
           greatest(s.dimensions, s.typndims), t.typndims, t.typelem, t.typinput = 'array_in'::regproc,
           s.is_array or s.is_element, s.domains or (s.is_element and s.typtype = 'd')
    from step s join pg_type t on t.oid = case when s.typtype = 'd' then s.typbasetype else s.typelem end
    where s.typtype = 'd' or s.is_array
)
select a.attrelid, a.attname, t.typname, t.typtype::text, s.is_element, s.dimensions, a.attstorage <> 'p',
       a.attgenerated <> '',
       case when t.typname = 'bit' then s.modifier when t.typname = 'numeric' and (s.modifier - 4) & 1024 <> 0
            and s.modifier >= 4 then -1 else 0 end, t.typnamespace <> 'pg_catalog'::regnamespace,
       t.oid >= 16384 and exists (select from pg_cast c where c.castsource = t.oid and c.casttarget = 'json'::regtype),
       s.domains, t.typrelid
from step s
join pg_type t on t.oid = s.oid
join pg_attribute a on a.attrelid = s.attrelid and a.attnum = s.attnum
where s.typtype <> 'd' and not s.is_array
order by a.attrelid, a.attnum
"""
# The key of a table: its primary key, else a unique index that may be its replica identity. Of several, the one that
# is, else the shortest, else the first by name: so that neither REINDEX nor a dump that is restored gives another.
# Under a deferrable key alone, as under none, Postgres would refuse updates once the table is in a publication.
TABLES = """
select n.nspname::text, c.relname::text, c.oid,
       -- Of a partitioned table that of its partitions counts, and of those only which have seen an UPDATE.
       case when c.relkind = 'p' then
                 case when exists (select from pg_partition_tree(c.oid) p join pg_class l on l.oid = p.relid
                                   where p.isleaf and l.relreplident <> 'f' and pg_stat_get_tuples_updated(l.oid) > 0)
                      then 'd' else 'f' end
            when c.relreplident = 'd' and not coalesce(i.indisprimary and i.indimmediate, false)
                 or c.relreplident = 'i' and not coalesce(i.indisreplident, false) then 'n'
            else c.relreplident::text end,
       array(select a.attname::text from unnest(i.indkey) with ordinality as k(attnum, position)
             join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
             where k.position <= i.indnkeyatts order by k.position),
       case when i.indisprimary then '' else i.index end, c.relkind = 'p'
from unnest(%s::text[], %s::text[]) as wanted(schema, name)
join pg_namespace n on n.nspname = wanted.schema
join pg_class c on c.relnamespace = n.oid and c.relname = wanted.name
                and (c.relkind = 'r' or c.relkind = 'p' and not c.relispartition)
left join lateral (
    select i.*, x.relname::text as index from pg_index i join pg_class x on x.oid = i.indexrelid
    where i.indrelid = c.oid and (i.indisprimary or c.relkind = 'r' and i.indisunique and i.indimmediate
          and i.indisvalid and i.indpred is null and i.indexprs is null
          and not exists (select from pg_attribute a where a.attrelid = c.oid and not a.attnotnull
                          and a.attnum = any((i.indkey::int2[])[0:i.indnkeyatts - 1])))
    order by not i.indisprimary, not i.indisreplident, i.indnkeyatts, x.relname limit 1
) i on true
"""
# A partition that was made as one has a row type and an entry in pg_inherits of the same command: between the two the
# server counts two steps (seen with Postgres 17); one that was attached, in the same transaction even, at least five.
PARTITIONS = f"""
select n.nspname::text, c.relname::text, l.oid::text, ln.nspname::text, l.relname::text, i.xmin::text,
       coalesce(t.xmin = i.xmin and i.cmin::text::int8 - t.cmin::text::int8 between 0 and 2, false),
       l.relkind::text, l.relpersistence::text, l.relreplident::text,
       exists (select from pg_trigger g where g.tgrelid = l.oid and g.tgname = '{names.PARTITION_TRIGGER}'
               and g.tgenabled = 'A')
from unnest(%s::text[], %s::text[]) as wanted(schema, name)
join pg_namespace n on n.nspname = wanted.schema
join pg_class c on c.relnamespace = n.oid and c.relname = wanted.name and c.relkind = 'p'
cross join lateral pg_partition_tree(c.oid) p
join pg_class l on l.oid = p.relid join pg_namespace ln on ln.oid = l.relnamespace
join pg_inherits i on i.inhrelid = l.oid
left join pg_type t on t.oid = l.reltype
where p.level > 0
order by 1, 2, ln.nspname, l.relname
"""
STORAGE = f"""
select n.nspname::text, c.relname::text,
       coalesce(pg_relation_filenode(c.oid), (
           select hashtext(string_agg(pg_relation_filenode(p.relid)::text, ' ' order by p.relid::oid))
           from pg_partition_tree(c.oid) p where p.isleaf), 0),
       (select json_object_agg(a.attname, json_build_array(a.xmin::text, a.attnum)) from pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
       (select t.oid || ' ' || t.xmin from pg_trigger t
        where t.tgrelid = c.oid and t.tgname = '{names.TRUNCATE_TRIGGER}' and t.tgenabled = 'A'),
       (select json_object_agg(a.attname, (select json_agg(e.enumlabel order by e.enumsortorder) from pg_enum e
                                           where e.enumtypid = a.atttypid))
        from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
             and exists (select from pg_enum e where e.enumtypid = a.atttypid))
from unnest(%s::text[], %s::text[]) as wanted(schema, name)
join pg_namespace n on n.nspname = wanted.schema
join pg_class c on c.relnamespace = n.oid and c.relname = wanted.name
"""
RELATIONS = f"""
select n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text,
       (select x.extname::text from pg_depend d join pg_extension x on x.oid = d.refobjid
        where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.refclassid = 'pg_extension'::regclass
              and d.deptype = 'e' limit 1),
       c.relispartition, exists (select from pg_inherits i where i.inhparent = c.oid),
       row_security_active(c.oid), has_schema_privilege(n.oid, 'usage'),
       array(select a.attname::text from pg_attribute a where a.attrelid = c.oid and a.attnum > 0
             and not a.attisdropped and not has_column_privilege(c.oid, a.attnum, 'select') order by a.attnum),
       greatest(c.reltuples, 0)::int8
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'v', 'm', 'f') and n.nspname not in ('pg_catalog', 'information_schema', '{names.SCHEMA}')
order by 1, 2
"""
PARENTS = """
select n.nspname::text, p.relname::text, array_agg(i.inhrelid::regclass::text order by i.inhseqno, i.inhrelid)
from pg_inherits i join pg_class p on p.oid = i.inhparent join pg_namespace n on n.oid = p.relnamespace
where p.relkind = 'r' group by 1, 2
"""
# What was put into a publication, by name.
PUT = """
select n.nspname::text, c.relname::text from pg_publication p join pg_publication_rel r on r.prpubid = p.oid
join pg_class c on c.oid = r.prrelid join pg_namespace n on n.oid = c.relnamespace where p.pubname = %s
"""
CARRIED = f"""
select n.nspname::text, c.relname::text, concat_ws(' ', r.oid::text,
       case when r.prqual is not null then 'some rows' end,
       case when r.prattrs is not null then 'some columns' end,
       case when not (p.pubinsert and p.pubupdate and p.pubdelete) then 'some changes' end,
       case when c.relkind = 'p' and not p.pubviaroot then '{BY_PARTITION}' end)
from pg_publication p join pg_publication_rel r on r.prpubid = p.oid
join pg_class c on c.oid = r.prrelid join pg_namespace n on n.oid = c.relnamespace where p.pubname = %s
"""
# Keys of columns alone, that hold for every row.
UNIQUE = """
select n.nspname::text, c.relname::text,
       array(select a.attname::text from unnest(i.indkey) with ordinality as k(attnum, position)
             join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
             where k.position <= i.indnkeyatts order by k.position)
from pg_index i
join pg_class c on c.oid = i.indrelid
join pg_namespace n on n.oid = c.relnamespace
where i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null and n.nspname <> 'pg_catalog'
order by not i.indisprimary, i.indexrelid
"""
_NAMED = """
array(select a.attname::text from unnest({1}) with ordinality as u(attnum, position)
      join pg_attribute a on a.attrelid = {0} and a.attnum = u.attnum order by u.position)
"""
FOREIGN = f"""
select n.nspname::text, c.relname::text, {_NAMED.format("f.conrelid", "f.conkey")},
       m.nspname::text, d.relname::text, {_NAMED.format("f.confrelid", "f.confkey")}
from pg_constraint f
join pg_class c on c.oid = f.conrelid join pg_namespace n on n.oid = c.relnamespace
join pg_class d on d.oid = f.confrelid join pg_namespace m on m.oid = d.relnamespace
where f.contype = 'f' and f.conparentid = 0
order by 1, 2, f.conkey, 4, 5
"""

CATALOGUE = "namespace class attribute type cast enum index trigger inherits"
"""What TABLES, COLUMNS, STORAGE and PARTITIONS read."""
_VERSIONS = "(select sum(hashtextextended(concat(ctid, ' ', xmin), 0)) from pg_catalog.pg_{})"
MARK = f"select concat_ws(' ', {', '.join(_VERSIONS.format(name) for name in CATALOGUE.split())})"
"""Another text after any change of these. With 500 tables it takes the server 10 ms."""
