"""A directory of memories, a session's or `global/`: its files, locks, clock and options."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from ..model.errors import (
    LockTimeout,
    SessionNotFound,
    SessionPutAway,
    SMPError,
    UnsafePath,
    storage_failed,
)
from ..model.layout import ACTIVE, ARCHIVED, DELETED, GLOBAL
from ..redaction.redact import Redaction
from ..text.version import HEAD_BYTES, is_versioned, require_known, version_in
from . import journal, rewrite
from .journal import UPKEEP as UPKEEP
from .locks import NO_PATIENCE, Lock, guarded, lock, lock_all
from .place import ARCHIVE, BACKUP
from .policy import Options, published
from .tree import Tree
from .usage import Usage, require_readable


class Scope:
    def __init__(self, tree: Tree, name: str, directory: str, options: Options) -> None:
        self.tree = tree
        self.name = name
        self.directory = directory
        self.options = options
        self.usage = Usage(tree, directory)
        self.in_upkeep = False  # whether the writer is a pass, and no user of the session

    def path(self, file: str) -> str:
        return f"{self.directory}/{file}"

    @property
    def redaction(self) -> Redaction:
        """The redaction of every write into this scope."""
        return self.options.redaction or published(self.tree).redaction

    def read(self, file: str) -> bytes:
        """Return the bytes of a file; no bytes where the file does not exist. Take no lock."""
        with self.answering(f"reading {file}"):
            self.recover()
            with suppress(FileNotFoundError):
                size = self.tree.stat(self.path(file)).st_size
                require_readable(self.tree, self.directory, file, size)
            content = journal.read(self, file)
            if not content:
                self.require()
                # The session may have been restored after the first read.
                content = journal.read(self, file)
            return content

    def recover(self) -> None:
        """Finish changes that a crash cut off. On a full or read-only disk they stay pending."""
        with suppress(OSError):
            journal.recover(self, wait=False)
        with suppress(OSError, SMPError):  # the next one who comes tries it again
            self.fold_old_versions()

    def fold_old_versions(self) -> None:
        """Fold late writes into files, and remove their old versions, as soon as nobody has one.

        It waits for no lock: a holder of a file's lock does this itself.
        """
        for file in rewrite.files_to_fold(self):
            held = lock_all(self.tree, self.name, [file], NO_PATIENCE, "folding in late writes")
            with suppress(LockTimeout), held:
                # An unfinished change comes first; a session that is leaving takes nothing in.
                is_here = not journal.left_behind(self, [file]) and self.tree.exists(self.directory)
                if is_here:
                    rewrite.fold_retired(self, file)

    @contextmanager
    def locked(
        self, files: Iterable[str], doing: str, *, any_version: bool = False
    ) -> Iterator[dict[str, Lock]]:
        """Lock files, after finishing the changes that crashes and unlocked writers left.

        Raise NewerFormat where a later SMP has written a file, unless `any_version` is true.
        """
        asked = set(files)
        wanted = guarded(self.name, asked)
        timeout_s = self.options.lock_timeout_s
        with suppress(OSError, SMPError):
            self.fold_old_versions()
        with self.answering(doing), self.tree.holding():
            while True:
                with lock_all(self.tree, self.name, wanted, timeout_s, doing) as held:
                    # The journal first. If no intent is there, none can come while these locks are
                    # held, so the directory that is reached from here on is the one that stays.
                    is_clear = not journal.left_behind(self, wanted)
                    self.require()
                    if is_clear:
                        for file in asked:
                            rewrite.fold_retired(self, file)
                            if not any_version and is_versioned(file):
                                self._require_known(file)
                        yield held
                        return
                journal.recover(self, wait=True)

    def fold(self, file: str, late: bytes, slot: str, following: str | None) -> None:
        """Append bytes that came into an old version to its file, as one change with its slot.

        The slot gets the name `following`, or goes. The caller holds the file's lock.
        """
        old: journal.Step = {"file": file, "retired": slot, "to": following}
        journal.happen(self, [journal.appending(self, file, late), old])

    @contextmanager
    def undisturbed(self, doing: str, *, is_new: bool = False) -> Iterator[None]:
        """Take the lock that every pass takes first, so that no two passes interleave.

        `is_new` says that the session need not exist, because the caller makes it.
        """
        with self.answering(doing):
            homes = (f"{place}/{self.name}" for place in (ACTIVE, ARCHIVED, DELETED))
            # Locks are files by the name of a session: a mistyped name, or a secret, gets none.
            if not is_new and not any(map(self.tree.exists, (self.directory, *homes))):
                raise missing(self.tree, self.name)
            with lock(self.tree, self.name, UPKEEP, self.options.lock_timeout_s, doing):
                self.in_upkeep = True
                try:
                    journal.recover(self, wait=True)
                    yield
                finally:
                    self.in_upkeep = False

    def home(self) -> Scope:
        """Return this scope in `active/`, or `global/` itself, wherever its files are now."""
        directory = GLOBAL if self.name == GLOBAL else f"{ACTIVE}/{self.name}"
        if directory == self.directory:
            return self
        scope = Scope(self.tree, self.name, directory, self.options)
        scope.in_upkeep = self.in_upkeep
        return scope

    def require(self) -> None:
        """Raise SessionNotFound where the directory does not exist, with the way to restore it."""
        try:
            with self.tree.holding() as held:
                held.reach(self.directory)
        except FileNotFoundError as error:
            if self.directory != f"{ACTIVE}/{self.name}":
                problem = f"There is no {self.directory} under {self.tree.path}."
                raise SessionNotFound(problem, session_id=self.name) from error
            with suppress(OSError):
                journal.recover(self, wait=False)
            refusal = missing(self.tree, self.name)
            # The session may have been restored between the two checks.
            if isinstance(refusal, SessionPutAway) or not self.tree.exists(self.directory):
                raise refusal from error

    def _require_known(self, file: str) -> None:
        """Raise NewerFormat where a later SMP has written the file."""
        path, head = self.path(file), b""
        with suppress(OSError, UnsafePath), self.tree.opened(path) as descriptor:
            head = os.pread(descriptor, HEAD_BYTES, 0)
        require_known(version_in(file, head), path)

    @contextmanager
    def answering(self, doing: str) -> Iterator[None]:
        """Raise StorageFailed for everything that the filesystem refuses inside the block."""
        try:
            yield
        except OSError as error:
            problem = f"Could not finish {doing} in {self.tree.path}/{self.directory}"
            raise storage_failed(problem, error, self.name) from error


def missing(tree: Tree, session_id: str) -> SessionNotFound:
    """Return the error for a session that is not in `active/`, with the way to restore it."""
    with suppress(SMPError, OSError):
        for place, file, command in (
            (DELETED, BACKUP, "restore"),
            (ARCHIVED, ARCHIVE, "unarchive"),
        ):
            if tree.exists(f"{place}/{session_id}/{file}"):
                problem = f"Session {session_id!r} is {place}."
                advice = f"smp {command} {session_id} brings it back."
                return SessionPutAway(problem, session_id=session_id, advice=advice)
    problem = f"There is no session {session_id!r} under {tree.path}."
    return SessionNotFound(problem, session_id=session_id)
