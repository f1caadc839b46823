"""The tree of errors: every class has its own code and a sentence of advice."""

from __future__ import annotations

import inspect
import re

import pytest

import smp_client
from smp_client import Invalid, QuotaExceeded, SMPError
from smp_client.model import errors

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
