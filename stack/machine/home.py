"""The folder of everything local, who the servers run as in it, and the locks and checks around it."""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from driftless.errors import StackError

Report = Callable[[str], None]

# A first `up` of every server writes about 0.7 GB: 160 MB of artifacts, 250 MB unpacked, and the servers' first logs.
NEEDED_BYTES = 1 << 30


def stack_home() -> Path:
    """Where all is kept: $DRIFTLESS_HOME, else as root /var/lib/driftless, else the user's own data folder."""
    if chosen := os.environ.get("DRIFTLESS_HOME"):
        return Path(chosen).expanduser().absolute()
    if os.geteuid() == 0:
        return Path("/var/lib/driftless")
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "driftless"


def kept_folders(pipeline: str) -> list[Path]:
    """Where `run` and `verify` keep what is a pipeline's on this machine."""
    return [stack_home() / kind / pipeline for kind in ("rows", "verify")]


@dataclass(frozen=True)
class User:
    """Who a server runs as."""

    name: str
    uid: int
    gid: int


def server_user() -> User | None:
    """`nobody` as root, since PostgreSQL and OpenSearch refuse to run as root; None where no change is needed."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise StackError(
            "running as root, and this machine has no user `nobody` to run the servers as",
            hint="run driftless as a normal user",
        ) from None
    return User(entry.pw_name, entry.pw_uid, entry.pw_gid)


def make_folder(path: Path, *, owner: User | None = None, mode: int = 0o755) -> Path:
    """Make the folder and give it to the owner; one that exists keeps its content.

    Folders above it that are missing are made open to every user, whatever the umask: the servers must get through.
    """
    if not path.parent.exists():
        make_folder(path.parent)
    path.mkdir(exist_ok=True)
    if owner is not None and path.stat().st_uid != owner.uid:
        os.chown(path, owner.uid, owner.gid)
    if stat.S_IMODE(path.stat().st_mode) != mode:
        path.chmod(mode)
    return path


def write_private(path: Path, text: str, *, owner: User | None = None) -> None:
    """Replace the file of text in one step, readable by its owner alone from its first byte."""
    replace_private(path, text.encode(), owner=owner)


def replace_private(path: Path, content: bytes, *, owner: User | None = None) -> None:
    """The same of bytes."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        if owner is not None:
            os.fchown(file.fileno(), owner.uid, owner.gid)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def require_entry(
    path: Path,
    user: User | None,
    *,
    hint: str = "set DRIFTLESS_HOME to a folder outside of it, or open it with chmod o+x",
) -> None:
    """Refuse a folder that the servers' user cannot reach, naming the folder that closes the way."""
    if user is None:
        return
    for folder in reversed([path, *path.parents]):
        if not folder.exists():
            return  # what is below is ours to make
        info = folder.stat()
        if not info.st_mode & (stat.S_IXUSR if info.st_uid == user.uid else stat.S_IXOTH):
            raise StackError(
                f"{folder}: closed to the user `{user.name}`, whom the servers run as because driftless runs as root",
                hint=hint,
            )


def require_space(path: Path, needed: int = NEEDED_BYTES) -> None:
    """Refuse to start what would only fill the disk."""
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise StackError(
            f"{existing}: {free >> 20} MiB free on this disk, and the local stack needs {needed >> 20} MiB",
            hint="free some space, or set DRIFTLESS_HOME to a folder on another disk",
        )


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn the system's refusals while writing into errors that name the folder and the way out."""
    try:
        yield
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StackError(
                f"{path}: the disk is full", hint="free some space, or set DRIFTLESS_HOME to a folder on another disk"
            ) from exc
        if exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise StackError(
                f"{exc.filename or path}: cannot be written: {exc.strerror}",
                hint="set DRIFTLESS_HOME to a folder that you can write",
            ) from exc
        raise


@contextmanager
def file_lock(path: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the file's lock; the system drops it when the process ends, however it ends. `waiting` is told of a wait."""
    make_folder(path.parent)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
