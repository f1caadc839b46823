"""The tree of errors: every class is in the picture, with its own code and a sentence on what to
do."""

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
DRAWN = dict(re.findall(r"[├└]── (\w+) +(MEM_E\d{3})  \S", errors.__doc__ or ""))


def test_the_picture_shows_every_class_with_its_code() -> None:
    """The tree in the docstring of `errors.py` and the classes are the same."""
    assert {cls.__name__: cls.code for cls in CLASSES} == DRAWN


def test_codes_are_unique() -> None:
    """No two classes share a code, and none has that of the root."""
    codes = [cls.code for cls in [*CLASSES, SMPError]]
    assert len(set(codes)) == len(codes)


def test_the_codes_of_the_documents_mean_what_they_say_there() -> None:
    """MEM_E001 to MEM_E006 are those of 000 §10.4."""
    assert [name for name, code in sorted(DRAWN.items(), key=lambda item: item[1])][:6] == [
        "QuotaExceeded",
        "LockTimeout",
        "CorruptionDetected",
        "InvalidQuery",
        "SessionNotFound",
        "CompactionFailed",
    ]


def test_every_error_can_be_imported_from_the_package() -> None:
    """Whoever catches an error need not know which module raises it."""
    assert {cls.__name__ for cls in CLASSES} | {"SMPError"} <= set(smp_client.__all__)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_says_what_to_do_next(cls: type[SMPError]) -> None:
    """Each class has a sentence of advice that ends its message, and says whether trying again can
    help."""
    assert re.fullmatch(r"[A-Z].*\.", cls.advice)
    assert isinstance(cls.recoverable, bool)
    error = make(cls)
    assert str(error).endswith(f" {cls.advice}")
    assert isinstance(error, Exception)


def make(cls: type[SMPError]) -> SMPError:
    if cls is QuotaExceeded:
        return QuotaExceeded("s1", total_bytes=9_000, quota_bytes=10_000, needed_bytes=2_000)
    return Invalid(["one thing", "another"]) if cls is Invalid else cls("Something happened.")


def test_a_full_session_is_told_in_numbers() -> None:
    """QuotaExceeded carries the three numbers and shows them."""
    error = make(QuotaExceeded)
    assert isinstance(error, QuotaExceeded)
    assert (error.total_bytes, error.quota_bytes, error.needed_bytes) == (9_000, 10_000, 2_000)
    assert "holds 9,000 of 10,000 bytes and this write needs 2,000 more" in str(error)


def test_invalid_lists_every_problem() -> None:
    """`problems` has them one by one, the message all of them."""
    error = make(Invalid)
    assert isinstance(error, Invalid)
    assert error.problems == ("one thing", "another")
    assert str(error).startswith("one thing; another. ")
