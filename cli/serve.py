"""`serve`: metrics, status and a page over HTTP, beside a pipeline."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Annotated

import typer

from cli.base import SYNC, File, app
from driftless.errors import ConfigError
from driftless.pipeline import control_of, load

TOKEN = "DRIFTLESS_SERVE_TOKEN"  # noqa: S105 - a name, not a token
"""The environment variable that holds the token."""


@app.command()
def serve(
    file: File = SYNC,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any that is free.")] = 8480,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help=f"A file with the token that allows more. Else: ${TOKEN}."),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", help="For TLS: a PEM file with the certificate and its chain.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", help="A PEM file with its key, if it is not in there.")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Without TLS on another address than this machine's own.")
    ] = False,
) -> None:
    """Serve metrics and status of a pipeline over HTTP until Ctrl-C or SIGTERM. Runs need no `serve`, nor notice it.

    On 127.0.0.1 everybody on this machine may read it. On another --host every request needs the token, and
    --certificate is needed unless you say --insecure.

    Example: `driftless serve`

    For other machines: `driftless serve --host 0.0.0.0 --token-file token --certificate serve.pem --key serve.key`
    """
    from serve.http.access import AccessRules
    from serve.http.server import Listening
    from serve.process import Settings, become

    token = _token(token_file)
    loopback = _is_loopback(host)
    if not loopback and token is None:
        raise ConfigError(
            f"--host {host}: others than this machine may reach it, and there is no token",
            hint=f"set ${TOKEN} or --token-file; `openssl rand -hex 24` makes a token",
        )
    if not loopback and certificate is None and not insecure:
        raise ConfigError(
            f"--host {host}: without TLS the token could be read on the way",
            hint="give --certificate and --key; or --insecure, where something else encrypts, such as a proxy",
        )
    if key is not None and certificate is None:
        raise ConfigError("--key: there is no --certificate that it belongs to", hint="give both")
    config = load(file)
    place = Listening(host, port, certificate, key)
    listening = place.bound()
    control_of(config).require()
    names = {host, "localhost", "127.0.0.1", "::1"} if loopback else set()
    become(Settings(config, file.absolute(), AccessRules(token, loopback, frozenset(names)), place), listening)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _token(file: Path | None) -> str | None:
    """The token. Raises ConfigError for one that could be guessed."""
    from serve.http.access import TOKEN_CHARACTERS

    if file is None:
        found, where = os.environ.get(TOKEN), f"${TOKEN}"
    else:
        where = f"--token-file {file}"
        try:
            found = file.read_text().strip()
        except (OSError, UnicodeDecodeError) as exc:
            why = exc.strerror if isinstance(exc, OSError) else "it is no text"
            raise ConfigError(f"{where}: it cannot be read: {why}", hint="name a file with the token alone") from None
    if found is None:
        return None
    if len(found) < TOKEN_CHARACTERS or not found.isascii() or any(c.isspace() for c in found):
        raise ConfigError(
            f"{where}: a token has {TOKEN_CHARACTERS} ASCII characters or more, and no blank",
            hint="`openssl rand -hex 24` makes one",
        )
    return found
