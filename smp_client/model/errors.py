"""Everything that `smp_client` raises.

`code` never changes once published. `recoverable` says that trying again can help.
`advice` is one sentence on the next step, and ends the message.

`is_of_machine` tells whether an error stops all work, or costs one piece of data alone.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import ClassVar

# The disk is full, broken, gone or read-only, or the system has no descriptors or memory left.
_MACHINE = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.EROFS,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENODEV,
        errno.ENXIO,
        errno.ESTALE,
        errno.ENOTCONN,
        errno.ESHUTDOWN,
    }
)
# The beginnings of the names that SQLite gives to such faults. A damaged index is one of them.
_SQLITE_MACHINE = (
    "SQLITE_BUSY",
    "SQLITE_CANTOPEN",
    "SQLITE_CORRUPT",
    "SQLITE_FULL",
    "SQLITE_IOERR",
    "SQLITE_LOCKED",
    "SQLITE_NOMEM",
    "SQLITE_NOTADB",
    "SQLITE_PERM",
    "SQLITE_PROTOCOL",
    "SQLITE_READONLY",
)


def is_of_machine(error: BaseException | None) -> bool:
    """Return whether an error is a fault of the machine, so that no other work can succeed.

    Every other error is the fault of a piece of data, such as a file that is a link. An error that
    was raised because of another one is judged by that other one.
    """
    while error is not None:
        if isinstance(error, OSError):
            return error.errno in _MACHINE
        if isinstance(error, MemoryError):
            return True
        name = getattr(error, "sqlite_errorname", None)
        if name is not None:
            return str(name).startswith(_SQLITE_MACHINE)
        error = error.__cause__
    return False


# Characters of a message. Whatever it quotes, its advice is still read.
_MESSAGE_CAP = 2_000


def conceal(text: str) -> str:
    """Return a message without secrets. `redaction.redact` puts its own function here."""
    return text


def report(root: str, error: SMPError) -> None:
    """Note for operators that an error leaves the library. `disk.tally` puts its function here."""


class SMPError(Exception):
    code: ClassVar[str] = "MEM_E000"
    recoverable: ClassVar[bool] = False
    advice: str = ""
    is_reported = False

    def __init__(
        self, message: str, *, advice: str | None = None, session_id: str | None = None
    ) -> None:
        if advice is not None:
            self.advice = advice
        self.session_id = session_id
        if len(message) > _MESSAGE_CAP:
            message = f"{message[:_MESSAGE_CAP]}…"
        super().__init__(f"{message} {self.advice}".rstrip())

    def __str__(self) -> str:
        """Return the message without secrets, since it ends up in logs and notes."""
        return conceal(super().__str__())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class QuotaExceeded(SMPError):
    code = "MEM_E001"
    recoverable = True
    advice = (
        "Archive it, delete memories that nobody needs, raise its storage.quota_bytes, or start a"
        " new session."
    )

    def __init__(
        self,
        session_id: str,
        *,
        total_bytes: int,
        quota_bytes: int,
        needed_bytes: int,
        tried: str = "",
    ) -> None:
        """`tried` is a sentence on the compaction that did not help."""
        self.total_bytes = total_bytes
        self.quota_bytes = quota_bytes
        self.needed_bytes = needed_bytes
        held = f"Session {session_id} holds {total_bytes:,} of {quota_bytes:,} bytes"
        needed = f"this write needs {needed_bytes:,} more; nothing was written"
        super().__init__(f"{held} and {needed}. {tried}".rstrip(), session_id=session_id)

    def after(self, tried: str) -> QuotaExceeded:
        """Return this error with a sentence on the compaction that did not help."""
        return QuotaExceeded(
            str(self.session_id),
            total_bytes=self.total_bytes,
            quota_bytes=self.quota_bytes,
            needed_bytes=self.needed_bytes,
            tried=tried,
        )


class LockTimeout(SMPError):  # somebody else is writing
    code = "MEM_E002"
    recoverable = True
    advice = "Try again; if it stays, look at that process."


class CorruptionDetected(SMPError):
    code = "MEM_E003"
    advice = "Mend the named lines by hand; the records around them are still read."


class InvalidQuery(SMPError):
    code = "MEM_E004"
    advice = "Correct the question and ask again."


class SessionNotFound(SMPError):
    code = "MEM_E005"
    advice = "List the sessions with memory.sessions()."


class SessionPutAway(SessionNotFound):  # archived or deleted
    code = "MEM_E020"
    advice = "Bring it back with smp unarchive or smp restore."


class CompactionFailed(SMPError):
    code = "MEM_E006"
    advice = "Nothing was removed; archive the session, or raise its quota."


class MemoryNotFound(SMPError):
    code = "MEM_E007"
    advice = "Check the id; ids look like DEC-001, FIND-001, PREF-001 or turn-1."


class Invalid(SMPError):  # a value that may not be stored
    code = "MEM_E008"
    advice = "Nothing was written; correct the values and try again."

    def __init__(
        self, problems: Sequence[str], *, advice: str | None = None, session_id: str | None = None
    ) -> None:
        self.problems = tuple(map(conceal, problems))
        super().__init__("; ".join(self.problems) + ".", advice=advice, session_id=session_id)


class Conflict(SMPError):
    code = "MEM_E009"
    recoverable = True
    advice = "Read it again and repeat the change."


class StorageFailed(SMPError):  # the filesystem refused: full, read-only, broken
    code = "MEM_E010"
    recoverable = True
    advice = "Nothing was acknowledged; free space or mend the disk, then try again."


OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)
_CLOSE_FILES = "Nothing was acknowledged; close files or raise ulimit -n, then try again."


def storage_failed(doing: str, error: Exception, session_id: str | None = None) -> StorageFailed:
    """Return the error for something that the system refused, with advice that fits."""
    is_out_of_files = getattr(error, "errno", None) in OUT_OF_FILES
    advice = _CLOSE_FILES if is_out_of_files else None
    return StorageFailed(f"{doing}: {error}.", advice=advice, session_id=session_id)


class UnsafePath(SMPError):  # a link, device or name that leads out of the tree
    code = "MEM_E011"
    advice = "Only plain files and directories below the root are used; remove or replace this."


class NewerFormat(SMPError):
    code = "MEM_E012"
    advice = "It was left alone; upgrade SMP to read it."


class TransactionPending(SMPError):  # recorded, but not yet in the files
    code = "MEM_E013"
    recoverable = True
    advice = "It is safe in the journal, and the next write or read finishes it; do not repeat it."


class TransactionEnded(SMPError):
    code = "MEM_E014"
    advice = "Begin another one with session.transaction()."


class AlreadyLed(SMPError):
    code = "MEM_E015"
    advice = "Stop that one first; one daemon for each root is enough."


class NotInTime(SMPError):  # the daemon did not answer in the time it was given
    code = "MEM_E017"
    recoverable = True
    advice = "Ask smp status what it is doing, or give it more time."


class AccessDenied(SMPError):
    code = "MEM_E019"
    advice = "Do without it, or add it to the memory_requirements of the workflow."


class TookTooLong(SMPError):  # a piece of data that costs more time than it may
    code = "MEM_E021"
    advice = "Split it into smaller pieces, or remove what makes it so hard to read."
