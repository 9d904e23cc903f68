"""Settings of an index under which the server stores, or shows, something else than it is given.

The operator cannot ask for one (sync.yaml refuses it), but a template of the cluster can bring it, and whoever may
change an index can set it later. What can be overridden is, when an index is made; everything is looked at then, before
at `check`, and while a follower runs.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from driftless.errors import SinkMisconfigured
from driftless.sink import SinkContext
from sinks.opensearch.server import OpenSearchServer

OVERRIDES: dict[str, Any] = {"default_pipeline": "_none", "final_pipeline": "_none", "translog.durability": "REQUEST"}
"""Settings that an index of ours is made with, whatever templates say."""
TEMPLATE_SECONDS = 60.0
ROUTING = {"required": False}
"""Likewise, of its mapping."""
_CHANGES = "changes documents before they are stored"
_SETTINGS = {
    "default_pipeline": ("", "_none", _CHANGES),
    "final_pipeline": ("", "_none", _CHANGES),
    "search.default_pipeline": ("", "_none", "changes what readers find"),
    "translog.durability": ("", "request", "loses acknowledged writes in a crash"),
    "routing_partition_size": ("", "1", "refuses documents without a routing"),
    "append_only.enabled": ("", "false", "refuses every change of a document"),
    "derived_source.enabled": ("", "false", "does not keep documents as they are given"),
}
"""Setting -> the values that do no harm, and what every other one does."""
_FILTER = ",".join(
    [
        *(f"*.settings.index.{name}" for name in _SETTINGS),
        *(f"*.mappings.{name}" for name in ("_meta", "_source", "_routing", "dynamic")),
    ]
)


def troubles(settings: Mapping[str, Any], mappings: Mapping[str, Any], *, strict: bool) -> Iterator[str]:
    """What of an index's settings (`index.` left out, flat) and mapping does harm, in words.

    `strict`: the operator asked for `dynamic: strict`.
    """
    for name, (*harmless, what) in _SETTINGS.items():
        if str(settings.get(name) or "").lower() not in harmless:
            yield f"`index.{name}: {settings[name]}` {what}"
    source, routing = mappings.get("_source") or {}, mappings.get("_routing") or {}
    if not _is_true(source.get("enabled", True)):
        yield "`_source.enabled: false` keeps no documents"
    for name in ("includes", "excludes"):
        if source.get(name):
            yield f"`_source.{name}` leaves fields out of documents"
    if _is_true(routing.get("required", False)):
        yield "`_routing.required` refuses documents without a routing"
    if mappings.get("dynamic") == "strict" and not strict:
        yield "`dynamic: strict` refuses documents with a field that it does not name"


def _is_true(value: object) -> bool:
    return str(value).lower() == "true"


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"index": {"refresh_interval": "5s"}}` and `{"index.refresh_interval": "5s"}` as `{"refresh_interval": "5s"}`.

    `analysis` stays as it is given: its own keys are names that may have dots.
    """
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        full = f"{prefix}{name}".removeprefix("index.")
        if isinstance(value, Mapping) and full.partition(".")[0] != "analysis":
            flat |= flatten(value, "" if full == "index" else f"{full}.")
        else:
            flat[full] = value
    return flat


class Faithful:
    """Looks at the indices of one follower, and at what a new one would be like."""

    def __init__(self, server: OpenSearchServer, index: str, context: SinkContext, *, strict: bool) -> None:
        """`strict`: the operator asked for `dynamic: strict`."""
        self._server = server
        self._index = index
        self._mark = {"pipeline": context.pipeline, "follower": context.follower}
        self._strict = strict
        self._templates_at = -math.inf

    def check(self) -> None:
        """Raise SinkMisconfigured where one of our indices, or the next one, does not keep what it is given.

        Templates matter for the next index alone, so they are looked at now and then.
        """
        if time.monotonic() > self._templates_at + TEMPLATE_SECONDS:
            self._check_templates(f"{self._index}-1")
            self._templates_at = time.monotonic()
        self._check_indices()

    def check_new(self, name: str, *, made: bool) -> None:
        """The same of an index that is there now; where it was made by this call and is wrong, it is taken away."""
        try:
            self._check_indices()
        except SinkMisconfigured:
            if made:
                self._server.call("DELETE", f"/{name}", ok={404})
            raise

    def _check_indices(self) -> None:
        path = f"/{self._index}-*?filter_path={_FILTER}&allow_no_indices=true&ignore_unavailable=true"
        # A user that may not ask is no reason to stop: what was made is looked at with the rights to make it.
        status, answer = self._server.call("GET", path, ok={403, 404})
        found: dict[str, Any] = orjson.loads(answer) if status == 200 else {}
        for name, index in found.items():
            mappings = index.get("mappings", {})
            meta = mappings.get("_meta")
            ours = meta.get("driftless") if isinstance(meta, dict) else None
            if not isinstance(ours, dict):
                continue
            if {key: ours.get(key) for key in self._mark} != self._mark:
                if re.fullmatch(rf"{re.escape(self._index)}-\d+", name):
                    raise SinkMisconfigured(
                        f"The index `{name}` belongs to the follower `{ours.get('follower')}` of the pipeline "
                        f"`{ours.get('pipeline')}`",
                        hint="Choose another `index` for this follower.",
                    )
                continue
            settings = flatten(index.get("settings") or {})
            if wrong := list(troubles(settings, mappings, strict=self._strict)):
                raise SinkMisconfigured(
                    f"The index `{name}` does not keep documents as they are given: {'; '.join(wrong)}",
                    hint="A template of the cluster made it so, or somebody set it since. Take that back; where "
                    "documents were written meanwhile, build them again with `driftless rebuild`.",
                )

    def _check_templates(self, name: str) -> None:
        path = f"/_index_template/_simulate_index/{name}"
        status, answer = self._server.call("POST", path, ok={400, 403, 404, 405})
        template = (orjson.loads(answer).get("template") if status == 200 else None) or {}
        settings = flatten(template.get("settings") or {})
        # What is overridden when the index is made does no harm.
        settings = {key: value for key, value in settings.items() if key not in OVERRIDES}
        mappings = {key: value for key, value in (template.get("mappings") or {}).items() if key != "_routing"}
        if wrong := list(troubles(settings, mappings, strict=self._strict)):
            raise SinkMisconfigured(
                f"The index template {_matching(self._server, name)} would not let `{name}` keep documents as they are "
                f"given: {'; '.join(wrong)}",
                hint="Exempt the index from that template, with narrower `index_patterns`, or give the follower "
                "another `index`.",
            )


def _matching(server: OpenSearchServer, name: str) -> str:
    """The template that is applied to an index of this name: of those that match, the one with the highest priority."""
    status, answer = server.call("GET", "/_index_template", ok={403, 404})
    listed = orjson.loads(answer).get("index_templates", []) if status == 200 else []
    matching = [
        (entry["index_template"].get("priority") or 0, str(entry["name"]))
        for entry in listed
        if any(_matches(pattern, name) for pattern in entry["index_template"].get("index_patterns", []))
    ]
    return f"`{max(matching)[1]}`" if matching else "of the cluster"


def _matches(pattern: str, name: str) -> bool:
    """`*` alone has a meaning in these patterns."""
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == name
    if not name.startswith(first):
        return False
    left = name[len(first) :]
    for part in rest[:-1]:
        at = left.find(part)
        if at < 0:
            return False
        left = left[at + len(part) :]
    return left.endswith(rest[-1])
