"""The memory of AI agents in plain files, for Python. FORMAT.md describes the files.

Each name is imported when it is first asked for: `smp status` has little time.
"""
# ruff: noqa: F403, F405 - every error is public, and `__all__` names each

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .agents.agent import AgentMemory
    from .agents.context import Context
    from .agents.party import Party
    from .disk.policy import Options
    from .disk.usage import Size
    from .memory import Memory
    from .model.errors import *
    from .model.record import Record
    from .privacy.placeholder import Anonymization
    from .redaction.redact import Redaction
    from .session import GlobalMemory, Problem, Session
    from .small import SessionMemory
    from .transaction import Transaction

__all__ = [
    "AccessDenied", "AgentMemory", "AlreadyLed", "Anonymization", "CompactionFailed",
    "Conflict", "Context", "CorruptionDetected", "GlobalMemory", "Invalid", "InvalidQuery",
    "LockTimeout", "Memory", "MemoryNotFound", "NewerFormat", "NotInTime",
    "Options", "Party", "Problem", "QuotaExceeded", "Record", "Redaction",
    "SMPError", "Session", "SessionMemory", "SessionNotFound", "SessionPutAway", "Size",
    "StorageFailed", "TookTooLong", "Transaction", "TransactionEnded", "TransactionPending",
    "UnsafePath",
]  # fmt: skip

__version__ = "0.1.0"

_HOMES = {
    "AgentMemory": "agents.agent", "Context": "agents.context",
    "Anonymization": "privacy.placeholder", "GlobalMemory": "session", "Memory": "memory",
    "Options": "disk.policy", "Party": "agents.party", "Problem": "session",
    "Record": "model.record", "Redaction": "redaction.redact", "Session": "session",
    "SessionMemory": "small", "Size": "disk.usage", "Transaction": "transaction",
}  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(f".{_HOMES.get(name, 'model.errors')}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
