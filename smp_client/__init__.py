"""The memory of AI agents in plain files: write and read it from Python. See FORMAT.md for the files.

Each name is imported when it is first asked for: `smp status` needs few of them and has little time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .errors import (
        AlreadyLed,
        CompactionFailed,
        Conflict,
        CorruptionDetected,
        Invalid,
        InvalidQuery,
        LockTimeout,
        MemoryNotFound,
        NewerFormat,
        NotInTime,
        QuotaExceeded,
        SessionNotFound,
        SMPError,
        StorageFailed,
        TransactionEnded,
        TransactionPending,
        UnsafePath,
    )  # fmt: skip
    from .locks import Patience
    from .memory import GlobalMemory, Memory
    from .quota import Size
    from .records import Record
    from .scope import Options
    from .session import Problem, Session
    from .transaction import Modification, Transaction

__all__ = [
    "AlreadyLed",
    "CompactionFailed",
    "Conflict",
    "CorruptionDetected",
    "GlobalMemory",
    "Invalid",
    "InvalidQuery",
    "LockTimeout",
    "Memory",
    "MemoryNotFound",
    "Modification",
    "NewerFormat",
    "NotInTime",
    "Options",
    "Patience",
    "Problem",
    "QuotaExceeded",
    "Record",
    "SMPError",
    "Session",
    "SessionNotFound",
    "Size",
    "StorageFailed",
    "Transaction",
    "TransactionEnded",
    "TransactionPending",
    "UnsafePath",
]

__version__ = "0.1.0"

_HOMES = {
    "GlobalMemory": "memory",
    "Memory": "memory",
    "Modification": "transaction",
    "Options": "scope",
    "Patience": "locks",
    "Problem": "session",
    "Record": "records",
    "Session": "session",
    "Size": "quota",
    "Transaction": "transaction",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(f".{_HOMES.get(name, 'errors')}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
