"""Records that somebody wrote into a file without an id get one from the daemon, and stay as they
are otherwise."""

from __future__ import annotations

from pathlib import Path

from daemons import running, wait_until

from smp_client import Memory
from smp_client.change.ids import give_ids
from smp_client.model.record import DECISION, FINDING, TURN


def append(memory: Memory, file: str, text: str) -> None:
    with (memory.root / "active/s1" / file).open("a") as stream:
        stream.write(text)


def test_a_record_without_an_id_gets_the_next_one(memory: Memory) -> None:
    """Its comments, its order and its neighbours stay byte for byte; other names become those of
    its kind."""
    session = memory.create_session(id="s1")
    session.record_decision("First", made_by="a")
    path = memory.root / "active/s1/decisions.yaml"
    before = path.read_text()
    second_text = "  - text: Second  # by hand\n    by: ada\n    tags: [x]\n  # a comment\n"
    third_text = "  - made_by: bob\n    decision: Third\n    when: 2026-01-11T14:30:00Z\n"
    append(memory, "decisions.yaml", second_text + third_text)
    assert give_ids(session, DECISION) == ["DEC-002", "DEC-003"]
    first, second, third = session.records("decision")
    assert (second.id, second.text, second.data["made_by"]) == ("DEC-002", "Second", "ada")
    assert (second.tags, second.timestamp is None) == (["x"], False)
    assert (third.id, third.text) == ("DEC-003", "Third")
    assert third.data["timestamp"] == "2026-01-11T14:30:00Z"
    after = path.read_text()
    assert after.startswith(before)
    assert "decision: Second  # by hand\n" in after
    assert "  # a comment\n" in after
    assert give_ids(session, DECISION) == []
    assert session.record_decision("Fourth", made_by="a").id == "DEC-004"
    assert first.text == "First"


def test_what_is_not_a_memory_gets_none(memory: Memory) -> None:
    """It stays as it is, byte for byte, and check names it."""
    session = memory.create_session(id="s1")
    odd = ["- finding: without an author", "- {finding: x, by: y, severity: low}",
           "- id: 5\n    finding: z"]  # fmt: skip
    append(memory, "findings.yaml", "".join(f"  {record}\n" for record in odd))
    before = (memory.root / "active/s1/findings.yaml").read_bytes()
    assert give_ids(session, FINDING) == []
    assert give_ids(session, TURN) == []
    assert (memory.root / "active/s1/findings.yaml").read_bytes() == before
    assert len(session.problems()) == 3


def test_the_daemon_gives_them(memory: Memory, tmp_path: Path) -> None:
    """And the memory is found."""
    memory.create_session(id="s1")
    with running(memory.root, log=tmp_path / "log"):
        append(memory, "decisions.yaml", "  - decision: Use OAuth\n    by: ada\n")
        found = wait_until(lambda: memory.search("oauth"), "it is found")
    assert [record.id for record in found] == ["DEC-001"]
    assert memory.session("s1").problems() == []
