"""Anonymising: names become placeholders everywhere at once, structure stays; it can be undone or
made final."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from daemons import smp

from smp_client import Anonymization, Memory, MemoryNotFound, Session
from smp_client.change.holdings import holdings, names
from smp_client.index.sync import bring_up_to_date
from smp_client.privacy.anonymise import CANNOT_FIND

pytestmark = pytest.mark.usefixtures("short_grace")
NAMES = ["Anna Berg", "Zoë O'Neill"]
# None is in a word of SMP's own.
WORDS = ("Anna", "Berg", "Zoë", "Neill", "Apollo", "example.org", "/users/")


@pytest.fixture
def filled(memory: Memory) -> Session:
    session = memory.create_session(id="s1", user="Anna Berg", project="Apollo", agents=["vera"],
                                    topic="logins", tags=["Apollo"])  # fmt: skip
    said = "I am Anna Berg (anna.berg@example.org); see /Users/anna/apollo/README.md."
    session.add_turn("Anna", said, tags=["anna-berg"])
    said = "Thanks, Anna. Zoë O'Neill's annotation stays."
    session.add_turn("vera", said, memory_refs=["DEC-001"])
    rejected = [{"option": "LDAP", "rejected_because": "BERG said no"}]
    session.record_decision("Apollo uses OAuth", made_by="vera", agreed_by=["Anna Berg"],
                            tags=["security", "Apollo"],
                            alternatives_considered=rejected)  # fmt: skip
    session.record_finding("anna_berg can log in", discovered_by="Zoë", severity="critical",
                           turn_ref=1)  # fmt: skip
    session.record_preference("short mails to Zoë", topic="mail", confidence="explicit",
                              created_by="Anna")  # fmt: skip
    session.record_learning("Apollo-api is slow", learned_by="vera")
    session.relate("DEC-001", "FIND-001", "resolves")
    for user, notes in (("Anna Berg", [{"about": "Anna"}]), ("Zoë O'Neill", [])):
        session.save_agent_state("vera", {"current_context": {"user": user, "notes": notes}})
    session.save_artifact("report-1", "# For Anna\n\nApollo is fine.\n", author="Anna Berg")
    return session


@pytest.fixture
def compacted(filled: Session) -> Session:
    """With old turns, of which compaction has evicted most and told the rest in a summary."""
    for number in range(1, 21):
        said = f"Anna Berg decided to do number {number} of Apollo with Zoë. " + "And so on. " * 40
        filled.add_turn("Anna", said, timestamp=f"2026-01-{number:02d}T12:00:00Z")
    filled.compact(reduction_pct=80)
    assert len(filled.evicted()) > 5
    return filled


def holders(memory: Memory, words: tuple[str, ...] = WORDS) -> set[str]:
    """The top directories, beside `.smp`, in which one of these stands, packed or not."""
    found = [one for word in words for one in memory.privacy.find(word) if not one.problem]
    return {one.path.partition("/")[0] for one in found} - {".smp"}


def values(memory: Memory) -> dict[tuple[str, ...], Any]:
    """Every memory that is neither deleted nor an original, by where it is."""
    return {(name, one.place, one.file, one.id): one.value for name in names(memory)
            for one in holdings(memory, name)}  # fmt: skip


def shape(value: Any, key: str = "") -> Any:
    """Keys, types and lengths of lists, whatever the texts say, and the fields that must stay."""
    if isinstance(value, dict):
        return {key: shape(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return value if key in _FIXED else type(value).__name__


_FIXED = ("id", "timestamp", "turn", "turn_ref", "type", "severity", "confidence", "relationship")


def structure(memory: Memory) -> dict[tuple[str, ...], Any]:
    return {key: shape(value) for key, value in values(memory).items()}


def head(memory: Memory) -> str:
    return (memory.root / "active/s1/conversation.md").read_text().partition("\n---")[0]


def test_a_session_before_and_after(filled: Session, memory: Memory) -> None:
    """The metadata say who is who, so they have the first placeholders."""
    kept = structure(memory)
    report = filled.memory.privacy.anonymize(filled.id, names=["Zoë O'Neill"])
    assert (report.problems, report.notes) == ([], [])
    assert [turn.text for turn in filled.turns()] == [
        "I am User-1 (Email-1); see /path/1.", "Thanks, User-1. User-2's annotation stays.",
    ]  # fmt: skip
    first, decision = filled.get("turn-1"), filled.get("DEC-001").data
    assert (first.data["speaker"], first.tags) == ("User-1", ["User-1"])
    assert (decision["decision"], decision["agreed_by"]) == ("Project-A uses OAuth", ["User-1"])
    assert decision["tags"] == ["security", "Project-A"]
    rejected = {"option": "LDAP", "rejected_because": "User-1 said no"}
    assert decision["alternatives_considered"] == [rejected]
    finding = filled.get("FIND-001").data
    assert (finding["finding"], finding["discovered_by"]) == ("User-1 can log in", "User-2")
    assert filled.agent_state("vera")["current_context"] == {"user": "User-2", "notes": []}
    artifact = filled.artifact("report-1")
    assert artifact.text == "# For User-1\n\nProject-A is fine.\n"
    assert artifact.data["author"] == "User-1"
    metadata: dict[str, Any] = filled.metadata()
    assert metadata["participants"]["user_id"] == "User-1"
    assert metadata["participants"]["agents"][0]["agent_id"] == "vera"
    assert metadata["context"]["project_name"] == "Project-A"
    assert "**Participants:** User-1, vera\n" in head(memory) + "\n"
    assert report.agents == ["vera"]
    places = [one.count for one in report.replacements if one.kind == "user_names"]
    assert report.counts["user_names"] == sum(places)
    assert structure(memory) == kept


@pytest.mark.parametrize("place", ["active", "archived"])
def test_nothing_but_the_originals_holds_a_name_and_the_batch_undoes_it(
    compacted: Session, memory: Memory, place: str
) -> None:
    """In the files, the archive, evicted memories, the summary and the head of the conversation.

    Erased at once, it is nowhere: no byte is in the index, and no list says who was whom.
    """
    if place == "archived":
        memory.archive_session("s1")
    bring_up_to_date(memory)
    assert memory.search("Anna")
    before, kept = values(memory), structure(memory)
    report = memory.privacy.anonymize("s1", names=NAMES)
    assert (report.problems, report.notes) == ([], [])
    assert holders(memory) == {"deleted"}
    assert structure(memory) == kept
    assert not memory.search("Anna")
    memory.privacy.restore("s1", batch=report.batch)
    assert values(memory) == before
    assert not (memory.root / "deleted/s1").exists()
    if place == "active":
        assert "**Participants:** Anna Berg, vera" in head(memory)
    report = memory.privacy.anonymize("s1", names=NAMES, now=True)
    assert (report.problems, report.notes, report.batch) == ([], [], "")
    memory.close()
    assert holders(memory) == set()
    assert memory.privacy.deleted("s1") == []
    assert all(one.what is None for one in report.replacements)
    for file in memory.root.rglob("*"):
        assert not file.is_file() or b"anna berg" not in file.read_bytes().lower(), file


def test_a_dry_run_shows_the_replacements_and_changes_nothing(
    filled: Session, memory: Memory
) -> None:
    before = values(memory)
    report = filled.memory.privacy.anonymize(filled.id, names=NAMES, dry_run=True)
    assert {one.placeholder: one.what for one in report.replacements} == {
        "User-1": "Anna Berg", "Project-A": "Apollo", "User-2": "Zoë O'Neill",
        "Email-1": "anna.berg@example.org",
        "/path/1": "/Users/anna/apollo/README.md"}  # fmt: skip
    assert (values(memory), report.batch, memory.privacy.deleted("s1")) == (before, "", [])
    done = filled.memory.privacy.anonymize(filled.id, names=NAMES)
    counts = [[(one.placeholder, one.count) for one in of.replacements] for of in (report, done)]
    assert counts[0] == counts[1]
    before, again = values(memory), filled.memory.privacy.anonymize(filled.id, names=NAMES)
    assert (again.ids, again.replacements, again.batch) == ([], [], "")
    assert values(memory) == before


def test_evicted_memories_come_back_with_placeholders(compacted: Session) -> None:
    out = [one.id for one in compacted.evicted()]
    compacted.memory.privacy.anonymize(compacted.id, names=NAMES)
    assert [one.id for one in compacted.evicted()] == out
    assert compacted.memory.privacy.anonymize(compacted.id, names=NAMES).ids == []
    compacted.bring_back()
    turn = next(one for one in out if one.startswith("turn-"))
    assert compacted.get(turn).text.startswith("User-1 decided to do number ")


def test_only_some_memories(filled: Session, memory: Memory) -> None:
    """An agent's state goes with what it was before. An unknown id changes nothing."""
    before = values(memory)
    with pytest.raises(MemoryNotFound):
        filled.memory.privacy.anonymize(filled.id, ["DEC-001", "DEC-009"])
    assert values(memory) == before
    report = filled.memory.privacy.anonymize(filled.id, ["DEC-001", "vera"], names=NAMES)
    assert sorted(report.ids) == ["DEC-001", "STATE-001", "vera"]
    assert filled.get("DEC-001").text == "Project-A uses OAuth"
    assert filled.get("turn-2").text.startswith("Thanks, Anna.")
    filled.restore("DEC-001")
    assert filled.get("DEC-001").text == "Apollo uses OAuth"


def test_what_is_kept_by_choice_and_without_placeholders(filled: Session) -> None:
    """A name inside of what is kept is replaced all the same. A tag stays a tag."""
    config = Anonymization(file_paths=False, project_names=False)
    batch = filled.memory.privacy.anonymize(filled.id, config=config).batch
    assert filled.get("turn-1").text == "I am User-1 (Email-1); see /Users/User-1/apollo/README.md."
    filled.restore_batch(batch)
    filled.memory.privacy.anonymize(filled.id, names=NAMES, config=Anonymization(replace_with_placeholders=False))
    assert filled.get("turn-1").text == "I am [removed] ([removed]); see [removed]."
    assert filled.get("DEC-001").tags == ["security", "removed"]


def test_the_profile_says_who_the_user_is(filled: Session, memory: Memory) -> None:
    memory.everywhere.save_profile(name="Joan Quill", email="joan@example.org")
    memory.everywhere.record_preference("Joan wants tea", confidence="explicit")
    filled.add_turn("vera", "Quill asked for tea.")
    filled.memory.privacy.anonymize(filled.id, names=NAMES)
    assert filled.turns()[-1].text == "User-3 asked for tea."
    assert memory.privacy.anonymize("global").problems == []
    assert holders(memory, ("Joan", "Quill")) == {"deleted"}


def test_a_person_among_the_agents_must_be_named(filled: Session) -> None:
    """An agent keeps the name, and the report says so."""
    assert filled.memory.privacy.anonymize(filled.id, dry_run=True).agents == ["vera"]
    assert filled.memory.privacy.anonymize(filled.id, names=["vera"]).agents == []
    metadata: dict[str, Any] = filled.metadata()
    agent = metadata["participants"]["agents"][0]["agent_id"]
    assert filled.get("turn-2").data["speaker"] == agent != "vera"


def test_agents_that_are_no_list_are_no_agents(memory: Memory) -> None:
    session = memory.create_session(id="s2", agents=["vera"])
    session.change_metadata(lambda _: {"participants": {"agents": 5}})
    assert memory.privacy.anonymize("s2", dry_run=True).agents == []


def test_what_cannot_be_changed_is_reported(filled: Session, memory: Memory) -> None:
    """A comment, a record without an id, a drop that waits, a key."""
    active = memory.root / "active/s1"
    with (active / "decisions.yaml").open("a") as file:
        file.write("# Anna Berg: look at this again\n")
    with (active / "findings.yaml").open("a") as file:
        file.write("  - finding: Anna Berg wrote this by hand\n")
    (active / "inbox/drop.yaml").write_text("type: decision\ndecision: Anna Berg decides\n")
    filled.record_learning("a count", learned_by="vera", counts={"Anna Berg": 3})
    report = filled.memory.privacy.anonymize(filled.id, names=NAMES)
    (note,) = report.notes
    for place in ("decisions.yaml", "findings.yaml", "inbox/drop.yaml", "learnings.yaml"):
        assert f"active/s1/{place}" in note
    memory.create_session(id="s2").add_turn("user", "Nobody but Anna Berg knows.")
    (note,) = filled.memory.privacy.anonymize(filled.id, names=NAMES, now=True).notes
    assert "active/s2/conversation.md" in note


def test_an_export_holds_placeholders(filled: Session, memory: Memory, tmp_path: Path) -> None:
    """In memories, metadata and the reasons of deletions; the tree stays as it is."""
    filled.delete("LEARN-001", reason="Anna Berg asked for it")
    mask = memory.privacy.anonymous_export(["s1"], names=NAMES)
    options: Any = {"transform": mask, "deleted": True}
    memory.exchange.export(tmp_path / "public.jsonl", ["s1"], **options)
    text = (tmp_path / "public.jsonl").read_text()
    assert [word for word in WORDS if word in text] == []
    assert "User-1 asked for it" in text
    assert mask.problems == []
    assert filled.get("turn-2").text.startswith("Thanks, Anna.")


def test_a_name_is_found_in_any_case_also_as_an_author(filled: Session, memory: Memory) -> None:
    """In a sentence, an ordinary word is a name only with a capital; alone it always is."""
    made = filled.record_decision("aNNa and will will do it", made_by="berg", agreed_by=["will"])
    filled.update(made.id, by="anna", rationale="ZOË asked WILL")
    report = memory.privacy.anonymize("s1", names=[*NAMES, "Will Ray"])
    assert report.problems == []
    decision = filled.get(made.id).data
    assert decision["decision"] == "User-1 and will will do it"
    assert decision["made_by"] == "User-1"
    will = decision["agreed_by"][0]
    assert will not in ("will", "User-1")
    assert decision["rationale"].endswith(f" asked {will}")
    (revision,) = filled.history(made.id)
    assert revision.by == "User-1"


def test_all_sessions_have_one_placeholder_for_one_person(
    compacted: Session, memory: Memory
) -> None:
    """A name that one session knows is replaced in all; one batch undoes it."""
    for name in ("s2", "s3"):
        other = memory.create_session(id=name, user="Joan Quill")
        other.add_turn("vera", f"joan met Anna Berg in {name}.")
    memory.archive_session("s3")
    memory.everywhere.record_preference("zoë o'neill wants tea", confidence="explicit")
    before, kept = values(memory), structure(memory)
    words = (*WORDS, "Joan", "Quill")
    planned = memory.privacy.anonymize_everywhere(names=NAMES, dry_run=True, now=True)
    assert values(memory) == before
    report = memory.privacy.anonymize_everywhere(names=NAMES)
    assert (report.problems, report.notes) == ([], [])
    assert report.ids == planned.ids
    assert {action.session for action in report.actions} == {"global", "s1", "s2", "s3"}
    assert holders(memory, words) == {"deleted"}
    assert structure(memory) == kept
    said = {key[:2]: str(value) for key, value in values(memory).items() if key[3] == "turn-1"}
    called = {one.what: one.placeholder for one in planned.replacements}
    anna, joan = called["Anna Berg"], called["Joan Quill"]
    assert anna != joan
    for name, place in (("s2", "active"), ("s3", "archived")):
        assert f"{joan} met {anna} in {name}." in said[name, place]
    memory.privacy.restore_batch(report.batch)
    assert values(memory) == before
    report = memory.privacy.anonymize_everywhere(names=NAMES, now=True)
    assert (report.problems, report.notes, report.batch) == ([], [], "")
    assert holders(memory, words) == set()


# The command.


def test_the_command_takes_all(filled: Session, memory: Memory) -> None:
    memory.create_session(id="s2").add_turn("user", "Ask anna berg.")
    call = ("anonymize", "--root", memory.root, "--all", "--name", "Zoë O'Neill", "--json")
    said = json.loads(smp(*call).stdout)
    assert said["problems"] == []
    assert {action["session"] for action in said["actions"]} == {"s1", "s2"}
    assert memory.session("s2").turns()[0].text == "Ask User-1."
    assert holders(memory) == {"deleted"}
    wrong = smp("anonymize", "--root", memory.root, "s1", "--all")
    assert (wrong.returncode, "Give a session, or --all" in wrong.stderr) == (2, True)


def test_the_command_shows_and_does_it(filled: Session, memory: Memory) -> None:
    call = ("anonymize", "--root", memory.root, "s1", "--name", "Zoë O'Neill")
    shown = smp(*call, "--dry-run")
    assert shown.returncode == 0
    first = {line.split()[0] for line in shown.stdout.splitlines()[1:6]}
    assert first == {"User-1", "Project-A", "Email-1", "/path/1", "User-2"}
    assert "Anna Berg" in shown.stdout
    assert CANNOT_FIND[0] in shown.stderr
    done = smp(*call, "--project", "Apollo", "--json")
    said = json.loads(done.stdout)
    assert (said["problems"], said["counts"]["contacts"], "Anna" in done.stdout) == ([], 1, False)
    assert "0 memories changed" in smp("anonymize", "--root", memory.root, "s1").stdout
    erased = smp(*call, "--now", "--yes")
    assert (erased.returncode, "smp restore" in erased.stdout) == (0, False)
    assert holders(memory) == set()


def test_a_profile_that_cannot_be_read_is_named(memory: Memory) -> None:
    memory.everywhere.save_profile(name="Jane Doe")
    (memory.root / "global/user-profile.yaml").write_text("user_profile: [\n")
    session = memory.create_session(id="unread")
    session.add_turn("architect", "Hello")
    assert "profile cannot be read" in " ".join(session.memory.privacy.anonymize(session.id).problems)
