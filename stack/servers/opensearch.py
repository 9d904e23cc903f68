"""OpenSearch, one node."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from driftless.errors import StackError
from stack.machine import unpack
from stack.machine.home import Report
from stack.machine.java import more_options
from stack.machine.keys import ADMIN, SERVER, USER, Keys
from stack.machine.ports import LOOPBACK
from stack.servers import http
from stack.servers.server import JavaServer

HEAP = "-Xms1g -Xmx1g"
OF_CLUSTER = (
    "cluster:monitor/main",
    "indices:admin/index_template/get",
    "indices:data/read/mget",
    "indices:data/write/bulk",
)
OF_INDICES = (
    "indices:admin/aliases",
    "indices:admin/aliases/get",
    "indices:admin/create",
    "indices:admin/delete",
    "indices:admin/get",
    "indices:admin/mapping/put",
    "indices:admin/mappings/get",
    "indices:admin/refresh*",
    "indices:data/read/get",
    "indices:data/read/mget*",
    "indices:data/read/point_in_time/create",
    "indices:data/read/search*",
    "indices:data/write/bulk*",
    "indices:data/write/delete",
    "indices:data/write/index",
    "indices:monitor/settings/get",
    "indices:monitor/stats",
)
"""What driftless does with a cluster, and with its indices; docs/security.md says the same."""
_NEWEST_JAVA = 23
"""The newest that OpenSearch 2 starts with: later ones know no security manager."""
_EMPTY = {
    "internal_users": "internalusers",
    "roles": "roles",
    "roles_mapping": "rolesmapping",
    "action_groups": "actiongroups",
    "tenants": "tenants",
    "nodes_dn": "nodesdn",
}
"""Files of the plugin -> what they are of. Users and roles are made by its interface."""
_LOGIN = """\
config:
  dynamic:
    authc:
      password:
        http_enabled: true
        transport_enabled: true
        order: 0
        http_authenticator: {type: basic, challenge: false}
        authentication_backend: {type: internal}
"""


class OpenSearch(JavaServer):
    """A store. 3.8 where Java is 21 or newer, else 2.19; an acknowledged write survives a kill.

    OPENSEARCH_JAVA_HOME, the server's own variable, gives it another Java than the rest of the stack has.
    """

    name = "opensearch"
    port_names = ("opensearch", "opensearch-transport")
    java_variable = "OPENSEARCH_JAVA_HOME"

    def confs(self) -> list[str]:
        if self.site.keys is not None:
            return unpack.secured_opensearch_confs()
        return unpack.opensearch_confs(self.java.version)

    def check(self, written_by: str | None) -> None:
        if self.site.keys is not None and self.java.version > _NEWEST_JAVA:
            raise StackError(
                f"opensearch: with TLS and users it needs Java 17 to {_NEWEST_JAVA}, and this is {self.java.version}",
                hint="set OPENSEARCH_JAVA_HOME to such a JDK",
            )
        if written_by is not None and _numbers(written_by) > _numbers(self.version()):
            raise StackError(
                f"opensearch: this stack's data were written by OpenSearch {written_by}; "
                f"with Java {self.java.version} the older {self.version()} would start, which cannot read them",
                hint="set OPENSEARCH_JAVA_HOME to a JDK 21 or newer, or use a stack of another name",
            )

    def url(self, password: str = "") -> str:
        """Secured, with its one user. `password`: what stands in place of the password itself."""
        keys, address = self.site.keys, self.site.address("opensearch")
        if keys is None:
            return f"http://{address}"
        return f"https://{USER}:{password or keys.password(self.name)}@{address}"

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
            **({} if self.site.keys is None else self._secured()),
        }

    def _secured(self) -> dict[str, object]:
        """The plugin reads no file outside the server's own folder of settings."""
        files = {"pemcert": f"{SERVER}.pem", "pemkey": f"{SERVER}.key", "pemtrustedcas": "ca.pem"}
        return {
            **{
                f"plugins.security.ssl.{layer}.{what}_filepath": f"keys/{file}"
                for layer in ("transport", "http")
                for what, file in files.items()
            },
            "plugins.security.ssl.transport.enforce_hostname_verification": "false",
            "plugins.security.ssl.http.enabled": "true",
            "plugins.security.ssl.http.clientauth_mode": "OPTIONAL",
            "plugins.security.authcz.admin_dn": f"CN={ADMIN}",
            "plugins.security.nodes_dn": f"CN={SERVER}",
            "plugins.security.allow_default_init_securityindex": "true",
        }

    def prepare(self, report: Report) -> None:
        tree = self._tree(report)
        folder = self.site.make("conf", "opensearch")
        lines = "".join(f'{key}: "{value}"\n' for key, value in self.settings().items())
        self.write(folder, "opensearch.yml", lines)
        self.write(folder, "jvm.options", self._jvm_options(tree))
        self.write(folder, "log4j2.properties", (tree / "config" / "log4j2.properties").read_text(encoding="utf-8"))
        if self.site.keys is not None:
            self._write_security(self.site.keys)

    def _tree(self, report: Report) -> Path:
        if self.site.keys is not None:
            return unpack.secured_opensearch_tree(report)
        return unpack.opensearch_tree(self.java.version, report)

    def _write_security(self, keys: Keys) -> None:
        """What the plugin starts with: certificates, a login by password, and nobody who could log in yet."""
        folder = self.site.make("conf", "opensearch", "keys")
        for path in (keys.ca, keys.certificate(SERVER), keys.key(SERVER)):
            self.write(folder, path.name, path.read_text(encoding="utf-8"))
        folder = self.site.make("conf", "opensearch", "opensearch-security")
        contents = dict.fromkeys(_EMPTY, "")
        contents |= {"config": _LOGIN, "allowlist": "config: {enabled: false, requests: {}}\n"}
        contents |= {"audit": "config: {enabled: false}\n"}
        for name, text in contents.items():
            head = f"_meta: {{type: {_EMPTY.get(name, name)}, config_version: 2}}\n"
            self.write(folder, f"{name}.yml", head + text)

    def open(self) -> None:
        """Make the user, and the role that it has. The certificate of ADMIN may do that, and nobody else."""
        keys = self.site.keys
        if keys is None:
            return
        indices = {"index_patterns": ["*"], "allowed_actions": list(OF_INDICES)}
        for path, body in (
            (f"roles/{USER}", {"cluster_permissions": list(OF_CLUSTER), "index_permissions": [indices]}),
            (f"internalusers/{USER}", {"password": keys.password(self.name)}),
            (f"rolesmapping/{USER}", {"users": [USER]}),
        ):
            url = f"https://{self.site.address('opensearch')}/_plugins/_security/api/{path}"
            try:
                said: int | str = http.call("PUT", url, body, keys=keys, certificate=ADMIN, seconds=30)
            except OSError as exc:
                said = type(exc).__name__
            if said not in (200, 201):
                what = f"opensearch: {path.replace('/', ' ')} could not be made: {said}"
                raise StackError(what, hint="the log tells more: try again", unreachable=True)
        url, login = f"https://{self.site.address('opensearch')}/", f"{USER}:{keys.password(self.name)}"
        self.require(f"the login of {USER}", lambda: http.answers(url, keys=keys, login=login))

    def command(self) -> Sequence[str | Path]:
        return [self._tree(lambda _: None) / "bin" / "opensearch"]

    def environment(self) -> dict[str, str]:
        return super().environment() | {
            "OPENSEARCH_JAVA_HOME": str(self.java.home),
            "OPENSEARCH_PATH_CONF": str(self.site.folder / "conf" / "opensearch"),
            "OPENSEARCH_TMPDIR": str(self.temporary()),
            "OPENSEARCH_JAVA_OPTS": " ".join([HEAP, *more_options()]),
        }

    def ready(self) -> bool:
        """Secured, also its users can be asked for: it keeps them in an index of its own."""
        keys, server = self.site.keys, self.site.address("opensearch")
        asked = ["/_cluster/health?wait_for_status=yellow&timeout=2s"]
        if keys is None:
            return all(http.answers(f"http://{server}{path}") for path in asked)
        asked.append("/_plugins/_security/api/internalusers")
        return all(http.answers(f"https://{server}{path}", keys=keys, certificate=ADMIN) for path in asked)

    def _jvm_options(self, tree: Path) -> str:
        """The shipped options, which write beside the server, made to write into the stack's folder."""
        logs = self.site.folder / "logs" / "opensearch"
        lines = (tree / "config" / "jvm.options").read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if "gc.log" not in line and "HeapDump" not in line]
        return "\n".join(kept).replace("=logs/", f"={logs}/") + "\n"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
