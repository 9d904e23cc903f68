"""The command. The only package that puts the domain, the connectors, the jobs and the local stack together."""

from driftless.cli import servers, init, setup, run, status  # noqa: I001 - the order in which --help lists them
from driftless.cli.base import main

__all__ = ["init", "main", "run", "servers", "setup", "status"]
