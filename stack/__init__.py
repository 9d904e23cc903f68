"""The local servers as plain processes: coordinates, versions, start and stop."""

from stack.machine.artifacts import fetch
from stack.machine.home import kept_folders, stack_home
from stack.stack import SERVERS, Endpoints, Stack, find_stack

__all__ = ["SERVERS", "Endpoints", "Stack", "fetch", "find_stack", "kept_folders", "stack_home"]
