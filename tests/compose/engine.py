"""A Docker engine on a machine that has none: unpacked from Debian packages into one folder, and undone at the end."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

SUITE = "trixie"
"""The distribution of the base image, and of Compose and buildx, which are newer than Debian 12's and run there."""
ENGINE = ("docker.io", "containerd", "runc", "tini", "iptables", "debootstrap")
LIBRARIES = ("libxtables12", "libnftnl11", "libip4tc2", "libip6tc2", "libnetfilter-conntrack3", "libnfnetlink0")
PLUGINS = ("docker-compose", "docker-buildx")
FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
MIRROR = "http://deb.debian.org/debian"


class Tools:
    """Programs unpacked into a folder; nothing is installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "tools"
        self.config = folder / "docker-config"

    def fetch(self) -> None:
        """Get and unpack what is missing."""
        if (self.config / "cli-plugins" / "docker-compose").exists():
            return
        print("fetching the engine, Compose and buildx", flush=True)
        self._packages((*ENGINE, *LIBRARIES))
        self._packages(PLUGINS, self._other_distribution())
        plugins = self.config / "cli-plugins"
        plugins.mkdir(parents=True, exist_ok=True)
        for name in ("docker-buildx", "docker-compose"):
            found = next(p for p in self.root.rglob(name) if p.is_file() and os.access(p, os.X_OK))
            shutil.copy(found, plugins / name)
        # What the package's installation would have linked.
        for name in ("iptables", "iptables-save", "iptables-restore", "ip6tables"):
            link = self.root / "usr" / "bin" / name
            link.unlink(missing_ok=True)
            link.symlink_to("../sbin/xtables-nft-multi")

    def _packages(self, names: Sequence[str], options: Sequence[str] = ()) -> None:
        target = self.folder / "packages"
        target.mkdir(parents=True, exist_ok=True)
        wanted = [f"{name}/{SUITE}" if options else name for name in names]
        run("apt-get", *options, "--quiet=2", "update")
        run("apt-get", *options, "--quiet=2", "download", *wanted, folder=target)
        for package in target.glob("*.deb"):
            run("dpkg", "-x", package, self.root)
            package.unlink()

    def _other_distribution(self) -> list[str]:
        """An apt of its own: its lists and its cache, and none of this machine's sources."""
        apt = self.folder / "apt"
        for part in ("lists/partial", "cache/archives/partial"):
            (apt / part).mkdir(parents=True, exist_ok=True)
        keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
        (apt / "sources.list").write_text(f"deb [signed-by={keys}] {MIRROR} {SUITE} main\n", encoding="utf-8")
        places = {"Dir::State::lists": apt / "lists", "Dir::Cache": apt / "cache", "Dir::Etc::sourceparts": "-"}
        places["Dir::Etc::sourcelist"] = apt / "sources.list"
        return [f"-o{key}={value}" for key, value in places.items()]

    def environment(self) -> dict[str, str]:
        """Where the programs and their libraries are."""
        usr = self.root / "usr"
        return {
            **os.environ,
            "PATH": f"{usr / 'bin'}:{usr / 'sbin'}:{self.root / 'sbin'}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": str(usr / "lib" / "x86_64-linux-gnu"),
            "XTABLES_LIBDIR": str(usr / "lib" / "x86_64-linux-gnu" / "xtables"),
            "DEBOOTSTRAP_DIR": str(usr / "share" / "debootstrap"),
            "DOCKER_CONFIG": str(self.config),
            "DOCKER_HOST": f"unix://{self.folder}/docker.sock",
        }


@contextmanager
def engine(tools: Tools) -> Iterator[dict[str, str]]:
    """Run dockerd; gives the environment for its client. At the end the machine's network is as it was."""
    environment, folder = tools.environment(), tools.folder
    forward = FORWARD.read_text()
    links = _links()
    rules = run("iptables-save", environment=environment)
    log = (folder / "dockerd.log").open("wb")
    command = ["dockerd", "--data-root", folder / "data", "--exec-root", folder / "exec", "-p", folder / "dockerd.pid"]
    command += ["-H", environment["DOCKER_HOST"], "--init-path", tools.root / "usr" / "bin" / "docker-init"]
    daemon = subprocess.Popen([str(part) for part in command], env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while subprocess.run(["docker", "version"], env=environment, capture_output=True, check=False).returncode:
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"dockerd did not start:\n{(folder / 'dockerd.log').read_text()[-3000:]}")
            time.sleep(0.2)
        yield environment
    finally:
        daemon.terminate()
        daemon.wait(60)
        log.close()
        _restore(rules, forward, links, environment)


def _links() -> set[str]:
    return {path.name for path in Path("/sys/class/net").iterdir()}


def _restore(rules: str, forward: str, links: set[str], environment: Mapping[str, str]) -> None:
    """Take back what dockerd leaves behind: forwarding, its chains and policies, its bridges."""
    for table in ("filter", "nat"):
        run("iptables", "-t", table, "--flush", environment=environment)
        run("iptables", "-t", table, "--delete-chain", environment=environment)
    run("iptables", "--policy", "FORWARD", "ACCEPT", environment=environment)
    run("iptables-restore", environment=environment, given=rules)
    FORWARD.write_text(forward)
    for link in _links() - links:
        run("ip", "link", "delete", link)


def run(
    *command: str | Path,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    given: str | None = None,
    seconds: float = 1200,
) -> str:
    """Run a command to its end, which must be a good one; what it printed."""
    words = [str(part) for part in command]
    done = subprocess.run(
        words, cwd=folder, env=environment, input=given, capture_output=True, text=True, timeout=seconds, check=False
    )
    if done.returncode:
        raise SystemExit(
            f"`{' '.join(words)}` ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
    return done.stdout
