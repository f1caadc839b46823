"""The memory of AI agents in plain files: write and read it from Python. See FORMAT.md for the files."""

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
