"""The memory of AI agents in plain files: write and read it from Python. See FORMAT.md for the files.

Each name is imported when it is first asked for: `smp status` needs few of them and has little time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .agent import AgentMemory, context_for
    from .context import Context
    from .errors import (
        AccessDenied,
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
        SessionPutAway,
        SMPError,
        StorageFailed,
        TookTooLong,
        TransactionEnded,
        TransactionPending,
        UnsafePath,
    )  # fmt: skip
    from .locks import Patience
    from .memory import GlobalMemory, Memory
    from .party import Party
    from .privacy.placeholder import Anonymization
    from .privacy.redact import Redaction
    from .quota import Size
    from .records import Record
    from .requirements import WorkflowMemory, require
    from .scope import Options
    from .session import Problem, Session
    from .small import SessionMemory
    from .transaction import Modification, Transaction

__all__ = [
    "AccessDenied",
    "AgentMemory",
    "AlreadyLed",
    "Anonymization",
    "CompactionFailed",
    "Conflict",
    "Context",
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
    "Party",
    "Patience",
    "Problem",
    "QuotaExceeded",
    "Record",
    "Redaction",
    "SMPError",
    "Session",
    "SessionMemory",
    "SessionNotFound",
    "SessionPutAway",
    "Size",
    "StorageFailed",
    "TookTooLong",
    "Transaction",
    "TransactionEnded",
    "TransactionPending",
    "UnsafePath",
    "WorkflowMemory",
    "context_for",
    "require",
]

__version__ = "0.1.0"

_HOMES = {
    "AgentMemory": "agent",
    "Context": "context",
    "Anonymization": "privacy.placeholder",
    "GlobalMemory": "memory",
    "Memory": "memory",
    "Modification": "transaction",
    "Options": "scope",
    "Party": "party",
    "Patience": "locks",
    "Problem": "session",
    "Record": "records",
    "Redaction": "privacy.redact",
    "Session": "session",
    "SessionMemory": "small",
    "Size": "quota",
    "Transaction": "transaction",
    "WorkflowMemory": "requirements",
    "context_for": "agent",
    "require": "requirements",
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
