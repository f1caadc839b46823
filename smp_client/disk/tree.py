"""The one way to touch a file under the root.

Names are relative to the root, with `/`. No component may be a link, and the last one must be a plain file with one name, so
that nothing outside the root is ever read or written. A write is acknowledged only after fsync; after a failed fsync the
descriptor is closed and never trusted again.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from ..model.deadline import step
from ..model.errors import UnsafePath
from ..model.layout import TEMPORARY
from .temporaries import temporary_name

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
GRACE_S = 2.0  # how long a file must have been quiet where the kernel cannot tell whether somebody has it open
READ_CAP_BYTES = 256 * 1024 * 1024
DEEPEST = 32  # directories inside each other, below one that is walked through
_PARTS_CAP = 2 * DEEPEST  # of a name
_PIECE_BYTES = 64 * 1024
_LEASED_S = 10.0  # how long another process may keep us from opening a file

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without O_NONBLOCK, opening a FIFO waits for its other end for ever.
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Walked(NamedTuple):
    """Something below a directory, by its path from the root."""

    path: str
    is_directory: bool
    is_deep: bool = False  # a directory that was not looked into


class Tree:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._directories = Directories(root)

    def create_root(self, directories: tuple[str, ...]) -> None:
        if not self.root.is_dir():
            self.root.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
            _widen(self.root.stat(), DIRECTORY_MODE, str(self.root))
        for name in directories:
            self.make_directory(name)

    @contextmanager
    def directory(self, name: str) -> Iterator[int]:
        """A descriptor of the directory, reached without following a link below the root."""
        with self._directories as held:
            yield held.reach(name)

    def holding(self) -> Directories:
        """Keeps the directories that this thread opens inside the block open to its end, so that one operation walks once."""
        return self._directories

    @contextmanager
    def parent(self, name: str) -> Iterator[tuple[int, str]]:
        with self._directories as held:
            yield held.reach_parent(name)

    def open(self, name: str, flags: int) -> int:
        """A descriptor of a plain file; the caller closes it. O_CREAT only makes new files."""
        with self._directories as held:
            parent, last = held.reach_parent(name)
            if flags & os.O_CREAT:
                descriptor = os.open(last, flags | os.O_EXCL | _FILE, FILE_MODE, dir_fd=parent)
                _widen(os.fstat(descriptor), FILE_MODE, descriptor)
                return descriptor
            _check_plain(os.stat(last, dir_fd=parent, follow_symlinks=False), name)
            descriptor = _open_when_free(last, flags | _FILE, parent)
        try:
            _check_plain(os.fstat(descriptor), name)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    @contextmanager
    def opened(self, name: str, flags: int = os.O_RDONLY) -> Iterator[int]:
        descriptor = self.open(name, flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def read(self, name: str) -> bytes:
        with self.opened(name) as descriptor:
            return read_from(descriptor, 0)

    def stat(self, name: str) -> os.stat_result:
        with self._directories as held:
            parent, last = held.reach_parent(name)
            return os.stat(last, dir_fd=parent, follow_symlinks=False)

    def exists(self, name: str) -> bool:
        try:
            self.stat(name)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_directory(self, name: str) -> bool:
        return stat.S_ISDIR(self.stat(name).st_mode)

    def directories(self, name: str) -> list[str]:
        """Return the names of the directories in a directory; none where it does not exist."""
        try:
            with self.directory(name) as descriptor, os.scandir(descriptor) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []

    def list(self, name: str) -> list[str]:
        """The names in a directory; none where it does not exist."""
        try:
            with self._directories as held:
                return sorted(os.listdir(held.reach(name)))
        except FileNotFoundError:
            return []

    def walk(self, name: str, failed: Callable[[str, Exception], None] | None = None) -> Iterator[Walked]:
        """Yield all that is below a directory, in the order of the names, a directory before what is in it.

        A directory that is deeper than DEEPEST is not looked into. `failed` is told of what cannot be
        looked at; without it that raises.
        """
        waiting = [iter([name])]  # the paths that are left, on each level; the first is entered and not yielded
        while waiting:
            path = next(waiting[-1], None)
            if path is None:
                waiting.pop()
                continue
            try:
                is_directory = not path or self.is_directory(path)
                is_deep = is_directory and len(waiting) > DEEPEST + 1
                names = self.list(path) if is_directory and not is_deep else []
            except FileNotFoundError:
                continue
            except (OSError, UnsafePath) as error:
                if failed is None:
                    raise
                failed(path, error)
                continue
            if len(waiting) > 1:
                yield Walked(path, is_directory, is_deep)
            waiting.append(iter([f"{path}/{inner}" if path else inner for inner in names]))

    def files_below(self, name: str) -> Iterator[str]:
        """Yield every file below a directory, by its path from the root. Follows no link; there may be none of it."""
        return (one.path for one in self.walk(name) if not one.is_directory)

    def sizes(self, name: str) -> dict[str, int]:
        """The plain files of a directory with their sizes."""
        found: dict[str, int] = {}
        try:
            with self.directory(name) as descriptor, os.scandir(descriptor) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False):
                        found[entry.name] = entry.stat(follow_symlinks=False).st_size
        except FileNotFoundError:
            return {}
        return found

    def make_directory(self, name: str) -> None:
        """Makes the directory, its parents too, and each durable in its own parent."""
        parts = _parts(name)
        for depth in range(1, len(parts) + 1):
            with self.parent("/".join(parts[:depth])) as (parent, last):
                try:
                    os.mkdir(last, DIRECTORY_MODE, dir_fd=parent)
                except FileExistsError:
                    continue
                _widen(os.stat(last, dir_fd=parent, follow_symlinks=False), DIRECTORY_MODE, last, parent)
                os.fsync(parent)

    def create(self, name: str, content: bytes) -> None:
        """A new file, whole or not at all; FileExistsError where the name is taken."""
        temporary = self.create_temporary(content)
        try:
            self.rename_new(temporary, name)
        except BaseException:
            self.unlink(temporary)
            raise
        self.sync_parent(name)

    def create_temporary(self, content: bytes) -> str:
        self.make_directory(TEMPORARY)
        name = temporary_name()
        self.write_new(name, content)
        return name

    def write_new(self, name: str, content: bytes) -> None:
        """A new file under a name that nobody else knows yet; the caller makes the name itself durable."""
        with self.opened(name, os.O_WRONLY | os.O_CREAT) as descriptor:
            try:
                write_all(descriptor, content)
                sync(descriptor)
            except BaseException:
                self.unlink(name)
                raise

    def replace(self, name: str, content: bytes) -> None:
        """Puts a durable file in the place of one that only SMP writes; see rewrite.py for those that others may edit."""
        temporary = self.create_temporary(content)
        try:
            self.rename(temporary, name)
        except BaseException:
            self.unlink(temporary)
            raise
        self.sync_parent(name)

    def replace_derived(self, name: str, content: bytes) -> None:
        """Replaces a file that can be made again at any time: whole or not at all, but not worth waiting for the disk."""
        temporary = temporary_name()
        self.make_directory(TEMPORARY)
        try:
            with self.opened(temporary, os.O_WRONLY | os.O_CREAT) as descriptor:
                write_all(descriptor, content)
            self.rename(temporary, name)
        except BaseException:
            self.unlink(temporary)
            raise

    def create_cookie(self, name: str) -> None:
        """An empty file whose only purpose is to be noticed."""
        os.close(self.open(name, os.O_WRONLY | os.O_CREAT))

    def rename(self, source: str, target: str) -> None:
        with self.parent(source) as (from_fd, from_name), self.parent(target) as (to_fd, to_name):
            os.rename(from_name, to_name, src_dir_fd=from_fd, dst_dir_fd=to_fd)

    def rename_new(self, source: str, target: str) -> None:
        """Like rename, but raises FileExistsError instead of replacing what somebody else made meanwhile."""
        with self.parent(source) as (from_fd, from_name), self.parent(target) as (to_fd, to_name):
            if not _rename_with(_NO_REPLACE, from_fd, from_name, to_fd, to_name):
                if self.exists(target):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
                os.rename(from_name, to_name, src_dir_fd=from_fd, dst_dir_fd=to_fd)

    def rename_beside(self, source: str, target: str) -> str:
        """Under the name, or, where that is taken, under one like it; gives back which."""
        stem, dot, ending = target.rpartition(".")
        names = [target, *(f"{stem}-{number}{dot}{ending}" for number in range(2, 1000))]
        for name in names:
            try:
                self.rename_new(source, name)
            except FileExistsError:
                continue
            return name
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)

    def exchange(self, one: str, other: str) -> None:
        """Swaps two names in one step, so that no moment is without either file."""
        with self.parent(one) as (one_fd, one_name), self.parent(other) as (other_fd, other_name):
            if not _rename_with(_EXCHANGE, one_fd, one_name, other_fd, other_name):
                _exchange_by_link(one_fd, one_name, other_fd, other_name)

    def unlink(self, name: str) -> None:
        try:
            with self.parent(name) as (parent, last):
                os.unlink(last, dir_fd=parent)
        except FileNotFoundError:
            return

    def remove_empty(self, name: str) -> None:
        """A directory that nothing is in; any other stays."""
        with suppress(FileNotFoundError):
            try:
                with self.parent(name) as (parent, last):
                    os.rmdir(last, dir_fd=parent)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise

    def remove_directory(self, name: str) -> OSError | None:
        """Remove a directory with all that is in it, however deep. Return the first error, after which something is left.

        Only for directories that nobody else uses.
        """
        failed: OSError | None = None
        try:
            with self.directory(name) as top, self.parent(name) as (parent, last):
                failed = _empty(top)
                os.rmdir(last, dir_fd=parent)
        except FileNotFoundError:
            return None
        except (OSError, UnsafePath) as error:
            return failed or (error if isinstance(error, OSError) else OSError(errno.ENOTDIR, str(error)))
        return failed

    def sync_parent(self, name: str) -> None:
        with self.parent(name) as (parent, _):
            os.fsync(parent)


class Directories(threading.local):
    """The directories of a tree that a thread has open. They are closed when the outermost of its `with` blocks ends."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._open: dict[str, int] = {}
        self._depth = 0

    def __enter__(self) -> Directories:
        step()
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            opened, self._open = self._open, {}
            for descriptor in opened.values():
                os.close(descriptor)

    def reach(self, name: str) -> int:
        """A descriptor of the directory, each part of its name opened without following a link."""
        if name in self._open:
            return self._open[name]
        if not name:
            self._open[""] = os.open(self._root, _DIRECTORY)
            return self._open[""]
        parent, part = self.reach_parent(name)
        try:
            self._open[name] = os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise UnsafePath(f"{part!r} in {name!r} is a link or not a directory.") from error
            raise
        return self._open[name]

    def reach_parent(self, name: str) -> tuple[int, str]:
        """A descriptor of the directory that the name is in, and its last part."""
        above, _, last = name.rpartition("/")
        if name.count("/") >= _PARTS_CAP:
            raise UnsafePath(f"{name[:100]!r}… is deeper than anything that SMP looks at.")
        if last in ("", ".", "..") or "\0" in last or name.startswith("/"):
            raise UnsafePath(f"{name!r} is not a name inside the tree.")
        return self.reach(above), last


def _empty(top: int) -> OSError | None:
    """Remove all that is in a directory. One inside another moves up before it is emptied, so none is ever deep."""
    failures: list[OSError] = []
    waiting = ["."]
    while waiting:
        name = waiting.pop()
        with _noted(failures):
            directory = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
            try:
                with os.scandir(directory) as entries:
                    inside = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
                for inner, is_directory in inside:
                    with _noted(failures):
                        if not is_directory:
                            os.unlink(inner, dir_fd=directory)
                            continue
                        above = inner if name == "." else os.urandom(16).hex()
                        if above != inner:
                            os.rename(inner, above, src_dir_fd=directory, dst_dir_fd=top)
                        waiting.append(above)
            finally:
                os.close(directory)
            if name != ".":
                os.rmdir(name, dir_fd=top)
    return failures[0] if failures else None


@contextmanager
def _noted(failures: list[OSError]) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        return
    except OSError as error:
        failures.append(error)


def read_from(descriptor: int, offset: int) -> bytes:
    """All bytes from the offset on, as they are when reached."""
    size = os.fstat(descriptor).st_size
    if size - offset > READ_CAP_BYTES:
        raise UnsafePath(f"A file of {size:,} bytes is larger than anything SMP writes.")
    pieces = []
    # In large pieces also behind its end: one who appends faster than we read must not keep us here.
    while piece := os.pread(descriptor, max(size - offset + 1, _PIECE_BYTES), offset):
        pieces.append(piece)
        offset += len(piece)
    return b"".join(pieces)


def write_all(descriptor: int, content: bytes) -> None:
    written = 0
    while written < len(content):
        written += os.write(descriptor, content[written:] if written else content)


def sync(descriptor: int) -> None:
    # macOS answers fsync before the drive has written; F_FULLFSYNC waits for it.
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def identity(status: os.stat_result) -> list[int]:
    """Return what changes whenever somebody writes the file."""
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def nobody_writes(descriptor: int) -> bool | None:
    """Whether no process has the file of this read-only descriptor open for writing; None where the kernel cannot tell."""
    if sys.platform != "linux":
        return None
    # Whoever opens the file while we have the lease makes the kernel signal us; SIGIO, which is the default, would end us.
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return False if error.errno == errno.EAGAIN else None
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True


def _open_when_free(name: str, flags: int, parent: int) -> int:
    """Another process may have a lease on it for the moment that `nobody_writes` takes."""
    deadline = time.monotonic() + _LEASED_S
    while True:
        try:
            return os.open(name, flags, dir_fd=parent)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.001)


def is_left_alone(descriptor: int) -> bool:
    """Whether nobody is going to write to the file any more: by the kernel's word, else because it has been quiet for a while."""
    closed = nobody_writes(descriptor)
    return closed if closed is not None else is_quiet(descriptor)


def is_quiet(descriptor: int) -> bool:
    return time.time() - os.fstat(descriptor).st_mtime > GRACE_S


def _parts(name: str) -> list[str]:
    parts = name.split("/")
    for part in parts:
        if part in ("", ".", "..") or "\0" in part:
            raise UnsafePath(f"{name!r} is not a name inside the tree.")
    return parts


def _widen(status: os.stat_result, mode: int, made: int | str, parent: int | None = None) -> None:
    """Gives the owner what an odd umask took from something that was just made."""
    if status.st_mode & mode != mode:
        os.chmod(made, mode, dir_fd=parent)


def _check_plain(status: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UnsafePath(f"{name!r} is not a plain file.")
    if status.st_nlink > 1:
        raise UnsafePath(f"{name!r} has {status.st_nlink} hard links, so a write would change another file as well.")


_EXCHANGE = 2  # RENAME_EXCHANGE of Linux and RENAME_SWAP of macOS are the same number,
_NO_REPLACE = 4 if sys.platform == "darwin" else 1  # RENAME_EXCL and RENAME_NOREPLACE are not.
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def _rename_with(flag: int, from_fd: int, from_name: str, to_fd: int, to_name: str) -> bool:
    """One rename with a flag; False where the system or the filesystem does not know it."""
    import ctypes  # late, because reading and appending do without

    call = _flagged_rename()
    if call is None:
        return False
    if call(from_fd, os.fsencode(from_name), to_fd, os.fsencode(to_name), flag) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), to_name)


@functools.cache
def _flagged_rename() -> Callable[[int, bytes, int, bytes, int], int] | None:
    import ctypes

    function = "renameatx_np" if sys.platform == "darwin" else "renameat2"
    return getattr(ctypes.CDLL(None, use_errno=True), function, None)


def _exchange_by_link(one_fd: int, one: str, other_fd: int, other: str) -> None:
    """The next best: the old file stays reachable, but one that replaces it between the first two calls is lost."""
    aside = f"{one}.old"
    os.link(other, aside, src_dir_fd=other_fd, dst_dir_fd=one_fd)
    os.rename(one, other, src_dir_fd=one_fd, dst_dir_fd=other_fd)
    os.rename(aside, one, src_dir_fd=one_fd, dst_dir_fd=one_fd)
