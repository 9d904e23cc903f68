"""One package, or one file, per kind of store; its name is the `kind` in sync.yaml.

A kind's module holds its `Config`, whose fields are the reference page and whose `open` gives the sink. Modules that
start with an underscore are shared parts, not kinds. An installed package adds kinds by entry points:
docs/adding-a-sink.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from ssl import SSLContext
from typing import Annotated, Any, Final, cast

from pydantic import Field

from driftless.config.models import StoreConfig
from driftless.errors import ConfigError, SinkError, SinkMisconfigured
from driftless.sink import Sink, SinkContext
from driftless.transport.tls import UnreadableCertificate, client_context

HORIZON_SECONDS = 3600
"""How long a store remembers the version of a deleted key, so that a late older write cannot bring it back.

1 h: longer than the slowest late writer, which is a request of 60 s at most, given again for at most 600 s (the limits
of the fields below) by a runner whose lease has since run out.
"""


ACCESS: Final = "how the store is reached"
"""Marks a field of a kind, as `Annotated[str, ACCESS]`, that does not say what the store holds.

Generations move with such a field. Where another one changes, the follower is rebuilt.
"""


class Unfit(ValueError):
    """A field's value that is right by itself and cannot serve this follower."""

    def __init__(self, field: str, what: str) -> None:
        super().__init__(what)
        self.field = field


class SinkConfig(StoreConfig):
    """What every kind of store has in its part of sync.yaml. Unknown fields are refused; values are never shown."""

    retry_seconds: Annotated[float, ACCESS] = Field(
        default=20,
        ge=0,
        le=600,
        description="Seconds that a write which may still succeed is tried before the follower says that it waits.",
        examples=["60"],
    )
    request_seconds: Annotated[float, ACCESS] = Field(
        default=30, gt=0, le=60, description="Seconds that one request may take.", examples=["10"]
    )

    @classmethod
    def access(cls) -> frozenset[str]:
        return frozenset(name for name, field in cls.model_fields.items() if ACCESS in field.metadata)

    @property
    def expires(self) -> bool:
        """Whether documents go away by themselves: then one that is absent is no difference, and one that is there is
        compared as ever.
        """
        return False

    @property
    def keeps_text(self) -> bool:
        """Whether documents are read back byte by byte as they were given."""
        return True

    @abstractmethod
    def open(self, context: SinkContext) -> Sink:
        """The sink. Cheap: nothing is sent before the first call."""

    def validate_for(self, context: SinkContext) -> None:
        """Raise Unfit, with a text for the operator, when this cannot serve that follower. Asks no server."""

    def notes(self, document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """(field, what an operator should know of it). `document`: the fields of the view, as driftless/views/sample.py
        shows their shape. Asks no server.
        """
        del document
        return iter(())


def client_tls(ca_certs: str | None, client_cert: str | None, client_key: str | None) -> SSLContext:
    """What connections to a store are made with, of the fields of these names. Raises SinkMisconfigured where a file
    cannot be read.
    """
    try:
        return client_context(ca_certs, client_cert, client_key)
    except UnreadableCertificate as exc:
        raise SinkMisconfigured(str(exc), hint="Give the path of a PEM file.") from None


def drop_of_live(follower: str, generation: int) -> SinkError:
    """What a sink raises rather than take away what readers see."""
    return SinkError(
        f"generation {generation} of `{follower}` is not dropped: readers see it, or are being switched to or from it",
        hint=f"`driftless promote {follower} --generation N` shows them another one first; "
        f"`driftless remove {follower} --drop` takes all of them away",
    )


GROUP = "driftless.sinks"
"""Of the entry points by which packages add kinds: the name is the kind, the value the module with its `Config`."""


def kinds() -> list[str]:
    """The kinds of store there are, found from the folder and from the installed packages."""
    return sorted({*_own(), *_installed()})


def config_model(kind: str) -> type[SinkConfig]:
    """The fields that a kind takes in sync.yaml. Raises KeyError for a kind that there is not."""
    if kind in _own():
        return cast(type[SinkConfig], import_module(f"sinks.{kind}").Config)
    found = _installed()[kind]
    try:
        return cast(type[SinkConfig], found.load().Config)
    except (ImportError, AttributeError) as exc:
        package = found.dist.name if found.dist else "?"
        raise ConfigError(
            f"the kind of store `{kind}` of the package {package} cannot be loaded: {exc}",
            hint=f"Repair the package or uninstall it: `pip uninstall {package}`.",
        ) from exc


def _own() -> list[str]:
    here = Path(__file__).parent
    packages = (path.parent.name for path in here.glob("[!_]*/__init__.py"))
    return [*packages, *(path.stem for path in here.glob("[!_]*.py"))]


@cache
def _installed() -> dict[str, EntryPoint]:
    """What packages add. A kind of this folder cannot be replaced."""
    return {found.name: found for found in entry_points(group=GROUP)}


def open_sink(kind: str, config: Mapping[str, Any] | SinkConfig, context: SinkContext) -> Sink:
    """Open a follower's store. `config` may be a plain dict, so that all arguments can be sent to a Spark executor."""
    model = config_model(kind)
    parsed = config if isinstance(config, model) else model.model_validate(dict(cast(Mapping[str, Any], config)))
    parsed.validate_for(context)
    return parsed.open(context)
