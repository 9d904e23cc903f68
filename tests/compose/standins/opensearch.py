"""What the published image does: every variable with a dot in its name is a setting."""

from __future__ import annotations

import os

settings = [f"-E{key}={value}" for key, value in os.environ.items() if "." in key]
os.execv("bin/opensearch", ["opensearch", *settings])  # noqa: S606
