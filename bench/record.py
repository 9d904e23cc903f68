"""The latest run in docs/benchmarks.md: the machine, and each claim's figures. What is written by hand stays."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import psutil

from bench.figures import Figure, Scale, markdown
from stack import SERVERS
from stack.machine.java import find_java
from stack.servers.server import Site
from stack.stack import KINDS

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
_SECTION = re.compile(r"^### (\S+)\n(.*?)(?=^### |\Z)", re.MULTILINE | re.DOTALL)
_BEGIN, _END = "<!-- begin: python -m bench --write -->\n", "<!-- end -->\n"


def machine(load: float) -> str:
    """Everything that the figures depend on. `load`: of the machine just before the run."""
    memory = psutil.virtual_memory().total / (1 << 30)
    site = Site("", Path(), {}, None)
    servers = ", ".join(f"{server} {KINDS[server](site).version()}" for server in SERVERS)
    return (
        f"{time.strftime('%Y-%m-%d')}: {_processor()}, {os.cpu_count()} cores, {memory:.0f} GB, "
        f"{platform.system()} {platform.release()}; Java {find_java().version}, Python {platform.python_version()}, "
        f"Spark {version('pyspark')}; {servers}. Clients, servers and Spark share the machine; "
        f"load before the run: {load:.1f}."
    )


def write(described: str, scale: Scale, claims: Mapping[str, Sequence[Figure]], *, page: Path = PAGE) -> None:
    """Put the figures of claims between the page's marks, in place of their last ones; other claims keep theirs.

    Raises ValueError for a page without the marks.
    """
    text = page.read_text(encoding="utf-8")
    begin, end = text.find(_BEGIN), text.find(_END)
    if not 0 <= begin < end:
        raise ValueError(f"{page} has no place for the figures: {_BEGIN.strip()}, {_END.strip()}")
    sections = dict(_SECTION.findall(text[begin:end]))
    for name, figures in claims.items():
        sections[name] = f"{described} `--rows {scale.rows} --pairs {scale.pairs}`.\n\n{markdown(figures)}"
    parts = (f"### {name}\n\n{section.strip()}\n\n" for name, section in sections.items())
    page.write_text(text[:begin] + _BEGIN + "".join(parts) + text[end:], encoding="utf-8")


def _processor() -> str:
    """The model as the kernel names it."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()
