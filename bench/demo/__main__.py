"""`python -m bench.demo`, which is `make demo`."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

import psycopg
import redis
import urllib3

from bench.demo.look import stop_command
from bench.demo.screen import Screen
from bench.demo.shop import Size
from bench.demo.story import Demo
from driftless.errors import SyncError
from stack import Stack

_FOLDER = Path(".driftless") / "demo"


def main() -> int:
    """0: no drift; 1: drift, or something went wrong; 130: interrupted."""
    asked = argparse.ArgumentParser(
        prog="python -m bench.demo",
        description="Start a real stack, make a shop, follow it live, and compare every document at the end.",
    )
    asked.add_argument("--stack", default="default", metavar="NAME", help="the local stack to use (default: default)")
    asked.add_argument("--scale", type=float, default=1.0, metavar="X", help="size of the shop, 1 is the whole of it")
    asked.add_argument("--seconds", type=float, default=20, metavar="N", help="how long to watch the writer (20)")
    options = asked.parse_args()
    if options.scale <= 0:
        asked.error("--scale must be more than 0")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    screen = Screen()
    try:
        stack = Stack(options.stack)
        demo = Demo(stack, Size.scaled(options.scale), options.seconds, _FOLDER, screen)
        try:
            return 0 if demo.tell() else 1
        except KeyboardInterrupt:
            screen.say(f"\nstopped. {_still_up(stack)}", "bold")
            return 130
    except SyncError as exc:
        screen.say(f"\nerror: {exc}", "red")
        screen.say(exc.hint)
    except (psycopg.Error, redis.RedisError, urllib3.exceptions.HTTPError) as exc:
        screen.say(f"\nerror: a server does not answer as it did before: {exc}", "red")
    return 1


def _still_up(stack: Stack) -> str:
    if not stack.running():
        return "Nothing is left running."
    return f"The servers of the stack are still up; to stop them: {stop_command(stack.name)}"


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """The first one ends the demo in good order; those that follow cannot hurry it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
