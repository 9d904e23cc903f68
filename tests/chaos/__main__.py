"""`python -m tests.chaos`: print what will be done, do it, and compare every document. A seed gives the same again."""

from __future__ import annotations

import argparse
import random
import sys

from stack import Stack
from tests.chaos.faults import FAULTS
from tests.chaos.fight import announce, fight, plan


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--faults", type=int, default=len(FAULTS), help="how many")
    parser.add_argument("--stack", default="chaos", help="whose servers are broken")
    parser.add_argument("only", nargs="*", help="of these alone", metavar="FAULT")
    given = parser.parse_args()
    if wrong := set(given.only) - FAULTS.keys():
        parser.error(f"no such fault: {', '.join(sorted(wrong))}; there are: {', '.join(sorted(FAULTS))}")
    planned = plan(given.seed, given.faults, given.only)
    announce(given.seed, planned)
    stack = Stack(given.stack)
    stack.up(print)
    try:
        fight(stack, given.seed, planned)
    finally:
        if given.stack == "chaos":
            stack.destroy()
    print(f"seed {given.seed}: every follower equals the source after {len(planned)} faults")
    return 0


if __name__ == "__main__":
    sys.exit(main())
