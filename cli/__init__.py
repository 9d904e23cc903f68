"""The command. The only package that puts the domain, the connectors, the jobs and the local stack together."""

# In the order in which --help lists them.
from cli import servers, init, setup, run, status, serve, generations, hold, verify, quarantine  # noqa: I001
from cli.base import main

__all__ = ["generations", "hold", "init", "main", "quarantine", "run", "serve", "servers", "setup", "status", "verify"]
