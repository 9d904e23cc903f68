"""The command. The only package that puts the domain, the connectors, the jobs and the local stack together."""

from driftless.cli import servers, setup, run, status, generations, hold, quarantine  # noqa: I001 - the order in which --help lists them
from driftless.cli.base import main

__all__ = ["generations", "hold", "main", "quarantine", "run", "servers", "setup", "status"]
