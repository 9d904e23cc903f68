"""`python -m tests.chain.commands.impatient_view SECONDS COMMAND...`: the command, whose views soon tell of a
transaction without an end.
"""

from __future__ import annotations

import sys

import jobs.views.builder
from cli import main

if __name__ == "__main__":
    jobs.views.builder.END_SECONDS = float(sys.argv[1])
    sys.argv = ["driftless", *sys.argv[2:]]
    main()
