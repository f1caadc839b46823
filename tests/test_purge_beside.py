"""What a purge finds beside the files of memories: what crashes have left, what was set aside, what others keep of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from smp_client import Memory, Session
from smp_client.quarantine import set_aside

pytestmark = pytest.mark.usefixtures("short_grace")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    made = Memory(tmp_path / "sessions")
    yield made
    made.close()


@pytest.fixture
def session(memory: Memory) -> Session:
    session = memory.create_session(id="s1")
    session.record_decision("stays where it is", made_by="vera")
    return session


def test_what_a_dead_process_was_making_goes_with_the_next_deletion_or_purge(session: Session, memory: Memory) -> None:
    """However new it is, and however short the words are that stand in it."""
    one = session.record_decision("pin 4711", made_by="vera")
    for erase in (lambda: session.delete(one.id, reason="r"), lambda: memory.purge_now("s1", [one.id])):
        if (child := os.fork()) == 0:
            memory.tree.create_temporary(b"pin 4711")
            os._exit(0)
        os.waitpid(child, 0)
        at_work = memory.tree.create_temporary(b"of this process")
        assert len(memory.tree.list(".smp/tmp")) == 2
        assert erase().problems == []
        assert [f".smp/tmp/{name}" for name in memory.tree.list(".smp/tmp")] == [at_work]
        memory.tree.unlink(at_work)


def test_of_what_was_set_aside_only_the_records_that_are_purged_go(session: Session, memory: Memory) -> None:
    """(Seen to fail: the whole file went, with the words of somebody else, and it was told that it was kept.)"""
    one = session.record_decision("the very same long text of two", made_by="a")
    own = f"  - id: DEC-q2 # smp\n    decision: {one.text}\n    tags:\n      - old\n".encode()
    others = [b"  - id: DEC-q1 # smp\n    decision: words of bob\n", b"  - made_by: eve\n    id: DEC-q3\n    decision: hers\n"]
    packed = b'{"insert": [{"id": "DEC-q4", "decision": "of bob"}, {"id": "DEC-q5", "decision": "the very same long text of two"}]}'
    for content in (others[0] + own + others[1], own, packed):
        set_aside(memory.tree, "s1", "decisions.yaml", 0, content, "torn", memory.options.clock())
    outcome = memory.purge_now("s1", [one.id])
    assert {path.read_bytes() for path in (memory.root / "quarantine/s1").glob("*.bytes")} == {b"".join(others), packed}
    assert len(list((memory.root / "quarantine/s1").glob("*.note.yaml"))) == 2
    (problem,) = outcome.problems  # the journal is in one piece
    assert "can still be found in quarantine/s1/" in problem
    assert "until that is purged" not in problem


@pytest.mark.parametrize(("said", "beside", "is_told"), [
    ("pin 4711", b"  - id: DEC-009\n    decision: pin 4711\n", True),
    ("pin 4711", b'{"type": "decision", "decision": "pin 4711", "made_by": "a"}', True),
    ("4711", b"\0b0VIM 9.0\0    decision: '4711'\0", True),
    ("4711", b"    decision: the 4711 of them\n", False),
    ("Redis", b"  - id: DEC-009\n    decision: Redis\n", False),
    ("Redis", b"  - id: DEC-002\n    decision: Redis # smp\n", True),
], ids=["a copy", "a drop", "of an editor", "part of a text", "one word of another", "one word under its id"])  # fmt: skip
def test_a_short_text_is_told_where_it_stands_by_itself(
    session: Session, memory: Memory, said: str, beside: bytes, is_told: bool
) -> None:
    """Beside the files of the session: an editor's copies, and drops that wait. They are kept."""
    one = session.record_decision(said, made_by="vera")
    assert one.id == "DEC-002"
    path = memory.root / "active/s1/.decisions.yaml.swp"
    path.write_bytes(beside)
    outcome = memory.purge_now("s1", [one.id])
    assert outcome.problems == []
    assert [".decisions.yaml.swp" in note for note in outcome.notes] == [True] * is_told
    assert path.exists()
