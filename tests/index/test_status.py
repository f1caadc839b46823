"""What the status of a tree says about bytes in quarantine and directories that have left."""

from __future__ import annotations

from datetime import timedelta

import pytest
from daemons import smp, status

from smp_client import Memory, Session
from smp_client.disk.place import Place
from smp_client.disk.quarantine import A_COPY, quarantine_bytes
from smp_client.index.status import read_status
from smp_client.model.times import now


def about_quarantine(sentences: list[str]) -> list[str]:
    return [one for one in sentences if "quarantine" in one]


def test_bytes_in_quarantine_are_named_for_a_week(memory: Memory, session: Session) -> None:
    for _ in range(2):
        quarantine_bytes(session.scope, "findings.yaml", b"torn", "cut off")
    place = Place(memory.root)
    (said,) = about_quarantine(read_status(place).problems)
    assert "2 of s1, cut off." in said
    later = read_status(place, at=now() + timedelta(days=8))
    assert (about_quarantine(later.problems), later.root.quarantined) == ([], 2)


def test_a_copy_in_quarantine_is_no_problem(memory: Memory, session: Session) -> None:
    quarantine_bytes(session.scope, "findings.yaml", b"{}", A_COPY)
    found = status(memory.root)
    assert about_quarantine(found["problems"]) == []
    (said,) = about_quarantine(found["notes"])
    assert f"1 of s1, {A_COPY}." in said
    assert f"  - {said}" in smp("status", "--root", memory.root).stdout


@pytest.mark.parametrize("note", [None, "[", "- 1", "why: [1]\nset_aside_at: soon\n"])
def test_a_piece_with_an_odd_note_is_named(
    memory: Memory, session: Session, note: str | None
) -> None:
    name = quarantine_bytes(session.scope, "findings.yaml", b"torn", "cut off")
    path = memory.root / f"{name}.note.yaml"
    path.unlink()
    if note is not None:
        path.write_text(note)
    assert len(about_quarantine(read_status(Place(memory.root)).problems)) == 1
    assert smp("check", "--root", memory.root).returncode == 1


def test_a_directory_that_a_program_keeps_open_is_named(memory: Memory, session: Session) -> None:
    session.record_decision("Use OAuth", made_by="ada")
    with (memory.root / "active/s1/decisions.yaml").open("a"):
        memory.archive_session("s1")
        place = Place(memory.root)
        assert read_status(place).notes == []
        (said,) = read_status(place, at=now() + timedelta(minutes=2)).notes
    assert "a file of s1 open" in said
