"""A directory of memories, a session's or `global/`, with what every access to it needs: files, locks, clock, options."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from ..model.errors import SessionNotFound, SessionPutAway, StorageFailed, UnsafePath
from ..model.layout import ACTIVE, ARCHIVED, DELETED, FORMAT_VERSION, GLOBAL
from ..model.policies import CompactionPolicy, RetentionPolicy, Thresholds
from ..model.priority import Policy
from ..model.ranking import Weights
from ..model.times import now
from ..redaction.redact import Redaction
from ..text.version import HEAD_BYTES, is_versioned, require_known, version_in
from . import journal, rewrite
from .journal import UPKEEP as UPKEEP
from .locks import Lock, Patience, lock, lock_all
from .published import published
from .tree import Tree, identity
from .usage import DEFAULT_QUOTA_BYTES, Usage

Fsync = Literal["every_write", "batch"]


@dataclass(frozen=True)
class Options:
    """How a client behaves. `fsync="batch"` makes single writes durable only with the next transaction or `sync()`."""

    quota_bytes: int = DEFAULT_QUOTA_BYTES
    fsync: Fsync = "every_write"
    patience: Patience = field(default_factory=Patience)
    clock: Callable[[], datetime] = now
    policy: Policy | None = None  # how memories decay; None for what the daemon's configuration says, else the defaults
    weights: Weights | None = None  # what stands first in an answer; the same
    is_leading: bool = False  # whether this process looks after the root, and so must not wait for whoever does
    count_access: bool = True  # whether being read makes a memory matter more
    thresholds: Thresholds = field(default_factory=Thresholds)  # when sessions age
    compaction: CompactionPolicy = field(default_factory=CompactionPolicy)
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    redaction: Redaction | None = None  # what is taken out of what is written; None as for the policy


class Scope:
    def __init__(self, tree: Tree, name: str, directory: str, options: Options) -> None:
        self.tree = tree
        self.name = name
        self.directory = directory
        self.options = options
        self.usage = Usage(tree, directory)
        self.in_upkeep = False  # whether it is a pass that writes here, and not somebody who uses the session

    def path(self, file: str) -> str:
        return f"{self.directory}/{file}"

    @property
    def redaction(self) -> Redaction:
        """What is taken out of everything that is written here."""
        return self.options.redaction or published(self.tree).redaction()

    def read(self, file: str) -> bytes:
        """The bytes of a file of this scope; none where it does not exist. Takes no lock."""
        with self.answering(f"read {file}"), self.tree.holding():
            self.recover()
            content = journal.read(self, file)
            if not content:
                self.require()
                # A session that was brought back while we looked had no file yet when we read it.
                content = journal.read(self, file)
            return content

    def recover(self) -> None:
        """Roll changes forward that were cut off. On a full or read-only disk they stay pending, and are read."""
        with suppress(OSError):
            journal.recover(self, wait=False)

    @contextmanager
    def locked(self, files: Iterable[str], doing: str, *, any_version: bool = False) -> Iterator[dict[str, Lock]]:
        """The files' locks, with what crashes and unlocked writers have left behind already put right. Raises NewerFormat where a
        later SMP has written one, unless `any_version` will do, since they are not written."""
        wanted = set(files)
        with self.answering(doing), self.tree.holding():
            while True:
                with lock_all(self.tree, self.name, wanted, self.options.patience, doing) as held:
                    self.require()
                    if not journal.left_behind(self, wanted):
                        for file in wanted:
                            rewrite.fold_retired(self, file)
                            if not any_version:
                                self._require_known(file, held[file])
                        yield held
                        return
                journal.recover(self, wait=True)

    @contextmanager
    def undisturbed(self, doing: str, *, may_be_new: bool = False) -> Iterator[None]:
        """The lock that every pass over this session takes, before any other, so that no two of them interleave."""
        if not may_be_new:
            self._require_anywhere()
        with self.answering(doing), lock(self.tree, self.name, UPKEEP, self.options.patience, doing):
            self.in_upkeep = True
            try:
                journal.recover(self, wait=True)
                yield
            finally:
                self.in_upkeep = False

    def home(self) -> Scope:
        """Return this scope with the directory that it has while it is in use."""
        directory = GLOBAL if self.name == GLOBAL else f"{ACTIVE}/{self.name}"
        if directory == self.directory:
            return self
        scope = Scope(self.tree, self.name, directory, self.options)
        scope.in_upkeep = self.in_upkeep
        return scope

    def require(self) -> None:
        """Raises where the directory is not there (any more)."""
        try:
            with self.tree.holding() as held:
                held.reach(self.directory)
        except FileNotFoundError as error:
            if self.directory == f"{ACTIVE}/{self.name}":
                with suppress(OSError):
                    journal.recover(self, wait=False, only_moves=True)
                from . import absence

                found = absence.missing(self.tree, self.name)
                # It may have been brought back between the two looks: then it is no longer where it was put.
                if not isinstance(found, SessionPutAway) and self.tree.exists(self.directory):
                    return
                raise found from error
            raise SessionNotFound(f"There is no {self.directory} under {self.tree.root}.", session_id=self.name) from error

    def _require_known(self, file: str, held: Lock) -> None:
        """Raise NewerFormat where a later SMP has written the file, whose lock is held."""
        if not is_versioned(file):
            return
        path = self.path(file)
        try:
            if held.note.get("file") == identity(self.tree.stat(path)) and held.note.get("version") == FORMAT_VERSION:
                return  # the last writer knew it, and it is still the same
            with self.tree.opened(path) as descriptor:
                version = version_in(file, os.pread(descriptor, HEAD_BYTES, 0))
        except (OSError, UnsafePath):
            return  # whoever needs it will say so
        require_known(version, path)

    def _require_anywhere(self) -> None:
        """Raises where nothing of the session is anywhere, before it gets a lock: the name may be mistyped, or be a secret."""
        places = (self.directory, *(f"{place}/{self.name}" for place in (ACTIVE, ARCHIVED, DELETED)))
        with self.answering("looking for the session"):
            if not any(map(self.tree.exists, places)):
                from .absence import missing

                raise missing(self.tree, self.name)

    @contextmanager
    def answering(self, doing: str) -> Iterator[None]:
        """Whatever the filesystem refuses inside the block is told as StorageFailed."""
        try:
            yield
        except OSError as error:
            raise StorageFailed(f"{self.name}: could not finish {doing}: {error}.", session_id=self.name) from error
