"""sync.yaml: its models. What each key means is said here, and docs/configuration.md is made of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, WithJsonSchema, model_validator

from driftless.config.address import certificates_problem, dsn_problem, url_problem
from driftless.config.base import Model
from driftless.config.duration import Duration
from driftless.config.kafka_security import KafkaSecurity
from driftless.config.patterns import PatternConfig
from driftless.config.streams import EventsConfig, SqlName, StreamConfig
from driftless.config.views import ViewConfig
from driftless.names import HEARTBEAT_PREFIX
from driftless.streams.composed import composed_sql

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,47}")
_BROKER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\],@]+):\d{1,5}")


def near_name(name: str) -> str:
    """The name that was probably meant: lower case, `-` for what cannot be in a name."""
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")


def pipeline_name(name: str) -> str:
    """The name itself, where it can be one; else a ValueError with a text for the operator."""
    if not _NAME.fullmatch(name):
        near = near_name(name)
        meant = f"; did you mean `{near}`?" if _NAME.fullmatch(near) else ""
        raise ValueError(f"use lower-case letters, digits, `_` and `-`, begin with a letter, at most 48{meant}")
    return name


def _dsn(dsn: str) -> str:
    if problem := dsn_problem(dsn):
        raise ValueError(problem)
    return dsn


def _brokers(bootstrap: str) -> str:
    if "://" in bootstrap:
        raise ValueError("write host:port without a scheme, as in `kafka:9092`; TLS is set in `kafka.security`")
    for broker in bootstrap.split(","):
        if not _BROKER.fullmatch(broker.strip()):
            raise ValueError("write host:port of each broker, separated by commas, as in `kafka-1:9092,kafka-2:9092`")
    return bootstrap


def _http(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("must begin with `http://` or `https://` and a host, as in `http://connect:8083`")
    if problem := url_problem(url, ("http", "https"), "http://connect:8083"):
        raise ValueError(problem)
    return url


def _setting(value: object) -> object:
    """YAML's numbers and booleans as the text that the client takes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


_OURS = (
    "group.id",
    "group.instance.id",
    "transactional.id",
    "transaction.timeout.ms",
    "isolation.level",
    "acks",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.idempotence",
    "enable.partition.eof",
    "auto.offset.reset",
)


def _options(options: dict[str, str]) -> dict[str, str]:
    if "bootstrap.servers" in options:
        raise ValueError("`bootstrap.servers` is what `kafka.bootstrap` says: leave it out here")
    if ours := [name for name in _OURS if name in options]:
        raise ValueError(f"`{ours[0]}` cannot be set: what driftless promises rests on its own value of it")
    return options


Name = Annotated[str, AfterValidator(pipeline_name), WithJsonSchema({"type": "string", "format": "name"})]
Setting = Annotated[str, BeforeValidator(_setting)]


class TableConfig(Model):
    """One captured table."""

    exclude: tuple[str, ...] = Field(
        default=(),
        description="Columns that never leave the database: they are neither in the log nor in a document.",
        examples=["[password_hash]"],
    )
    partitions: int | None = Field(
        default=None,
        ge=1,
        le=512,
        description="Partitions of this table's topic. As `kafka.partitions` says if left out. Frozen once made.",
        examples=["8"],
    )
    retention: Duration = Field(
        default="7d",
        description="How long the log keeps a delete before it may forget it. A follower that was away for longer "
        "must be rebuilt.",
        examples=["14d"],
    )
    history: Duration | None = Field(
        default=None,
        description="For `events` of this table, or `with` it: how long the log keeps rows that are deleted or updated "
        "afterwards, so that they still count in what is computed again or proven. For ever if left out.",
        examples=["400d"],
    )


class SourceConfig(Model):
    """The Postgres database that is followed."""

    dsn: Annotated[str, AfterValidator(_dsn)] = Field(
        repr=False,
        description="Postgres, with a role that has REPLICATION and SELECT, as a URL or as libpq's `key=value` pairs.",
        examples=["${SHOP_DSN}"],
    )
    admin_dsn: Annotated[str, AfterValidator(_dsn)] | None = Field(
        default=None,
        repr=False,
        description="For `driftless apply` alone: a role that owns the tables. Without it, a DBA runs what "
        "`driftless plan --sql` prints.",
        examples=["${SHOP_ADMIN_DSN}"],
    )
    tables: dict[str, TableConfig] = Field(
        description='The tables to capture, as schema.table; without a schema, `public`. A part that holds `.` or `"` '
        "is quoted as in SQL. One compacted topic is made for each.",
        examples=["{public.customers: {exclude: [password_hash]}, public.products: {}}"],
    )


class KafkaConfig(Model):
    """The brokers that keep the log."""

    bootstrap: Annotated[str, AfterValidator(_brokers)] = Field(
        description="host:port of one or more brokers, separated by commas.", examples=["kafka-1:9092,kafka-2:9092"]
    )
    partitions: int = Field(
        default=4, ge=1, le=512, description="Partitions of each table's topic. Frozen once made.", examples=["4"]
    )
    replication: int = Field(
        default=1, ge=1, le=9, description="Copies of each topic that the brokers keep: 3 on a cluster.", examples=["3"]
    )
    heartbeat_prefix: str = Field(
        default=HEARTBEAT_PREFIX,
        pattern="^[a-zA-Z0-9._-]+$",
        description="What the name of Debezium's own topic begins with: PREFIX.NAME. For brokers that keep names with "
        "`__` to themselves.",
        examples=["shop.heartbeat"],
    )
    security: KafkaSecurity | None = Field(
        default=None,
        repr=False,
        description="How clients log in, and what they trust: [below](#kafkasecurity). Without it: no TLS, no login.",
        examples=["{protocol: SASL_SSL, mechanism: PLAIN, username: shop, password: '${KAFKA_PASSWORD}'}"],
    )
    options: Annotated[dict[str, Setting], AfterValidator(_options)] = Field(
        default_factory=dict,
        repr=False,
        description="Settings that tune clients, by librdkafka's names. What Spark's Java client knows too is given to "
        "it as well, by its own name. Security is not set here.",
        examples=["{client.id: shop, reconnect.backoff.max.ms: 5000}"],
    )


class SourceSsl(Model):
    """How the Connect worker proves who it is to the source, and what it trusts. All paths are the worker's."""

    ca: str | None = Field(
        default=None,
        description="A PEM file of certificates to trust, where `sslmode` in the DSN is `verify-ca` or `verify-full`.",
        examples=["/etc/connect/source-ca.pem"],
    )
    certificate: str | None = Field(
        default=None, description="The client certificate, a PEM file.", examples=["/etc/connect/source.pem"]
    )
    key: str | None = Field(
        default=None,
        description="Its key in PKCS#8: in DER, or in PEM where it is an RSA key (the JDBC driver reads no other).",
        examples=["/etc/connect/source.pk8"],
    )


class ConnectConfig(Model):
    """Kafka Connect, which runs Debezium."""

    url: Annotated[str, AfterValidator(_http)] = Field(
        repr=False, description="The REST interface of Kafka Connect.", examples=["https://connect:8083"]
    )
    username: str | None = Field(
        default=None, description="Who logs in, where the interface asks for it.", examples=["shop"]
    )
    password_http: str | None = Field(
        default=None, repr=False, description="The password of `username`.", examples=["${CONNECT_PASSWORD}"]
    )
    ca_certs: str | None = Field(
        default=None, description="File of certificates to trust for `https`.", examples=["/etc/ssl/connect-ca.pem"]
    )
    client_cert: str | None = Field(
        default=None, description="File of the client certificate for `https`.", examples=["/etc/ssl/shop.pem"]
    )
    client_key: str | None = Field(
        default=None,
        description="File of its key; not needed where `client_cert` holds it too.",
        examples=["/etc/ssl/shop.key"],
    )
    password: str | None = Field(
        default=None,
        description="Where the Connect worker finds the DSN's password, as `provider:path:key` of one of its config "
        "providers: `file:/etc/connect/shop.properties:password`, `env:SHOP_PASSWORD`. The local stack needs none.",
        examples=["env:SHOP_PASSWORD"],
    )
    source_ssl: SourceSsl | None = Field(
        default=None,
        description="What the worker needs for TLS to the source: [below](#connectsource_ssl). Needed where the DSN "
        "names such files, which are this machine's.",
        examples=["{ca: /etc/connect/source-ca.pem}"],
    )

    @model_validator(mode="after")
    def _goes_together(self) -> ConnectConfig:
        if (self.username is None) != (self.password_http is None):
            raise ValueError("`username` and `password_http` are given together, or neither")
        if self.username is not None and "@" in self.url:
            raise ValueError("the url holds a user already: leave it there, or write `username` and `password_http`")
        if problem := certificates_problem(self.url, "https", self):
            raise ValueError(problem)
        return self


class FollowerConfig(Model):
    """Who keeps a copy of a view's documents: the fields below, and one kind of store with its own."""

    view: str = Field(description="The view, or the stream, whose documents it holds.", examples=["product"])
    keep: Duration = Field(
        default="1d",
        description="How long a generation that readers have left is still followed, to go back to with "
        "`driftless promote`. After that it is dropped.",
        examples=["7d"],
    )
    kind: str = Field(exclude=True)
    sink: dict[str, Any] = Field(exclude=True, repr=False)
    access: frozenset[str] = Field(exclude=True)


class AlertsConfig(Model):
    """Whom `driftless serve` tells what is wrong, where no Prometheus does."""

    webhook: Annotated[str, AfterValidator(_http)] = Field(
        repr=False,
        description="Where each alert is posted as JSON: once when it fires, once when it is over.",
        examples=["${ALERT_URL}"],
    )
    headers: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description="Sent with each.",
        examples=['{Authorization: "Bearer ${ALERT_TOKEN}"}'],
    )
    lag: Duration = Field(
        default="1m", description="A follower that is further behind for two minutes is an alert.", examples=["5m"]
    )
    proof: Duration = Field(
        default="8d", description="A follower that was last verified longer ago is an alert.", examples=["2d"]
    )


class StoreConfig(Model):
    """A kind of store's part of a follower."""

    @classmethod
    def access(cls) -> frozenset[str]:
        """The fields that say how the store is reached, not what it holds: where one changes, nothing is rebuilt."""
        return frozenset()

    @property
    def place(self) -> tuple[str, ...]:
        """Where it writes, so that no two followers write there; empty where that cannot be told."""
        return ()

    @staticmethod
    def reaches(place: tuple[str, ...], other: tuple[str, ...]) -> bool:  # noqa: ARG004
        """Whether what a follower of one place makes may have a name of another one's. Equal places are no matter."""
        return False


class ConfigPlaces(Protocol):
    """Where in the file something stands."""

    def at(self, location: tuple[int | str, ...], what: str) -> str: ...


class Config(Model):
    """A whole sync.yaml, checked. Values from the environment are in it: never print or store it whole."""

    name: Name = Field(
        description="Prefix of every topic, slot, publication, index of our own and key made for this pipeline. Never "
        "change it.",
        examples=["shop"],
    )
    source: SourceConfig = Field(description="The Postgres database that is followed.")
    kafka: KafkaConfig = Field(description="The brokers that keep the log.")
    connect: ConnectConfig = Field(description="Kafka Connect, which runs Debezium.")
    views: dict[Name, ViewConfig] = Field(
        description="What a document is, by names of your own.", examples=["{product: {root: public.products}}"]
    )
    events: dict[SqlName, EventsConfig] = Field(
        default_factory=dict,
        description="What happens, by names of your own: sources of events for `streams`.",
        examples=["{clicks: {topic: app.clicks, columns: {id: bigint, at: timestamptz}, time: {event: at}}}"],
    )
    patterns: dict[SqlName, PatternConfig] = Field(
        default_factory=dict,
        description="What events of one key do in turn, by names of your own: for `streams`.",
        examples=["{abandoned: {events: clicks, by: [user_id], steps: [...]}}"],
    )
    streams: dict[SqlName, StreamConfig] = Field(
        default_factory=dict,
        description="What is computed over time, by names of your own.",
        examples=["{page_minute: {sql: SELECT ..., key: [minute, page]}}"],
    )
    followers: dict[Name, FollowerConfig] = Field(
        description="Who keeps a copy, by names of your own.",
        examples=['{product-cache: {view: product, redis: {url: "${CACHE_URL}", key: "product:{id}"}}}'],
    )
    alerts: AlertsConfig | None = Field(
        default=None,
        description="Whom `driftless serve` tells what is wrong, where no Prometheus does: [below](#alerts).",
        examples=['{webhook: "${ALERT_URL}"}'],
    )
    _places: ConfigPlaces | None = PrivateAttr(default=None)

    def table_of(self, follower: str) -> str | None:
        """The root table, as schema.table, of a follower's view; None where it follows a stream, or a view of one."""
        view = self.views.get(self.followers[follower].view)
        return None if view is None or view.stream else view.root

    def stream_of(self, follower: str) -> str | None:
        """The stream that a follower follows, or whose documents are the root of its view."""
        name = self.followers[follower].view
        return name if name in self.streams else self.views[name].stream or None

    def at(self, location: tuple[int | str, ...], what: str) -> str:
        """`sync.yaml:14: views.order.where: what`: a message about this place of the file it was read from."""
        if self._places is None:
            return f"{'.'.join(map(str, location))}: {what}"
        return self._places.at(location, what)

    @property
    def captured_events(self) -> frozenset[str]:
        """The tables whose rows are events, or beside events, as schema.table: their logs keep every row."""
        found = {events.captured for events in self.events.values() if events.captured is not None}
        found |= {lookup.table for events in self.events.values() for lookup in events.lookups.values()}
        return frozenset(found)

    def sql_of(self, stream: str) -> str:
        """What a stream computes, over events alone: with the SQL of the streams that it reads."""
        return composed_sql(stream, {name: each.sql for name, each in self.streams.items()})

    def with_events(self, events: Mapping[str, EventsConfig]) -> Config:
        """The same, with these events in place of its own."""
        return self.model_copy(update={"events": dict(events)})

    def read_from(self, places: ConfigPlaces) -> Config:
        """The same, which knows where it stands in its file."""
        self._places = places
        return self


FOLLOWER_FIELDS = ("view", "keep")
"""What a follower has beside its store."""
