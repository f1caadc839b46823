"""The one way to touch a file under the root.

Names are relative to the root, with `/`. No component may be a link, and the last one must be a
plain file with one name, so that nothing outside the root is ever read or written. A write is
acknowledged only after fsync. After a failed fsync the descriptor is never trusted again.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from ..model.deadline import step
from ..model.errors import UnsafePath
from ..model.layout import TEMPORARY
from ..model.quotation import shown

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
GRACE_S = 2.0  # how long a file must be quiet where the kernel cannot tell whether it is open
READ_CAP_BYTES = 256 * 1024 * 1024
DEEPEST = 32  # directories inside each other, below one that is walked through
_PARTS_CAP = 2 * DEEPEST  # of a name
_PIECE_BYTES = 64 * 1024
_LEASED_S = 10.0  # how long another process may keep us from opening a file

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a FIFO waits for its other end for ever.
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Walked(NamedTuple):
    """A file or directory below another, by its path from the root."""

    path: str
    is_directory: bool
    problem: Exception | None = None  # why a directory was not looked into


class Tree:
    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.path = os.fspath(root)
        self._directories = Directories(self.path)
        self.listed: dict[str, tuple[list[int], dict[str, bool]]] = {}  # see entries_known

    def create_root(self, directories: tuple[str, ...]) -> None:
        os.makedirs(self.path, DIRECTORY_MODE, exist_ok=True)
        for name in directories:
            self.make_directory(name)

    # Reaching and reading.

    def holding(self) -> Directories:
        """Keep the directories that this thread opens inside the block open to its end.

        A directory that moves meanwhile is reached again by its name: see `forget_reached`.
        """
        return self._directories

    def forget_reached(self) -> None:
        """Reach every directory again, also inside a block that keeps directories open.

        Whoever waited for a lock calls this: its last holder may have moved a directory.
        """
        self._directories.forget("")

    @contextmanager
    def root(self) -> Iterator[int]:
        """Open the root alone. Directories that are reached inside the block are not kept open.

        A look at every session would else need a descriptor for each of them.
        """
        descriptor = os.open(self.path, _DIRECTORY & ~os.O_NOFOLLOW)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def parent(self, name: str) -> Iterator[tuple[int, str]]:
        with self._directories as held:
            yield held.reach_parent(name)

    def open(self, name: str, flags: int) -> int:
        """Return a descriptor of a plain file; the caller closes it. O_CREAT makes a new file."""
        with self._directories as held:
            parent, last = held.reach_parent(name)
            if flags & os.O_CREAT:
                return os.open(last, flags | os.O_EXCL | _FILE, FILE_MODE, dir_fd=parent)
            # Looked at first as well: merely to open a device can do something.
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

    def entries(self, name: str) -> dict[str, bool]:
        """Return the names in a directory, in order, and whether each is a directory's.

        There are none where the directory does not exist.
        """
        found = ((one.name, one.is_dir(follow_symlinks=False)) for one in self._scan(name))
        return dict(sorted(found))

    def entries_known(self, name: str) -> dict[str, bool]:
        """Return the entries of a directory, from memory while it has not changed."""
        began = time.time()
        try:
            # By its path, which is cheap: only the list itself is looked into.
            status = os.lstat(f"{self.path}/{name}")
        except FileNotFoundError:
            return {}
        except OSError:
            return self.entries(name)  # which says what is in its way
        known = self.listed.get(name)
        if known is not None and known[0] == identity(status):
            return known[1]
        found = self.entries(name)
        # A directory that changed just now may change again without a newer time.
        if began - max(status.st_mtime, status.st_ctime) > GRACE_S:
            self.listed[name] = identity(status), found
        return found

    def directories(self, name: str) -> list[str]:
        return [inner for inner, is_directory in self.entries(name).items() if is_directory]

    def list(self, name: str) -> list[str]:
        return [*self.entries(name)]

    def sizes(self, name: str) -> dict[str, int]:
        """Return the plain files of a directory with their sizes; none where it does not exist."""
        files = (one for one in self._scan(name) if one.is_file(follow_symlinks=False))
        return {one.name: one.stat(follow_symlinks=False).st_size for one in files}

    def _scan(self, name: str) -> Iterator[os.DirEntry[str]]:
        with self._directories as held, suppress(FileNotFoundError):
            yield from os.scandir(held.reach(name))

    def walk(self, name: str) -> Iterator[Walked]:
        """Yield all that is below a directory, in the order of names, a directory before its files.

        A directory that cannot be looked into, or is deeper than DEEPEST, has a problem.
        """
        waiting = [(name, True)]
        deepest = DEEPEST + (name.count("/") if name else -1)
        while waiting:
            path, is_directory = waiting.pop()
            problem: Exception | None = None
            try:
                if path.count("/") > deepest and is_directory:
                    raise UnsafePath(f"It is deeper than {DEEPEST} directories.")
                for inner, is_inner in reversed(self.entries(path).items() if is_directory else ()):
                    waiting.append((f"{path}/{inner}" if path else inner, is_inner))
            except (OSError, UnsafePath) as error:
                problem = error
            if path != name:
                yield Walked(path, is_directory, problem)
            elif problem:
                raise problem

    def files_below(self, name: str) -> Iterator[str]:
        """Yield every file below a directory, by its path from the root; none too deep."""
        for one in self.walk(name):
            if isinstance(one.problem, OSError):
                raise one.problem
            if not one.is_directory:
                yield one.path

    # Making and replacing.

    def make_directory(self, name: str, *, inside: str = "") -> None:
        """Make a directory, its parents too, and each durable in its own parent.

        Raise FileNotFoundError if the directory `inside`, which is one of its parents, is gone.
        """
        parts = name.split("/")
        first = inside.count("/") + 2 if inside else 1
        for depth in range(first, len(parts) + 1):
            with (
                suppress(FileExistsError),
                self.parent("/".join(parts[:depth])) as (parent, last),
            ):
                os.mkdir(last, DIRECTORY_MODE, dir_fd=parent)
                os.fsync(parent)

    def create(self, name: str, content: bytes) -> None:
        """Make a new file, whole or not at all. Raise FileExistsError where the name is taken."""
        self._put(content, name, self.rename_new)

    def replace(self, name: str, content: bytes, *, durable: bool = True) -> None:
        """Replace a file that only SMP writes; see rewrite.py for those that others may edit.

        A file that can be made again need not wait for the disk.
        """
        self._put(content, name, self.rename, durable)

    def _put(
        self, content: bytes, name: str, rename: Callable[[str, str], None], durable: bool = True
    ) -> None:
        temporary = self.create_temporary(content, durable)
        try:
            rename(temporary, name)
        except BaseException:
            self.unlink(temporary)
            raise
        if durable:
            self.sync_parent(name)

    def new_temporary(self) -> str:
        self.make_directory(TEMPORARY)
        return f"{TEMPORARY}/{os.urandom(16).hex()}"

    def create_temporary(self, content: bytes, durable: bool = True) -> str:
        name = self.new_temporary()
        self.write_new(name, content, durable)
        return name

    def write_new(self, name: str, content: bytes, durable: bool = True) -> None:
        """Make a new file under a name that nobody knows yet. The caller makes the name durable."""
        with self.opened(name, os.O_WRONLY | os.O_CREAT) as descriptor:
            try:
                write_all(descriptor, content)
                if durable:
                    sync(descriptor)
            except BaseException:
                self.unlink(name)
                raise

    def append_line(self, name: str, content: bytes, head: bytes | None = None) -> None:
        """Append bytes to a file on a line of their own, durably. With a head, make it."""
        if head is not None and not self.exists(name):
            with suppress(FileExistsError):  # another process was first
                self.create(name, head)
        with self.opened(name, os.O_RDWR | os.O_APPEND) as descriptor:
            size = os.fstat(descriptor).st_size
            # A line that a crash has cut off must not swallow this one.
            ends = not size or os.pread(descriptor, 1, size - 1) == b"\n"
            write_all(descriptor, content if ends else b"\n" + content)
            sync(descriptor)

    # Renaming and removing.

    def rename(self, source: str, target: str) -> None:
        with self.parent(source) as (from_fd, old), self.parent(target) as (to_fd, new):
            os.rename(old, new, src_dir_fd=from_fd, dst_dir_fd=to_fd)
            self._directories.forget(source, target)

    def rename_new(self, source: str, target: str) -> None:
        """Rename, but raise FileExistsError instead of replacing a file that came meanwhile."""
        with self.parent(source) as (from_fd, old), self.parent(target) as (to_fd, new):
            if not _rename_with(_NO_REPLACE, from_fd, old, to_fd, new):
                if self.exists(target):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
                os.rename(old, new, src_dir_fd=from_fd, dst_dir_fd=to_fd)
            self._directories.forget(source, target)

    def rename_beside(self, source: str, target: str) -> str:
        """Rename to this name or, where that is taken, to one like it. Return the name."""
        stem, dot, ending = target.rpartition(".")
        try:
            self.rename_new(source, target)
        except FileExistsError:
            target = f"{stem}-{os.urandom(4).hex()}{dot}{ending}"
            self.rename_new(source, target)
        return target

    def exchange(self, one: str, other: str) -> None:
        """Swap two names in one step, so that no moment is without either file."""
        with self.parent(one) as (one_fd, name), self.parent(other) as (other_fd, other_name):
            if _rename_with(_EXCHANGE, one_fd, name, other_fd, other_name):
                return
            # The next best: a file that replaces the old one between the first two calls is lost.
            aside = f"{name}.old"
            os.link(other_name, aside, src_dir_fd=other_fd, dst_dir_fd=one_fd)
            os.rename(name, other_name, src_dir_fd=one_fd, dst_dir_fd=other_fd)
            os.rename(aside, name, src_dir_fd=one_fd, dst_dir_fd=one_fd)

    def unlink(self, name: str) -> None:
        with suppress(FileNotFoundError), self.parent(name) as (parent, last):
            os.unlink(last, dir_fd=parent)

    def remove_empty(self, name: str) -> None:
        """Remove a directory that holds nothing; any other stays."""
        with suppress(OSError), self.parent(name) as (parent, last):
            os.rmdir(last, dir_fd=parent)
            self._directories.forget(name)

    def remove_directory(self, name: str) -> OSError | None:
        """Remove a directory that nobody else uses with all that it holds. Follow no link.

        Return the error that stopped it, such as directories too deep; then something is left.
        """
        from shutil import rmtree  # late: it loads compression that most processes do without

        try:
            with self.parent(name) as (parent, last):
                self._directories.forget(name)
                rmtree(last, dir_fd=parent)
        except RecursionError:
            return OSError(errno.ELOOP, "its directories are too deep", name)
        except OSError as error:
            return error if self.exists(name) else None
        return None

    @contextmanager
    def alone_in(self, name: str) -> Iterator[None]:
        """Hold a lock of the directory that a name is in. Only those who repair it take one."""
        with self.parent(name) as (parent, _):
            fcntl.flock(parent, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(parent, fcntl.LOCK_UN)

    def make_private(self, name: str) -> None:
        """Give a plain file, which only SMP uses, the mode that SMP makes files with."""
        with self.parent(name) as (parent, last):
            _check_plain(os.stat(last, dir_fd=parent, follow_symlinks=False), name)
            os.chmod(last, FILE_MODE, dir_fd=parent)

    def sync_parent(self, name: str) -> None:
        with self.parent(name) as (parent, _):
            os.fsync(parent)


class Directories(threading.local):
    """The directories that a thread has open. Its outermost `with` block closes them."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._open: dict[str, int] = {}
        self._forgotten: list[int] = []  # open, because somebody may use them, but of no name
        self._depth = 0

    def __enter__(self) -> Directories:
        step()
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            opened = [*self._open.values(), *self._forgotten]
            self._open = {}
            self._forgotten = []
            for descriptor in opened:
                os.close(descriptor)

    def forget(self, *names: str) -> None:
        """Forget the directories of these names and those below. The name "" means every one.

        The root itself stays: nothing inside the tree moves it.
        """
        for name in [*self._open]:
            if name and any(_is_at_or_below(name, moved) for moved in names):
                self._forgotten.append(self._open.pop(name))

    def reach(self, name: str) -> int:
        """Return a descriptor of a directory, each part opened without following a link."""
        known = self._open.get(name)
        if known is not None:
            return known
        if not name:
            descriptor = os.open(self._root, _DIRECTORY & ~os.O_NOFOLLOW)
        else:
            parent, part = self.reach_parent(name)
            try:
                descriptor = os.open(part, _DIRECTORY, dir_fd=parent)
            except OSError as error:
                if error.errno in (errno.ENOTDIR, errno.ELOOP):
                    problem = f"{part!r} in {name!r} is a link or not a directory."
                    raise UnsafePath(problem) from error
                raise
        self._open[name] = descriptor
        return descriptor

    def reach_parent(self, name: str) -> tuple[int, str]:
        above, last = _split(name)
        return self.reach(above), last


def _is_at_or_below(name: str, directory: str) -> bool:
    return not directory or name == directory or name.startswith(f"{directory}/")


@functools.lru_cache(maxsize=1024)  # a write asks for a dozen names, and always for the same
def _split(name: str) -> tuple[str, str]:
    """Return the directory that a name is in, and its last part."""
    above, _, last = name.rpartition("/")
    if last in ("", ".", "..") or "\0" in last or name[0] == "/":
        raise UnsafePath(f"{shown(name)} is not a name inside the tree.")
    if name.count("/") >= _PARTS_CAP:
        raise UnsafePath(f"{shown(name)} is deeper than anything that SMP looks at.")
    return above, last


# Open files.


def read_from(descriptor: int, offset: int) -> bytes:
    """Return all bytes from the offset on, as they are when reached."""
    size = os.fstat(descriptor).st_size
    if size - offset > READ_CAP_BYTES:
        raise UnsafePath(f"A file of {size:,} bytes is larger than anything SMP writes.")
    pieces = []
    # In large pieces also at its end: a program that appends must not keep us here.
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
    """Return numbers of which one changes whenever somebody writes the file."""
    # Some filesystems have inodes of 64 bits, and SQLite's numbers have a sign.
    inode = status.st_ino & (1 << 63) - 1
    return [inode, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def version_of(status: os.stat_result) -> list[int]:
    """Return numbers by which a file is known to be the one that was read, for a journal too."""
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def nobody_writes(descriptor: int) -> bool | None:
    """Return whether no process has this file open for writing; None where the kernel cannot tell.

    The descriptor must be read-only.
    """
    if sys.platform != "linux":
        return None
    import signal  # late, because reading and appending do without

    # A process that opens the file meanwhile makes the kernel signal us; SIGIO would end us.
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return False if error.errno == errno.EAGAIN else None
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True


def is_left_alone(descriptor: int) -> bool:
    """Return whether nobody will write to the file, by the kernel's word or after a silence."""
    closed = nobody_writes(descriptor)
    is_quiet = time.time() - os.fstat(descriptor).st_mtime > GRACE_S
    return is_quiet if closed is None else closed


def _open_when_free(name: str, flags: int, parent: int) -> int:
    """Open a file. Another process may have a lease on it while it asks `nobody_writes`."""
    deadline = time.monotonic() + _LEASED_S
    while True:
        try:
            return os.open(name, flags, dir_fd=parent)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.001)


def _check_plain(status: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UnsafePath(f"{name!r} is not a plain file.")
    if status.st_nlink > 1:
        links = f"has {status.st_nlink} hard links, so a write would change another file as well"
        raise UnsafePath(f"{name!r} {links}.")


# Renaming with flags.

_EXCHANGE = 2  # RENAME_EXCHANGE of Linux and RENAME_SWAP of macOS are one number,
_NO_REPLACE = 4 if sys.platform == "darwin" else 1  # RENAME_EXCL and RENAME_NOREPLACE are not.


def _rename_with(flag: int, from_fd: int, from_name: str, to_fd: int, to_name: str) -> bool:
    """Rename with a flag. Return whether the system and the filesystem know it."""
    import ctypes  # late, because reading and appending do without

    call = _flagged_rename()
    if call is None:
        return False
    if call(from_fd, os.fsencode(from_name), to_fd, os.fsencode(to_name), flag) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), to_name)


@functools.cache
def _flagged_rename() -> Callable[[int, bytes, int, bytes, int], int] | None:
    import ctypes

    function = "renameatx_np" if sys.platform == "darwin" else "renameat2"
    return getattr(ctypes.CDLL(None, use_errno=True), function, None)
