"""Two records with one id, as a merge or a copy by hand makes them: neither is hidden, and whoever should know is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import (
    running,
    smp,
    status,
)

from smp_client import Memory, Session


def add_by_hand(session: Session, text: str, memory_id: str = "DEC-001") -> None:
    with (session.scope.tree.root / session.scope.directory / "decisions.yaml").open("a") as file:
        fields = f"decision: {text}, made_by: hand, tags: [{text.split()[-1]}], timestamp: 2026-01-11T14:30:00Z"
        file.write(f"  - {{id: {memory_id}, {fields}}}\n")


@pytest.fixture(params=["daemon", "no daemon"])
def doubled(request: pytest.FixtureRequest, session: Session, tmp_path: Path) -> Iterator[Session]:
    """DEC-001 three times: by the library, and twice by hand."""
    session.record_decision("Caching in memory", made_by="architect", tags=["cache"])
    if request.param == "daemon":
        with running(session.scope.tree.root, log=tmp_path / "log"):
            add_by_hand(session, "Storage on a disk")
            add_by_hand(session, "Backups on a tape")
            yield session
    else:
        add_by_hand(session, "Storage on a disk")
        add_by_hand(session, "Backups on a tape")
        yield session


def test_each_is_found(doubled: Session) -> None:
    found = {query: doubled.search(query) for query in ("caching", "storage", "backups")}
    assert {query: [record.id for record in records] for query, records in found.items()} == {
        query: ["DEC-001"] for query in found
    }
    assert len(doubled.by_type("decision")) == len(doubled.records("decision")) == 3
    assert len(doubled.timeline()) == 3
    assert [record.text for record in doubled.by_topic("disk")] == ["Storage on a disk"]


def test_the_id_names_the_last_and_a_change_is_of_that(doubled: Session) -> None:
    assert doubled.get("DEC-001").text == "Backups on a tape"
    doubled.update("DEC-001", confidence="high")
    assert {record.text: record.data.get("confidence") for record in doubled.by_type("decision")} == {
        "Caching in memory": None, "Storage on a disk": None, "Backups on a tape": "high"}  # fmt: skip


def test_status_and_check_say_it(memory: Memory, session: Session, tmp_path: Path) -> None:
    session.record_decision("First", made_by="a")
    with running(memory.root, log=tmp_path / "log"):
        add_by_hand(session, "by hand")
        smp("sync", "--root", memory.root)
        assert status(memory.root)["problems"] == [
            "Ids that name several memories: 1. smp check names them."
        ]
        checked = smp("check", "--root", memory.root).stdout
        assert "2 records have the id DEC-001" in checked
