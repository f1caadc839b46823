"""Every row of the requirements has its test, or a line in the design."""

from __future__ import annotations

from rows import MISSING, decided, missing, rows, with_tests


def test_no_row_is_forgotten() -> None:
    assert missing() == set(rows(MISSING))
    assert (with_tests() | decided()) <= set(rows())
