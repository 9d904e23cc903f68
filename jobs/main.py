"""`driftless run` for spark-submit, which says on which cluster (docs/cluster.md).

spark-submit --master spark://HOST:7077 --jars ... jobs/main.py NAME... -f sync.yaml
"""

from __future__ import annotations

import sys

from cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["run"]
    main()
