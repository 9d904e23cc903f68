#!/bin/sh -e
# What the published image does on its first start: make the data folder, with a password for clients that come by TCP.
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    printf %s "$POSTGRES_PASSWORD" > /tmp/password
    # shellcheck disable=SC2086 - several arguments
    initdb --username=postgres --pwfile=/tmp/password --auth=trust $POSTGRES_INITDB_ARGS
    rm /tmp/password
    echo 'host all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"
    echo "listen_addresses = '*'" >> "$PGDATA/postgresql.conf"
fi
exec "$@"
