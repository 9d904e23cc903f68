"""Fetch a conf of artifacts.xml and print its files, as `spark-submit --jars` takes them: `python -m stack spark`."""

from __future__ import annotations

import sys

from driftless.errors import StackError
from stack import fetch

if __name__ == "__main__":
    try:
        files = fetch(sys.argv[1:], lambda line: print(line, file=sys.stderr))
    except StackError as exc:
        sys.exit(f"error: {exc}")
    print(",".join(str(path) for paths in files.values() for path in paths))
