"""What no longer holds is known: superseded, rejected, reverted, resolved, replaced; from whatever the answer comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from daemons import running, wait_until

from smp_client import Memory, Session
from smp_client.index import Index
from smp_client.indexing import outdated, rebuild, refresh
from smp_client.questions.engine import find
from smp_client.questions.validity import holds
from smp_client.records import RELATIONSHIP
from smp_client.status import INDEX_FILE

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


@pytest.fixture(params=["index", "no index", "daemon"])
def asked(request: pytest.FixtureRequest, memory: Memory, tmp_path: Path) -> Iterator[Callable[[], Memory]]:
    """Gives whoever answers: from an index on disk, from the files alone, or beside a daemon."""
    if request.param == "daemon":
        memory.create()
        with running(memory.root, log=tmp_path / "log"):
            yield lambda: memory
        return
    if request.param == "index":
        yield lambda: memory
        return

    def without_index() -> Memory:
        """Somebody who finds a file in the index's place that is none, and may not replace it."""
        memory.close()
        for file in memory.root.glob(f"{INDEX_FILE}*"):
            file.unlink()
        (memory.root / INDEX_FILE).mkdir()
        return Memory(memory.root, clock=memory.options.clock)

    yield without_index


def related(session: Session, source: str, target: str, relation: str) -> str:
    """A relationship as a person writes it into the file, unchecked."""
    return session.record(RELATIONSHIP, {"source": source, "target": target, "relationship": relation}).id


def marks(memory: Memory, kind: str = "decision") -> dict[str, tuple[str, ...]]:
    return {f"{record.session}/{record.id}": record.marks for record in memory.by_type(kind)}


def test_a_decision_is_superseded_in_its_session_and_in_another(memory: Memory, asked: Callable[[], Memory]) -> None:
    old, new = memory.create_session(id="old"), memory.create_session(id="new")
    old.record_decision("Orders go to MySQL", made_by="ada")
    old.record_decision("Orders go to MariaDB", made_by="ada")
    new.record_decision("Orders go to PostgreSQL", made_by="ada")
    related(old, "DEC-002", "DEC-001", "supersedes")
    related(new, "DEC-001", "old/DEC-002", "supersedes")
    answering = asked()
    found = answering.search("orders go to")
    assert next(f"{record.session}/{record.id}" for record in found) == "new/DEC-001"
    assert {f"{record.session}/{record.id}": (record.marks, record.holds) for record in found if record.type == "decision"} == {
        "new/DEC-001": ((), True),
        "old/DEC-001": (("superseded by DEC-002",), False),
        "old/DEC-002": (("superseded by new/DEC-001",), False),
    }
    # A question to the old session alone knows of the new one, and so does who reads one memory.
    assert [record.marks for record in answering.session("old").by_type("decision", sort="oldest")] == [
        ("superseded by DEC-002",), ("superseded by new/DEC-001",),
    ]  # fmt: skip
    assert answering.session("old").get("DEC-002").marks == ("superseded by new/DEC-001",)


def test_a_memory_holds_again_without_the_relationship(memory: Memory, asked: Callable[[], Memory]) -> None:
    old, new = memory.create_session(id="old"), memory.create_session(id="new")
    old.record_decision("Use MySQL", made_by="ada")
    new.record_decision("Use PostgreSQL", made_by="ada")
    relation = related(new, "DEC-001", "old/DEC-001", "supersedes")
    assert not memory.session("old").get("DEC-001").holds
    memory.session("new").delete(relation, reason="wrong")
    assert asked().session("old").get("DEC-001").marks == ()
    assert marks(memory) == {"new/DEC-001": (), "old/DEC-001": ()}


def test_a_session_that_is_gone_supersedes_nothing(memory: Memory, asked: Callable[[], Memory]) -> None:
    old, new = memory.create_session(id="old"), memory.create_session(id="new")
    old.record_decision("Use MySQL", made_by="ada")
    new.record_decision("Use PostgreSQL", made_by="ada")
    related(new, "DEC-001", "old/DEC-001", "supersedes")
    assert not old.get("DEC-001").holds
    memory.delete_session("new", reason="wrong")
    assert asked().session("old").get("DEC-001").holds
    assert marks(memory) == {"old/DEC-001": ()}


def test_chains_and_circles(memory: Memory) -> None:
    session = memory.create_session(id="s")
    for text in "abcxyz":
        session.record_decision(f"Decision {text}", made_by="ada")
    for source, target in (("1", "2"), ("2", "3"), ("4", "5"), ("5", "4"), ("6", "6")):
        related(session, f"DEC-00{source}", f"s/DEC-00{target}", "supersedes")
    assert {record.id: record.holds for record in session.by_type("decision")} == {
        "DEC-001": True, "DEC-002": False, "DEC-003": False, "DEC-004": False, "DEC-005": False, "DEC-006": True,
    }  # fmt: skip


def test_what_a_record_says_of_itself(memory: Memory, asked: Callable[[], Memory]) -> None:
    session = memory.create_session(id="s")
    for status in ("accepted", "superseded", "Rejected", "reverted", "implemented"):
        session.record_decision(f"A decision that is {status}", made_by="ada", status=status)
    session.record_decision("One that names the other", made_by="ada", status="superseded", superseded_by="DEC-001")
    session.record_learning("Never mind", learned_by="ada", status="rejected")
    session.record_finding("It leaks", discovered_by="ada")
    session.resolve_finding("FIND-001", resolved_by="ada", action_taken="mended")
    found = {record.id: record.marks for record in asked().session("s").search(limit=None)}
    assert found == {
        "DEC-001": (), "DEC-002": ("superseded",), "DEC-003": ("rejected",), "DEC-004": ("reverted",), "DEC-005": (),
        "DEC-006": ("superseded by DEC-001",), "LEARN-001": ("rejected",), "FIND-001": ("resolved",),
    }  # fmt: skip


def test_a_status_written_by_hand_and_taken_back(memory: Memory) -> None:
    session = memory.create_session(id="s")
    session.record_decision("Use MySQL", made_by="ada")
    file = memory.root / "active/s/decisions.yaml"
    before = file.read_text()
    file.write_text(before.replace("    made_by: ada", "    made_by: ada\n    status: reverted"))
    assert session.get("DEC-001").marks == ("reverted",)
    file.write_text(before)
    assert session.get("DEC-001").holds


def test_a_relationship_resolves_a_finding_and_nothing_else(memory: Memory, asked: Callable[[], Memory]) -> None:
    old, new = memory.create_session(id="old"), memory.create_session(id="new")
    old.record_finding("Passwords are logged", discovered_by="ada", severity="critical")
    old.record_decision("Whether to log is open", made_by="ada", status="open")
    new.record_decision("Log no bodies", made_by="ada")
    related(new, "DEC-001", "old/FIND-001", "resolves")
    related(new, "DEC-001", "old/DEC-001", "Resolves")
    answering = asked().session("old")
    assert answering.get("FIND-001").marks == ("resolved by new/DEC-001",)
    assert answering.get("DEC-001").holds
    assert answering.agent("ada").relevant_findings() == []
    assert answering.summary().open_findings == []


def test_the_latest_explicit_preference_of_a_topic_holds(memory: Memory, asked: Callable[[], Memory]) -> None:
    one, two, other = (memory.create_session(id=name, project=project) for name, project in
                       (("one", "Web Shop"), ("two", "web-shop"), ("other", "Blog")))  # fmt: skip
    one.record_preference("Tabs", topic="Indentation", confidence="explicit")
    one.record_preference("Perhaps two blanks", topic="indentation", confidence="inferred")
    other.record_preference("Four blanks", topic="indentation", confidence="explicit")
    two.record_preference("Two blanks", topic="indentation", confidence="explicit")
    two.record_preference("Dark", topic="theme", confidence="explicit")
    two.record_preference("Three blanks", topic="indentation", confidence="explicit", applies_to={"agents": ["bob"]})
    two.record_preference("Light", topic="theme", confidence="explicit")
    answering = asked()
    assert marks(answering, "preference") == {
        "one/PREF-001": ("replaced by two/PREF-001",), "one/PREF-002": (), "other/PREF-001": (), "two/PREF-001": (),
        "two/PREF-002": ("replaced by PREF-004",), "two/PREF-003": (), "two/PREF-004": (),
    }  # fmt: skip
    assert answering.session("one").get("PREF-001").marks == ("replaced by two/PREF-001",)
    assert answering.session("one").get("PREF-001").text == "Tabs"


def test_preferences_without_a_project_are_of_one_and_global_ones_apart(memory: Memory, asked: Callable[[], Memory]) -> None:
    one, two = memory.create_session(id="one"), memory.create_session(id="two")
    memory.everywhere.record_preference("Be brief", topic="style", confidence="explicit")
    one.record_preference("Be thorough", topic="style", confidence="explicit")
    two.record_preference("Be kind", topic="style", confidence="explicit")
    found = marks(asked(), "preference")
    assert found == {"global/GPREF-001": (), "one/PREF-001": ("replaced by two/PREF-001",), "two/PREF-001": ()}
    memory.everywhere.record_preference("Be clear", topic="style", confidence="explicit")
    assert marks(memory, "preference")["global/GPREF-001"] == ("replaced by GPREF-002",)


def test_a_preference_that_was_rejected_replaces_none(memory: Memory) -> None:
    session = memory.create_session(id="s")
    session.record_preference("Tabs", topic="indentation", confidence="explicit")
    session.record_preference("Blanks", topic="indentation", confidence="explicit")
    assert session.get("PREF-001").marks == ("replaced by PREF-002",)
    session.update("PREF-002", status="rejected")
    assert marks(memory, "preference") == {"s/PREF-001": (), "s/PREF-002": ("rejected",)}


def test_a_project_that_is_renamed_elsewhere_is_seen(memory: Memory) -> None:
    one, two = memory.create_session(id="one", project="a"), memory.create_session(id="two", project="b")
    one.record_preference("Tabs", topic="indentation", confidence="explicit")
    two.record_preference("Blanks", topic="indentation", confidence="explicit")
    assert one.get("PREF-001").holds
    two.update_metadata(context={"project_name": "A"})
    assert one.get("PREF-001").marks == ("replaced by two/PREF-001",)


def test_the_condition_leaves_out_what_no_longer_holds(memory: Memory) -> None:
    session = memory.create_session(id="s")
    for text in ("Use MySQL", "Use PostgreSQL", "Use SQLite"):
        session.record_decision(text, made_by="ada")
    related(session, "DEC-002", "DEC-001", "supersedes")
    session.update("DEC-003", status="rejected")
    found = memory._asker().answer(lambda view, want: find(view, want.also(holds()), "use"), {"types": "decision"})
    assert [record.id for record in found] == ["DEC-002"]


def test_what_no_longer_holds_has_a_part_of_the_score(memory: Memory) -> None:
    session = memory.create_session(id="s")
    for _ in range(2):
        session.record_decision("Use PostgreSQL", made_by="ada", timestamp=START)
    related(session, "DEC-001", "DEC-002", "supersedes")
    for text in ("postgresql", ""):
        found = {record.id: record for record in session.search(text, types="decision", explain=True)}
        assert found["DEC-002"].score == pytest.approx((found["DEC-001"].score or 0) * 0.4, abs=1e-3)
        assert [found[name].explanation["holds"] for name in ("DEC-001", "DEC-002")] == [1.0, 0.4]  # type: ignore[index]


def test_a_rebuilt_index_knows_the_same(memory: Memory) -> None:
    old, new = memory.create_session(id="old", project="P"), memory.create_session(id="new", project="p")
    for session in (old, new):
        session.record_decision("Use it", made_by="ada")
        session.record_preference("Tabs", topic="indentation", confidence="explicit")
    first = related(new, "DEC-001", "old/DEC-001", "supersedes")
    memory.search("use")
    new.delete(first, reason="wrong")
    related(new, "DEC-001", "old/DEC-001", "supersedes")
    memory.search("use")
    memory.close()
    grown, made = Index.open(memory.root / INDEX_FILE), Index.in_memory()
    for scope, file in list(outdated(memory, grown)):
        refresh(memory, grown, scope, file)
    rebuild(memory, made)
    assert grown.contents() == made.contents()
    assert [row[:4] for row in made.contents()["endings"]] == [("old", "DEC-001", "supersedes", "new/DEC-001")]
    grown.close()


def test_the_daemon_takes_in_what_ends_a_memory(memory: Memory, tmp_path: Path) -> None:
    old, new = memory.create_session(id="old"), memory.create_session(id="new")
    old.record_decision("Use MySQL", made_by="ada")
    new.record_decision("Use PostgreSQL", made_by="ada")
    with running(memory.root, log=tmp_path / "log"):
        related(new, "DEC-001", "old/DEC-001", "supersedes")

        def is_known() -> bool:
            found = old.by_type("decision")
            assert found[0].marks == ("superseded by new/DEC-001",)
            return found.source == "index"

        wait_until(is_known, "the daemon's own index says it")
