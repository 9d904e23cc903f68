"""OpenSearch, one node."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from driftless.errors import StackError
from stack.machine import unpack
from stack.machine.home import Report
from stack.machine.java import more_options
from stack.machine.ports import LOOPBACK
from stack.servers.server import JavaServer, http_answers

HEAP = "-Xms1g -Xmx1g"


class OpenSearch(JavaServer):
    """A store. 3.8 where Java is 21 or newer, else 2.19; an acknowledged write survives a kill.

    OPENSEARCH_JAVA_HOME, the server's own variable, gives it another Java than the rest of the stack has.
    """

    name = "opensearch"
    port_names = ("opensearch", "opensearch-transport")
    java_variable = "OPENSEARCH_JAVA_HOME"

    def confs(self) -> list[str]:
        return unpack.opensearch_confs(self.java.version)

    def check(self, written_by: str | None) -> None:
        if written_by is not None and _numbers(written_by) > _numbers(self.version()):
            raise StackError(
                f"opensearch: this stack's data were written by OpenSearch {written_by}; "
                f"with Java {self.java.version} the older {self.version()} would start, which cannot read them",
                hint="set OPENSEARCH_JAVA_HOME to a JDK 21 or newer, or use a stack of another name",
            )

    def url(self) -> str:
        return f"http://{self.site.address('opensearch')}"

    def settings(self) -> dict[str, object]:
        return {
            "cluster.name": f"driftless-{self.site.stack}",
            "node.name": "local",
            "network.host": LOOPBACK,
            "http.port": self.site.ports["opensearch"],
            "transport.port": self.site.ports["opensearch-transport"],
            "discovery.type": "single-node",
            "path.data": self.site.make("data", "opensearch"),
            "path.logs": self.site.make("logs", "opensearch"),
            "cluster.routing.allocation.disk.threshold_enabled": "false",
            "action.auto_create_index": "false",
        }

    def prepare(self, report: Report) -> None:
        tree = unpack.opensearch_tree(self.java.version, report)
        folder = self.site.make("conf", "opensearch")
        lines = "".join(f'{key}: "{value}"\n' for key, value in self.settings().items())
        self.write(folder, "opensearch.yml", lines)
        self.write(folder, "jvm.options", self._jvm_options(tree))
        self.write(folder, "log4j2.properties", (tree / "config" / "log4j2.properties").read_text(encoding="utf-8"))

    def command(self) -> Sequence[str | Path]:
        return [unpack.opensearch_tree(self.java.version, lambda _: None) / "bin" / "opensearch"]

    def environment(self) -> dict[str, str]:
        return super().environment() | {
            "OPENSEARCH_JAVA_HOME": str(self.java.home),
            "OPENSEARCH_PATH_CONF": str(self.site.folder / "conf" / "opensearch"),
            "OPENSEARCH_TMPDIR": str(self.temporary()),
            "OPENSEARCH_JAVA_OPTS": " ".join([HEAP, *more_options()]),
        }

    def ready(self) -> bool:
        return http_answers(f"{self.url()}/_cluster/health?wait_for_status=yellow&timeout=2s")

    def _jvm_options(self, tree: Path) -> str:
        """The shipped options, which write beside the server, made to write into the stack's folder."""
        logs = self.site.folder / "logs" / "opensearch"
        lines = (tree / "config" / "jvm.options").read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if "gc.log" not in line and "HeapDump" not in line]
        return "\n".join(kept).replace("=logs/", f"={logs}/") + "\n"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
