"""What no longer holds is known: superseded, rejected, reverted, resolved, replaced; from whatever the answer comes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from smp_client import (
    Invalid,
    Memory,
    MemoryNotFound,
    Session,
    SessionNotFound,
    Transaction,
)
from smp_client.disk.journal import record as record_intent
from smp_client.model.ranking import Weights
from smp_client.model.record import RELATIONSHIP

START = datetime(2026, 1, 11, 9, tzinfo=UTC)


class Clock:
    """Each look is a minute later than the one before."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        self.now += timedelta(minutes=1)
        return self.now


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "sessions", clock=Clock())


def related(session: Session, source: str, target: str, relation: str) -> str:
    """A relationship as a person writes it into the file, unchecked."""
    return session.record(RELATIONSHIP, {"source": source, "target": target, "relationship": relation}).id


def marks(memory: Memory, kind: str = "decision") -> dict[str, tuple[str, ...]]:
    return {f"{record.session}/{record.id}": record.marks for record in memory.by_type(kind)}


def test_a_decision_is_superseded_in_its_session_and_in_another(memory: Memory) -> None:
    old, new = memory.create_session(id="old"), memory.create_session(id="new")
    old.record_decision("Orders go to MySQL", made_by="ada")
    old.record_decision("Orders go to MariaDB", made_by="ada")
    new.record_decision("Orders go to PostgreSQL", made_by="ada")
    related(old, "DEC-002", "DEC-001", "supersedes")
    relation = related(new, "DEC-001", "old/DEC-002", "supersedes")
    found = memory.search("orders go to")
    assert next(f"{record.session}/{record.id}" for record in found) == "new/DEC-001"
    assert {f"{record.session}/{record.id}": (record.marks, record.holds) for record in found if record.type == "decision"} == {
        "new/DEC-001": ((), True),
        "old/DEC-001": (("superseded by DEC-002",), False),
        "old/DEC-002": (("superseded by new/DEC-001",), False),
    }
    # A question to the old session alone knows of the new one, and of the end of the relationship.
    assert memory.session("old").get("DEC-002").marks == ("superseded by new/DEC-001",)
    memory.session("new").delete(relation, reason="wrong")
    assert memory.session("old").get("DEC-002").marks == ()


def test_chains_and_circles(memory: Memory) -> None:
    session = memory.create_session(id="s")
    for text in "abcxyz":
        session.record_decision(f"Decision {text}", made_by="ada")
    for source, target in (("1", "2"), ("2", "3"), ("4", "5"), ("5", "4"), ("6", "6")):
        related(session, f"DEC-00{source}", f"s/DEC-00{target}", "supersedes")
    assert {record.id: record.holds for record in session.by_type("decision")} == {
        "DEC-001": True, "DEC-002": False, "DEC-003": False, "DEC-004": False, "DEC-005": False, "DEC-006": True,
    }  # fmt: skip


def test_what_a_record_says_of_itself(memory: Memory) -> None:
    session = memory.create_session(id="s")
    for status in ("accepted", "superseded", "Rejected", "reverted", "implemented"):
        session.record_decision(f"A decision that is {status}", made_by="ada", status=status)
    session.record_decision("One that names the other", made_by="ada", status="superseded", superseded_by="DEC-001")
    session.record_learning("Never mind", learned_by="ada", status="rejected")
    session.record_finding("It leaks", discovered_by="ada")
    session.resolve_finding("FIND-001", resolved_by="ada", action_taken="mended")
    found = {record.id: record.marks for record in memory.session("s").search(limit=None)}
    assert found == {
        "DEC-001": (), "DEC-002": ("superseded",), "DEC-003": ("rejected",), "DEC-004": ("reverted",), "DEC-005": (),
        "DEC-006": ("superseded by DEC-001",), "LEARN-001": ("rejected",), "FIND-001": ("resolved",),
    }  # fmt: skip


def test_the_latest_explicit_preference_of_a_topic_holds(memory: Memory) -> None:
    one, two, other = (memory.create_session(id=name, project=project) for name, project in
                       (("one", "Web Shop"), ("two", "web-shop"), ("other", "Blog")))  # fmt: skip
    one.record_preference("Tabs", topic="Indentation", confidence="explicit")
    one.record_preference("Perhaps two blanks", topic="indentation", confidence="inferred")
    other.record_preference("Four blanks", topic="indentation", confidence="explicit")
    two.record_preference("Two blanks", topic="indentation", confidence="explicit")
    two.record_preference("Dark", topic="theme", confidence="explicit")
    two.record_preference("Three blanks", topic="indentation", confidence="explicit", applies_to={"agents": ["bob"]})
    two.record_preference("Light", topic="theme", confidence="explicit")
    assert marks(memory, "preference") == {
        "one/PREF-001": ("replaced by two/PREF-001",), "one/PREF-002": (), "other/PREF-001": (), "two/PREF-001": (),
        "two/PREF-002": ("replaced by PREF-004",), "two/PREF-003": (), "two/PREF-004": (),
    }  # fmt: skip


def test_what_no_longer_holds_has_a_part_of_the_score(memory: Memory) -> None:
    session = memory.create_session(id="s")
    for _ in range(2):
        session.record_decision("Use PostgreSQL", made_by="ada", timestamp=START)
    related(session, "DEC-001", "DEC-002", "supersedes")
    for text in ("postgresql", ""):
        found = {record.id: record for record in session.search(text, types="decision", explain=True)}
        assert (found["DEC-002"].score or 0) < (found["DEC-001"].score or 0)
        assert [found[name].explanation["holds"] for name in ("DEC-001", "DEC-002")] == [1.0, Weights().ended]  # type: ignore[index]


# Saying it.


@pytest.fixture(params=["session", "transaction"])
def writing(request: pytest.FixtureRequest, memory: Memory) -> Any:
    """Whoever writes into the session `new` beside a session `old`, with a decision and a finding in each."""
    old, new = memory.create_session(id="old"), memory.create_session(id="new")
    for session in (old, new):
        session.record_decision("Use MySQL", made_by="ada")
        session.record_finding("Passwords are logged", discovered_by="ada", severity="critical")
    return new.transaction() if request.param == "transaction" else new


def done(writing: Any) -> None:
    if isinstance(writing, Transaction):
        writing.commit()


def test_supersede_writes_into_the_session_of_the_new_memory(writing: Any, memory: Memory) -> None:
    before = {path: path.read_bytes() for path in (memory.root / "active/old").iterdir() if path.is_file()}
    decision = writing.record_decision("Use PostgreSQL", made_by="ada")
    relation = writing.supersede("old/DEC-001", by=decision.id)
    here = writing.relate(decision.id, "DEC-001", "supersedes", why="it is faster")
    assert (relation.data["source"], relation.data["target"]) == ("DEC-002", "old/DEC-001")
    assert (here.data["target"], here.data["why"]) == ("DEC-001", "it is faster")
    done(writing)
    assert {path: path.read_bytes() for path in before} == before
    assert marks(memory) == {
        "old/DEC-001": ("superseded by new/DEC-002",), "new/DEC-001": ("superseded by DEC-002",), "new/DEC-002": (),
    }  # fmt: skip


def test_resolves_closes_the_finding_and_names_the_decision(writing: Any, memory: Memory) -> None:
    writing.relate("DEC-001", "FIND-001", "resolves")
    writing.relate("new/DEC-001", "old/FIND-001", "resolves")
    writing.relate("DEC-001", "old/DEC-001", "Resolves")
    done(writing)
    own, other = (memory.session(name).get("FIND-001") for name in ("new", "old"))
    resolution = own.data["resolution"]
    assert (resolution["status"], resolution["resolved_by"], resolution["action_taken"]) == ("resolved", "ada", "DEC-001")
    assert (own.marks, other.marks) == (("resolved by DEC-001",), ("resolved by new/DEC-001",))
    assert other.data["resolution"] == {"status": "open"}
    assert memory.summary().open_findings == []
    assert memory.session("old").get("DEC-001").holds  # only a finding is resolved


@pytest.mark.parametrize(
    ("source", "target", "error", "says"),
    [
        ("DEC-009", "DEC-001", MemoryNotFound, "no memory 'DEC-009' in new"),
        ("DEC-001", "old/DEC-009", MemoryNotFound, "no memory 'DEC-009' in old"),
        ("DEC-001", "nowhere/DEC-001", SessionNotFound, "no session 'nowhere'"),
        ("old/DEC-001", "DEC-001", Invalid, "old/DEC-001 is no memory of new"),
        ("DEC-001", "new/DEC-001", Invalid, "cannot be related to itself"),
        ("DEC-001", "old/../DEC-001", Invalid, "must be an id"),
    ],
)
def test_what_cannot_be_related_is_refused(
    writing: Any, memory: Memory, source: str, target: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        writing.relate(source, target, "supersedes")
    done(writing)
    assert memory.session("new").records("relationship") == []


def test_what_holds_everywhere_is_superseded_in_itself(memory: Memory) -> None:
    everywhere = memory.everywhere
    everywhere.record_pattern("Reviews find more before noon")
    everywhere.record_pattern("Reviews find more after lunch")
    everywhere.supersede("PAT-001", by="PAT-002")
    assert everywhere.get("PAT-001").marks == ("superseded by PAT-002",)
    with pytest.raises(Invalid, match="belong to a session"):
        everywhere.relate("PAT-002", "PAT-001", "supersedes")
    session = memory.create_session(id="s")
    session.record_learning("It makes no difference", learned_by="ada")
    session.supersede("global/PAT-002", by="LEARN-001")
    assert everywhere.get("PAT-002").marks == ("superseded by s/LEARN-001",)


def test_a_decision_of_an_archived_session_is_superseded(memory: Memory) -> None:
    old, new = memory.create_session(id="old", project="P"), memory.create_session(id="new", project="P")
    old.record_decision("Use MySQL", made_by="ada")
    memory.archive_session("old", "done")
    packed = (memory.root / "archived/old/archive.tar.gz").read_bytes()
    new.record_decision("Use PostgreSQL", made_by="ada")
    new.supersede("old/DEC-001", by="DEC-001")
    assert marks(memory)["old/DEC-001"] == ("archived", "superseded by new/DEC-001")
    assert (memory.root / "archived/old/archive.tar.gz").read_bytes() == packed
    # A session that is archived goes on to supersede.
    memory.restore_session("old")
    memory.archive_session("new", "done")
    assert memory.session("old").get("DEC-001").marks == ("superseded by new/DEC-001",)


def test_a_transaction_that_was_cut_off_counts_in_every_session(memory: Memory) -> None:
    """It is recorded, so it has happened; a question to another session alone sees it."""
    old, new = memory.create_session(id="old"), memory.create_session(id="new")
    old.record_decision("Use MySQL", made_by="ada")
    new.record_decision("Use PostgreSQL", made_by="ada")
    assert old.get("DEC-001").holds
    file = memory.root / "active/new/relationships.yaml"
    text = '  - {id: REL-001, timestamp: "2026-01-11T09:00:00Z", source: DEC-001, target: old/DEC-001, relationship: supersedes}\n'
    before = file.read_bytes()
    record_intent(new.scope, [{"file": file.name, "append": text, "at": len(before)}])
    assert old.get("DEC-001").marks == ("superseded by new/DEC-001",)
