"""A memory that is gone is missed with the way to bring it back; references to it stay."""

from __future__ import annotations

import pytest
from bundles import evict

from smp_client import Memory, MemoryNotFound, Session
from smp_client.passes.check import check


@pytest.mark.parametrize(("state", "advice"), [
    ("deleted", "smp restore s1 DEC-001"), ("evicted", "smp compact s1 DEC-001 --bring-back"),
])  # fmt: skip
def test_the_error_says_what_happened(
    memory: Memory, session: Session, state: str, advice: str
) -> None:
    session.record_decision("first", made_by="a")
    session.add_turn("user", "hello", memory_refs=["DEC-001", "NOT-001"])
    if state == "evicted":
        evict(memory, "s1", "DEC-001")
    else:
        session.delete("DEC-001", reason="privacy")
    with pytest.raises(MemoryNotFound, match=f"it was {state} on .*{advice}"):
        session.update("DEC-001", rationale="too late")
    assert session.get("turn-1").data["memory_refs"][0] == "DEC-001"
    assert session.related("turn-1") == [] or state == "evicted"
    assert check(memory) == []
