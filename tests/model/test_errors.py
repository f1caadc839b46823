"""The tree of errors: every class has its own code and a sentence of advice."""

from __future__ import annotations

import errno
import inspect
import re
import sqlite3
from contextlib import closing

import pytest

import smp_client
from smp_client import (
    Invalid,
    LockTimeout,
    QuotaExceeded,
    SMPError,
    StorageFailed,
    TransactionPending,
    UnsafePath,
)
from smp_client.model import errors
from smp_client.model.layout import check_session_id
from smp_client.model.quotation import shown
from smp_client.model.record import check_memory_id, check_memory_name

CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, SMPError) and cls is not SMPError
]
DOCUMENTED = ["QuotaExceeded", "LockTimeout", "CorruptionDetected", "InvalidQuery",
              "SessionNotFound", "CompactionFailed"]  # fmt: skip


def test_every_class_has_a_code_of_its_own() -> None:
    """MEM_E001 to MEM_E006 mean what the documents say; every class is in the package."""
    codes = {cls.code: cls.__name__ for cls in [*CLASSES, SMPError]}
    assert len(codes) == len(CLASSES) + 1
    assert [codes[code] for code in sorted(codes)][1:7] == DOCUMENTED
    assert set(codes.values()) <= set(smp_client.__all__)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_says_what_to_do_next(cls: type[SMPError]) -> None:
    """A sentence of advice ends its message; numbers and problems are in it and beside it."""
    error: SMPError
    if cls is QuotaExceeded:
        error = QuotaExceeded("s1", total_bytes=9_000, quota_bytes=10_000, needed_bytes=2_000)
        assert "holds 9,000 of 10,000 bytes and this write needs 2,000 more" in str(error)
    elif cls is Invalid:
        error = Invalid(["one thing", "another"])
        assert error.problems == ("one thing", "another")
        assert str(error).startswith("one thing; another. ")
    else:
        error = cls("Something happened.")
    assert re.fullmatch(r"[A-Z].*\.", cls.advice)
    assert str(error).endswith(f" {cls.advice}")


def caused(error: SMPError, by: Exception) -> SMPError:
    error.__cause__ = by
    return error


def sqlite_error(statement: str) -> sqlite3.Error:
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(sqlite3.Error) as caught:
        connection.executescript(f"CREATE TABLE t (a UNIQUE); {statement}")
    return caught.value


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "full"), True),
        (OSError(errno.EROFS, "read-only"), True),
        (OSError(errno.EMFILE, "no descriptor"), True),
        (caused(StorageFailed("no"), OSError(errno.EIO, "broken")), True),
        (caused(TransactionPending("no"), caused(StorageFailed(""), OSError(errno.EDQUOT, ""))), True),
        (sqlite_error("PRAGMA max_page_count = 1; INSERT INTO t VALUES (zeroblob(99999));"), True),
        (sqlite_error("PRAGMA query_only = ON; INSERT INTO t VALUES (1);"), True),
        (MemoryError(), True),
        (OSError(errno.ELOOP, "a link"), False),
        (PermissionError(errno.EACCES, "not yours"), False),
        (IsADirectoryError(errno.EISDIR, "a directory"), False),
        (caused(StorageFailed("no"), PermissionError(errno.EACCES, "not yours")), False),
        (sqlite_error("INSERT INTO t VALUES (1), (1);"), False),
        (UnsafePath("a hard link"), False),
        (LockTimeout("in use"), False),
        (ValueError("unexpected"), False),
    ],
    ids=repr,
)
def test_a_fault_of_the_machine_is_told_from_that_of_a_piece(
    error: Exception, expected: bool
) -> None:
    assert errors.is_of_machine(error) is expected


SECRET = "ghp_" + "a1B2" * 9


def test_a_quoted_value_is_short_and_without_secrets() -> None:
    for value in ("x" * 99_000, b"x" * 99_000, ["x"] * 99_000, 10**99_000, [SECRET]):
        assert len(shown(value)) <= 81
        assert SECRET[:20] not in shown(value)
    assert SECRET[:20] not in shown(f"{'x' * 60} {SECRET}")  # of which the end would be cut off


def test_a_message_is_bounded_and_keeps_its_advice() -> None:
    said = str(Invalid(["x" * 99_000]))
    assert len(said) < 2_200
    assert said.endswith(Invalid.advice)
    for check in (check_memory_id, check_memory_name, check_session_id):
        with pytest.raises(Invalid) as refused:
            check("x" * 99_000)
        assert len(str(refused.value)) < 400
