"""The page: what is shown of a snapshot, as HTML. Nothing in it is of a row."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from driftless.config.duration import milliseconds
from driftless.config.models import Config
from driftless.control.health import clock
from driftless.facts.generation import Generation, generations
from serve.facts.collector import Collector, Snapshot
from serve.page.pipeline_map import duration, is_well, pipeline_map, troubled

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).parent / "templates"
_CODE = re.compile(r"`([^`]+)`")
ACTIONS = {
    "pause": "It stays where it is until you resume it, also when runs are started again. Readers keep what they have.",
    "resume": "It goes on from where it stands.",
    "rebuild": "Whoever runs it builds a new generation from the log beside the live one, compares the numbers, and "
    "switches readers to it. The old one is kept for a while.",
    "retry": "The newest state of its quarantined documents is given to the store again.",
    "verify": "Every document is compared with the source, on this machine, at a low priority. It takes memory for "
    "Spark and, of millions of documents, minutes.",
}
"""What a follower's buttons ask before they do anything."""


class Page:
    """Renders parts once for each snapshot, however many look."""

    def __init__(self, config: Config, collector: Collector, verifying: Callable[[], str]) -> None:
        """`verifying`: what a `verify` that was begun here does, in words; empty where none was."""
        self._config = config
        self._verifying = verifying
        self._collector = collector
        self._lock = threading.Lock()
        self._made: tuple[Snapshot, dict[str, str]] | None = None

    @cached_property
    def _templates(self) -> Environment:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined  # 2 MB, which nobody needs before he looks

        loader = FileSystemLoader(_TEMPLATES)
        made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
        made.filters |= {"code": _code, "json": json.dumps}
        return made

    def whole(self, parts: Mapping[str, str] | None, *, has_token: bool) -> str:
        """The page. `parts`: None where reading needs the token: then it has nothing of the pipeline."""
        shown = {name: Markup(html) for name, html in (parts or dict.fromkeys(self.names, "")).items()}  # noqa: S704
        allowed = parts is not None
        names = list(self._config.followers) if allowed else []
        pipeline = self._config.name if allowed else "driftless"
        more = {"has_token": has_token, "allowed": allowed}
        return self._render("page.html", pipeline=pipeline, followers=names, parts=shown, **more)

    @property
    def names(self) -> list[str]:
        """Of all parts."""
        return ["wrong", "map", "quarantine", "proofs", *(f"follower {name}" for name in self._config.followers)]

    def parts(self, snapshot: Snapshot) -> dict[str, str]:
        """HTML by the part's name."""
        with self._lock:
            if self._made is None or self._made[0] is not snapshot:
                self._made = (snapshot, dict(self._parts(snapshot)))
            return self._made[1]

    def _parts(self, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
        facts = snapshot.facts
        problems = [{**p, "since": p["since"] and clock(p["since"])} for p in facts["problems"]]
        yield "wrong", self._render("wrong.html", problems=problems, warnings=facts["warnings"])
        columns = pipeline_map(self._config, snapshot, self._collector.history.rate)
        yield "map", self._render("map.html", columns=columns)
        for follower in facts["followers"]:
            yield f"follower {follower['name']}", self._render("follower.html", f=self._follower(snapshot, follower))
        held = self._collector.quarantine
        shown = [{**vars(one), "since": clock(one.since)} for one in held or ()]
        yield "quarantine", self._render("quarantine.html", held=shown, unknown=held is None)
        proofs = [_proof(snapshot, one["name"]) for one in facts["followers"]]
        yield "proofs", self._render("proofs.html", proofs=proofs, verifying=self._verifying())

    def _follower(self, snapshot: Snapshot, follower: Mapping[str, Any]) -> dict[str, Any]:
        name, entry = follower["name"], self._config.followers[follower["name"]]
        known = generations(snapshot.state, name)
        lag, records, documents = follower["lag_seconds"], follower["lag_records"], follower["documents"]
        actions = ["resume" if follower["state"] == "paused" else "pause", "rebuild"]
        actions += ["retry"] if follower["quarantined"] else []
        return {
            "name": name,
            "view": follower["view"],
            "kind": entry.kind,
            "state": follower["state"],
            "good": is_well(follower["state"], f"follower {name}", troubled(snapshot)),
            "behind": "-" if lag is None else duration(lag),
            "records": "-" if records is None else f"{records:,}",
            "documents": "-" if documents is None else f"{documents:,}",
            "trouble": follower["trouble"],
            "generations": [
                _generation(shown, known[shown["n"]], milliseconds(entry.keep) / 1000, snapshot.now)
                for shown in follower["generations"]
                if shown["n"] in known
            ],
            "actions": [(verb, ACTIONS[verb]) for verb in [*actions, "verify"]],
        }

    def _render(self, template: str, **values: Any) -> str:
        return self._templates.get_template(template).render(**values)


def _generation(shown: Mapping[str, Any], known: Generation, keep: float, now: float) -> dict[str, Any]:
    number, live = shown["n"], shown["live"]
    was_live = known.promoted_at is not None and not live
    if live:
        readers, promote = "see it", "readers see it already"
    elif known.retired_at is not None:
        left = known.retired_at + keep - now
        readers = f"left it; it is dropped in {duration(left)}" if left > 0 else "left it; it is being dropped"
        promote = f"readers go back to generation {number}, which is at {shown['applied_lsn'] or 'no position yet'}"
    else:
        readers = "do not see it yet"
        promote = f"readers see generation {number}, which is at {shown['applied_lsn'] or 'no position yet'}"
        if known.auto_promote:
            promote += "; it is done by itself once it is built"
    return {
        "number": number,
        "state": shown["state"],
        "position": shown["applied_lsn"] or "-",
        "readers": readers,
        "promote": promote,
        "was_live": was_live,
        "can_promote": not live,
        "ask": f"Then {promote}. Both go on following for as long as `keep` says.",
    }


def _proof(snapshot: Snapshot, follower: str) -> dict[str, Any]:
    fact = snapshot.state.facts.get(f"proof/{follower}")
    if fact is None:
        empty = dict.fromkeys(("when", "position", "documents", "missing", "extra", "different"), "-")
        return {"follower": follower, "result": "never verified", "tone": "neither", **empty}
    said: dict[str, Any] = fact.value
    result = (
        "in sync" if said["in_sync"] else said.get("trouble") or f"not in sync, first wrong: {said.get('stage') or '-'}"
    )
    return {
        "follower": follower,
        "result": result,
        "tone": "good" if said["in_sync"] else "bad",
        "when": f"{duration(max(0.0, snapshot.now - fact.time))} ago",
        "position": said["lsn"] or "-",
        "documents": f"{said.get('follower_documents', 0):,}",
        **{name: f"{said.get(name, 0):,}" for name in ("missing", "extra", "different")},
    }


def _code(text: str) -> Markup:
    """Text in which what stands between backquotes is code."""
    return Markup(_CODE.sub(lambda found: f"<code>{found[1]}</code>", str(escape(text))))  # noqa: S704
