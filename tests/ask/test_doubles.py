"""Two records with one id, as a merge or a copy by hand makes them: neither is hidden, and whoever should know is told."""

from __future__ import annotations

from daemons import smp

from smp_client import Session


def add_by_hand(session: Session, text: str) -> None:
    with (session.memory.root / session.scope.directory / "decisions.yaml").open("a") as file:
        fields = f"decision: {text}, made_by: hand, tags: [{text.split()[-1]}], timestamp: 2026-01-11T14:30:00Z"
        file.write(f"  - {{id: DEC-001, {fields}}}\n")


def test_each_is_found_and_the_id_names_the_last(session: Session) -> None:
    """DEC-001 three times: by the library, and twice by hand."""
    session.record_decision("Caching in memory", made_by="architect", tags=["cache"])
    add_by_hand(session, "Storage on a disk")
    add_by_hand(session, "Backups on a tape")
    for query in ("caching", "storage", "backups"):
        assert [record.id for record in session.search(query)] == ["DEC-001"]
    assert len(session.by_type("decision")) == len(session.timeline()) == 3
    assert session.get("DEC-001").text == "Backups on a tape"
    session.update("DEC-001", confidence="high")
    sure = session.search(confidence="high")
    assert [record.text for record in sure] == ["Backups on a tape"]
    assert "3 records have the id DEC-001" in smp("check", "--root", session.memory.root).stdout
