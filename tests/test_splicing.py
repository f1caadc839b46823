"""Changing records by the places that the index knows, while somebody appends without a lock."""

from __future__ import annotations

import zlib

from smp_client.fingerprint import hash_of
from smp_client.text.format import format_of
from smp_client.records import TURN
from smp_client.splicing import Part, Splice, is_as_read, splice

FIRST = b"## Turn 1 - 2026-01-01 00:00:00\n**Speaker:** a\n\nfirst\n\n---\n\n"
LAST = b"## Turn 2 - 2026-01-01 00:00:00\n**Speaker:** a\n\nsecond\n\n---\n\n"


def taking_out(content: bytes, memory_id: str) -> Splice:
    """As somebody would who has read just this."""
    (found,) = [record for record in format_of(TURN).parse(content).records if record.value["id"] == memory_id]
    part = Part(memory_id, found.start, found.end, hash_of(found.value), "")
    return Splice(len(content), zlib.crc32(content), [part], 2)


def test_an_append_that_was_seen_in_part_is_not_cut_in_two() -> None:
    """It stays if it was not what it is now, or goes whole. (One half was taken out, and the other stayed.)"""
    for seen in range(len(LAST) - len(b"second\n\n---\n\n"), len(LAST) - 1):
        change = taking_out(FIRST + LAST[:seen], "turn-2")
        assert not is_as_read(FIRST + LAST, change)
        after = splice(TURN, FIRST + LAST, change)
        assert after.endswith(FIRST + LAST) or (b"second" not in after and b"Turn 2" not in after)


def test_what_stands_before_the_end_is_taken_out_although_the_file_has_grown() -> None:
    change = taking_out(FIRST + LAST, "turn-1")
    later = LAST.replace(b"Turn 2", b"Turn 3")
    assert is_as_read(FIRST + LAST + later, change)
    assert splice(TURN, FIRST + LAST + later, change).endswith(LAST + later)
    assert b"first" not in splice(TURN, FIRST + LAST + later, change)
