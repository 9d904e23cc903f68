"""The alias that readers of a follower use: which generation it shows them, and the switch to another one."""

from __future__ import annotations

from typing import Any

import orjson

from driftless.errors import SinkMisconfigured
from driftless.sink import SinkContext
from sinks.opensearch.server import OpenSearchServer

_NARROWING = ("filter", "search_routing")
"""What an alias may have that hides documents of its index."""


class ReadersAlias:
    """`alias`: its name. Generation n is the index `<alias>-<n>`, which has the alias `<alias>-<n>-WRITES`, too."""

    def __init__(self, server: OpenSearchServer, alias: str, context: SinkContext) -> None:
        self._server = server
        self._alias = alias
        self._follower = context.follower

    def holders(self) -> dict[str, dict[str, Any]]:
        """The indices behind the alias, each with how it has it. Raises SinkMisconfigured where one is not ours."""
        alias = self._alias
        status, answer = self._server.call("GET", f"/{alias}/_alias", ok={404})
        if status == 404:
            return {}
        found: dict[str, dict[str, Any]] = orjson.loads(answer)
        if alias in found:
            raise SinkMisconfigured(
                f"`{alias}` is an index; readers need it to be an alias",
                hint="Choose another `index` for this follower, or rename that one with _reindex and delete it.",
            )
        for name, index in found.items():
            if f"{name}-WRITES" not in index["aliases"]:
                raise self._not_ours(name)
        return {name: index["aliases"][alias] for name, index in found.items()}

    def generation(self) -> int | None:
        """The generation that readers see, all of it; None where they see none. Raises SinkMisconfigured where they
        see several, or a part of one.
        """
        alias, holders = self._alias, self.holders()
        if len(holders) > 1:
            what = f"Readers of `{alias}` see several generations: {', '.join(holders)}"
            raise SinkMisconfigured(what, hint="Take the alias away from all of these indices but one.")
        if not holders:
            return None
        ((holder, how),) = holders.items()
        for narrowing in _NARROWING:
            if narrowing in how:
                raise SinkMisconfigured(
                    f"Readers of `{alias}` see a part of `{holder}`: somebody gave the alias a {narrowing}",
                    hint=f"Add the alias to `{holder}` once more with POST /_aliases, without the {narrowing}. "
                    "Readers of a part need an alias of their own.",
                )
        number = holder.removeprefix(f"{alias}-")
        if not number.isdecimal():
            raise self._not_ours(holder)
        return int(number)

    def switch(self, generation: int) -> None:
        """One call that changes all aliases or none: killed before or after it, readers see one whole generation.

        It takes the alias from whatever index of ours has it then, so of two processes the later one is right. Whoever
        writes by the readers' name is refused by the server: what readers see comes from the log alone.
        """
        self.holders()
        alias = self._alias
        actions = [
            {"remove": {"index": f"{alias}-*", "alias": alias, "must_exist": False}},
            {"add": {"index": f"{alias}-{generation}", "alias": alias, "is_write_index": False}},
        ]
        status, _ = self._server.call("POST", "/_aliases", {"actions": actions}, ok={404})
        if status == 404:
            raise SinkMisconfigured(
                f"Generation {generation} of `{self._follower}` cannot be promoted: there is none",
                hint="Build it first, with `driftless rebuild`.",
            )
        self.generation()

    def _not_ours(self, index: str) -> SinkMisconfigured:
        return SinkMisconfigured(
            f"The alias `{self._alias}` leads to `{index}`, which is not ours",
            hint="Choose another `index` for this follower, or remove that alias.",
        )
