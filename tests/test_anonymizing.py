"""Anonymising: names become placeholders everywhere at once, structure stays, and it can be undone or made final."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from daemons import smp
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from smp_client.privacy.anonymity.anonymizing import CANNOT_FIND
from smp_client.privacy.anonymity.names import Names
from smp_client.privacy.anonymity.placeholders import KINDS, Placeholders

from smp_client import Anonymization, Conflict, Invalid, Memory, MemoryNotFound, Session, rewrite
from smp_client.audit import read as audit_of
from smp_client.files import Tree
from smp_client.maintain import erasure, traces
from smp_client.records import RELATIONSHIP
from smp_client.sync import bring_up_to_date
from smp_client.tidy import tidy

NAMES, PROJECTS = ["Anna Berg", "Zoë O'Neill"], ["Apollo"]
# As they are found in any file, in small letters; `apollo` and the others are in no word of SMP's own.
WORDS = ("anna", "berg", "zoë", "neill", "apollo", "example.org", "/users/")


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old versions need not be kept for a writer who is about to open them: here there is none."""
    monkeypatch.setattr(rewrite, "GRACE_S", -1.0)
    monkeypatch.setattr(erasure, "ABANDONED_S", -1.0)


def fill(memory: Memory) -> Session:
    session = memory.create_session(id="s1", user="Anna Berg", project="Apollo", agents=["vera"], topic="logins", tags=["apollo"])
    session.add_turn("Anna", "I am Anna Berg (anna.berg@example.org); see /Users/anna/apollo/README.md.", tags=["anna-berg"])
    session.add_turn("vera", "Thanks, Anna. Zoë O'Neill's annotation stays.", memory_refs=["DEC-001"])
    session.record_decision("Apollo uses OAuth", made_by="vera", agreed_by=["Anna Berg"], tags=["security", "apollo"],
                            alternatives_considered=[{"option": "LDAP", "rejected_because": "BERG said no"}])  # fmt: skip
    session.record_finding("anna_berg can log in", discovered_by="Zoë", severity="critical", turn_ref=1)
    session.record_preference("short mails to zoë", topic="mail", confidence="explicit", created_by="Anna")
    session.record_learning("apollo-api is slow", learned_by="vera")
    session.relate("DEC-001", "FIND-001", "resolves")
    session.save_agent_state("vera", {"current_context": {"user": "Anna Berg", "notes": [{"about": "Anna"}]}})
    session.save_agent_state("vera", {"current_context": {"user": "Zoë O'Neill", "notes": []}})
    session.save_artifact("report-1", "# For Anna\n\nApollo is fine.\n", author="Anna Berg")
    return session


@pytest.fixture
def filled(memory: Memory) -> Session:
    return fill(memory)


def files_of(memory: Memory, *places: str) -> dict[str, bytes]:
    """Every file that is not derived and not SMP's own."""
    paths = [path for place in places for path in sorted((memory.root / place).rglob("*")) if path.is_file()]
    return {str(path.relative_to(memory.root)): path.read_bytes() for path in paths
            if path.parent.name != "indexes" and path.name != "access.log"}  # fmt: skip


def holders(memory: Memory, words: tuple[str, ...] = WORDS) -> set[str]:
    """Every file below the root that holds one of these in any case, also packed."""
    found: set[str] = set()
    for path in memory.root.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            pieces = [content, *(traces.unpacked(content, 0) if content.startswith(traces.PACKED) else ())]
            text = "\n".join(piece.decode("utf-8", "replace").casefold() for piece in pieces)
            escaped = (json.dumps(word)[1:-1] for word in words)
            if any(word in text for word in (*words, *escaped)):
                found.add(str(path.relative_to(memory.root)))
    return found


def shape(value: Any) -> Any:
    """Keys, types and lengths of lists, whatever the texts say."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return [shape(item) for item in value] if isinstance(value, list) else type(value).__name__


_FIXED = ("id", "timestamp", "decay", "turn", "turn_ref", "memory_refs", "type", "severity", "confidence", "source", "target",
          "relationship")  # fmt: skip


def structure(session: Session) -> dict[str, Any]:
    """All that anonymising must leave."""
    found: dict[str, Any] = {}
    for kind in session.kinds:
        ends = kind.name == "relationship"
        found[kind.name] = [
            (shape(record.data), {name: record.data.get(name) for name in _FIXED if ends or name not in ("source", "target")})
            for record in session.records(kind.name)
        ]
    found["states"] = {agent: (shape(session.agent_state(agent)), len(session.agent_state_history(agent)))
                       for agent in session.agent_states()}  # fmt: skip
    found["artifacts"] = {name: shape(session.artifact(name).data) for name in session.artifacts()}
    metadata = session.metadata()
    return {**found, "metadata": shape(metadata), "times": [metadata.get(name) for name in ("id", "created_at", "status")]}


# Names.


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Anna Berg, anna berg and ANNA BERG", "User-1, User-1 and User-1"),
        ("Anna's and Berg's, Anna’s", "User-1's and User-1's, User-1’s"),
        ("anna_berg anna-berg anna.berg annaBerg AnnaBerg", "User-1 User-1 User-1 User-1 User-1"),
        ("Berg, Anna", "User-1"),
        ("test_anna_login for /anna/", "test_User-1_login for /User-1/"),
        ("Annabel, Annotation, Bergen, Susanna, anna1", "Annabel, Annotation, Bergen, Susanna, anna1"),
        ("Zoë, ZOË, zoe\u0308 but not Zoe or zoe\u0301", "User-1, User-1, User-1 but not Zoe or zoe\u0301"),
        ("O’Neill and o'neill", "User-1 and User-1"),
        ("王伟说你好", "User-1说你好"),
        ("Will asks: will you? WILL.", "User-1 asks: will you? User-1."),
        ("Li lives; li is short", "User-1 lives; li is short"),
        ("the Red Fox project, red-fox, red_fox; a red hen", "the Project-A project, Project-A, Project-A; a red hen"),
        ("user-123, USER_123, not user-1234", "User-1, User-1, not user-1234"),
        ("anna.berg@example.org and Anna.Berg@Example.org", "Email-1 and Email-1"),
        ("a@b.org, then c@d.org, then a@b.org", "Email-1, then Email-2, then Email-1"),
    ],
)  # fmt: skip
def test_names_are_found_as_words_in_any_spelling(text: str, wanted: str) -> None:
    """And never in the middle of another word."""
    names = Names(["Anna Berg", "Zoë O'Neill", "王伟", "Will Ray", "Li Wu", "user-123"], ["Red Fox"])
    assert Placeholders(names).text(text) == wanted


def test_one_name_is_one_placeholder_in_the_order_in_which_they_occur() -> None:
    placeholders = Placeholders(Names(["Ada Lov", "Bo Dal"], [f"Prj{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(30)]))
    assert placeholders.text("Dal, Lov, Bo, Ada") == "User-1, User-2, User-1, User-2"
    said = placeholders.text(" ".join(f"Prj{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(28)))
    assert said.split()[:2] + said.split()[-3:] == ["Project-A", "Project-B", "Project-Z", "Project-AA", "Project-AB"]


def test_who_is_called_by_a_first_name_is_the_one_who_has_it() -> None:
    """`Anna`, who spoke, is the `Anna Berg` of the metadata."""
    placeholders = Placeholders(Names(["Anna", "Anna Berg"]))
    assert placeholders.text("Anna Berg is Anna") == "User-1 is User-1"


def test_a_placeholder_that_stands_there_is_given_to_nobody_else() -> None:
    placeholders = Placeholders(Names(["Bo Dal"]))
    placeholders.avoid("User-1 met User-2说 at /path/1")
    assert placeholders.text("Bo met User-1 at /path/1") == "User-3 met User-1 at /path/1"


_PIECES = st.sampled_from([
    "Anna Berg", "anna", "berg_", "Zoë", "apollo", "Apollo-", "anna.berg@example.org", "+49 170 1234567", "10.11.12.13", "User-1",
    "Email-1", "/path/1", "/Users/anna/x.py", "~/apollo", "password: hunter2xyz9", "token=Secret-1", "AKIAIOSFODNN7ABCDEFG",
    "4111 1111 1111 1111", "DE89370400440532013000", "2026-01-11T14:30:00Z", "DEC-001", "annotation", "\n", "'s", "[removed]",
    "https://example.org/anna?x=1", "ß", "`",
])  # fmt: skip


@given(st.lists(st.tuples(_PIECES, st.sampled_from([" ", "", ", ", "\n", "/", "."])), max_size=12), st.booleans())
@settings(max_examples=150)
def test_what_was_anonymised_is_not_anonymised_again(pieces: list[tuple[str, str]], with_placeholders: bool) -> None:
    """A second run over its own result changes nothing, and no known name is left."""
    text = "".join(part for piece in pieces for part in piece)
    names, config = Names(NAMES, PROJECTS), Anonymization(replace_with_placeholders=with_placeholders)
    first = Placeholders(names, config)
    first.avoid(text)
    once = first.text(text)
    again = Placeholders(names, config)
    again.avoid(once)
    assert again.text(once) == once
    assert not names.find(once)


# A session.


def test_a_session_before_and_after(filled: Session, memory: Memory) -> None:
    """The metadata tell who is who, so they have the first placeholders."""
    report = filled.anonymize(names=["Zoë O'Neill"])
    assert report.problems == []
    assert [turn.text for turn in filled.turns()] == [
        "I am User-1 (Email-1); see /path/1.", "Thanks, User-1. User-2's annotation stays."]  # fmt: skip
    first, decision, finding = filled.get("turn-1"), filled.get("DEC-001").data, filled.get("FIND-001").data
    assert (first.data["speaker"], first.tags) == ("User-1", ["User-1"])
    assert (decision["decision"], decision["agreed_by"]) == ("Project-A uses OAuth", ["User-1"])
    assert decision["tags"] == ["security", "Project-A"]
    assert decision["alternatives_considered"] == [{"option": "LDAP", "rejected_because": "User-1 said no"}]
    assert (finding["finding"], finding["discovered_by"]) == ("User-1 can log in", "User-2")
    assert filled.agent_state("vera")["current_context"] == {"user": "User-2", "notes": []}
    artifact = filled.artifact("report-1")
    assert (artifact.text, artifact.data["author"]) == ("# For User-1\n\nProject-A is fine.\n", "User-1")
    metadata: dict[str, Any] = filled.metadata()
    assert (metadata["participants"]["user_id"], metadata["context"]["project_name"]) == ("User-1", "Project-A")
    assert metadata["participants"]["agents"][0]["agent_id"] == "vera"
    head = (memory.root / "active/s1/conversation.md").read_text().partition("\n---")[0]
    assert "**Participants:** User-1, vera\n" in head
    assert report.agents == ["vera"]
    assert report.counts["user_names"] == sum(one.count for one in report.replacements if one.placeholder.startswith("User-"))


def test_nothing_but_what_was_deleted_holds_a_name(filled: Session, memory: Memory) -> None:
    """Index, YAML indexes, old versions and the log included; and the batch gives every byte back."""
    bring_up_to_date(memory)
    assert filled.search("anna")
    before = files_of(memory, "active")
    kept = structure(filled)
    report = filled.anonymize(names=NAMES)
    assert holders(memory) == {"deleted/s1/backup.tar.gz"}
    assert structure(filled) == kept
    assert not filled.search("anna")
    assert [record.id for record in filled.search("User-1 OAuth", types=["decision"])] == ["DEC-001"]
    filled.restore_batch(report.batch)
    assert files_of(memory, "active") == before
    assert not (memory.root / "deleted/s1").exists()


def test_erased_at_once_it_is_nowhere(filled: Session, memory: Memory) -> None:
    """The map from placeholders to names included."""
    bring_up_to_date(memory)
    report = filled.anonymize(names=NAMES, now=True)
    assert report.problems == []
    assert report.erased
    assert not report.batch
    memory.close()
    assert holders(memory) == set()
    assert filled.deleted() == []
    assert all(one.what is None for one in report.replacements)


def test_a_dry_run_shows_the_replacements_and_changes_nothing(filled: Session, memory: Memory) -> None:
    before = files_of(memory, "active", "deleted", "archived")
    report = filled.anonymize(names=NAMES, dry_run=True)
    shown = {one.placeholder: one.what for one in report.replacements}
    assert shown == {"User-1": "Anna Berg", "Project-A": "Apollo", "User-2": "Zoë O'Neill", "Email-1": "anna.berg@example.org",
                     "/path/1": "/Users/anna/apollo/README.md"}  # fmt: skip
    assert report.cannot_find == CANNOT_FIND
    assert files_of(memory, "active", "deleted", "archived") == before
    assert not report.batch
    done = filled.anonymize(names=NAMES)
    counts = [[(one.placeholder, one.count) for one in of.replacements] for of in (report, done)]
    assert counts[0] == counts[1]


def test_what_was_anonymised_is_listed_in_words(memory: Memory) -> None:
    """Of metadata, what a person has said there; not the times and sizes that SMP keeps."""
    session = memory.create_session(id="talk", user="jane.roe", project="Shop", topic="login", tags=["money"])
    session.save_agent_state("ada", {"next_steps": ["ask jane.roe"]})
    session.anonymize(names=["jane.roe"])
    listed = json.loads(smp("restore", "--list", "--json", "--root", memory.root).stdout)["restorable"]
    texts = {one["id"]: one["text"] for one in listed if one["session"] == "talk"}
    assert texts["metadata"] == "user id: jane.roe; project name: Shop; primary topic: login; tags: money"
    assert texts["ada"] == "next steps: ask jane.roe"


def test_a_second_run_changes_nothing(filled: Session, memory: Memory) -> None:
    filled.anonymize(names=NAMES)
    before = files_of(memory, "active", "deleted")
    again = filled.anonymize(names=NAMES)
    assert (again.memories, again.replacements, again.batch) == ([], [], "")
    assert files_of(memory, "active", "deleted") == before


def test_who_comes_later_gets_another_placeholder(filled: Session) -> None:
    """Which one stood for whom is known to nobody any more."""
    filled.anonymize(names=NAMES)
    filled.add_turn("user", "Bob Hale asks Anna for the Apollo report.")
    filled.anonymize(names=["Bob Hale", "Anna Berg"], projects=["Apollo"])
    assert filled.turns()[-1].text == "User-3 asks User-4 for the Project-B report."


@pytest.fixture
def compacted(filled: Session) -> Session:
    """With old turns, of which compaction has taken most out and told the rest in a summary."""
    for number in range(1, 21):
        said = f"Anna Berg decided to do number {number} of Apollo with Zoë. " + "And so on. " * 40
        filled.add_turn("Anna", said, timestamp=f"2026-01-{number:02d}T12:00:00Z")
    filled.compact(reduction_pct=80)
    assert len(filled.evicted()) > 5
    return filled


def members(files: dict[str, bytes]) -> dict[str, Any]:
    """What is packed, by its bytes: when it was packed does not count."""
    return {name: [*traces.unpacked(content, 0)] if name.endswith(".gz") else content for name, content in files.items()
            if not name.endswith("summary.yaml")}  # fmt: skip


def test_what_compaction_took_out_gets_the_same_placeholders(compacted: Session, memory: Memory) -> None:
    before, kept = files_of(memory, "active", "archived"), structure(compacted)
    out = [one.id for one in compacted.evicted()]
    report = compacted.anonymize(names=NAMES)
    assert report.problems == []
    assert holders(memory) == {"deleted/s1/backup.tar.gz"}
    assert structure(compacted) == kept
    assert [one.id for one in compacted.evicted()] == out
    memory.restore("s1", batch=report.batch)
    assert members(files_of(memory, "active", "archived")) == members(before)
    compacted.anonymize(names=NAMES)
    turn = next(one for one in out if one.startswith("turn-"))
    compacted.bring_back([turn])
    assert compacted.get(turn).text.startswith("User-1 decided to do number ")


def test_a_session_in_the_archive_is_anonymised_there(compacted: Session, memory: Memory) -> None:
    """Its summary, which stays in sight, included."""
    kept = structure(compacted)
    memory.archive_session("s1")
    before = files_of(memory, "archived")
    report = memory.anonymize("s1", names=NAMES)
    assert report.problems == []
    assert holders(memory) == {"deleted/s1/backup.tar.gz"}
    assert "user: User-1" in (memory.root / "archived/s1/summary.yaml").read_text()
    memory.restore("s1", batch=report.batch)
    assert members(files_of(memory, "archived")) == members(before)
    assert memory.anonymize("s1", names=NAMES, now=True).problems == []
    assert holders(memory) == set()
    assert {**structure(memory.restore_session("s1")), "metadata": None} == {**kept, "metadata": None}  # which say where it was


def test_only_some_memories(filled: Session, memory: Memory) -> None:
    """An agent's state with what it was before; and one that there is not changes nothing."""
    before = files_of(memory, "active")
    with pytest.raises(MemoryNotFound):
        filled.anonymize(["DEC-001", "DEC-009"])
    assert files_of(memory, "active") == before
    report = filled.anonymize(["DEC-001", "vera"], names=NAMES)
    assert [one.id for one in report.memories] == ["DEC-001", "vera", "STATE-001"]
    assert filled.get("DEC-001").text == "Project-A uses OAuth"
    assert filled.get("turn-2").text.startswith("Thanks, Anna.")
    filled.restore("DEC-001")
    assert filled.get("DEC-001").text == "Apollo uses OAuth"


def test_what_is_kept_by_choice(filled: Session) -> None:
    """Names inside of what is kept are replaced all the same."""
    filled.anonymize(config=Anonymization.keeping(["file_paths", "project_names"]))
    assert filled.get("turn-1").text == "I am User-1 (Email-1); see /Users/User-1/apollo/README.md."
    with pytest.raises(Invalid, match="user_names"):
        Anonymization.keeping(["everything"])


def test_without_placeholders(filled: Session) -> None:
    """A tag stays a tag."""
    filled.anonymize(names=NAMES, config=Anonymization(replace_with_placeholders=False))
    assert filled.get("turn-1").text == "I am [removed] ([removed]); see [removed]."
    assert filled.get("DEC-001").tags == ["security", "removed"]


def test_the_profile_tells_who_the_user_is(filled: Session, memory: Memory) -> None:
    memory.everywhere.save_profile(name="Joan Quill", email="joan@example.org")
    memory.everywhere.record_preference("Joan wants tea", confidence="explicit")
    filled.add_turn("vera", "Quill asked for tea.")
    filled.anonymize(names=NAMES)
    assert filled.turns()[-1].text == "User-3 asked for tea."
    assert memory.anonymize("global").problems == []
    assert holders(memory, ("joan", "quill")) == {"deleted/s1/backup.tar.gz", "deleted/global/backup.tar.gz"}


def test_a_person_among_the_agents_must_be_named(filled: Session) -> None:
    """Whoever is said to be an agent keeps the name, and the report says who does."""
    assert filled.anonymize(dry_run=True).agents == ["vera"]
    report = filled.anonymize(names=["Vera"])
    assert report.agents == []
    metadata: dict[str, Any] = filled.metadata()
    assert filled.get("turn-2").data["speaker"] == metadata["participants"]["agents"][0]["agent_id"] != "vera"
    assert any("agent-states/vera.yaml" in problem for problem in report.problems)


def test_what_cannot_be_changed_is_told(filled: Session, memory: Memory) -> None:
    """A comment between records, a record without an id, a drop that waits, bytes that cannot be read, a key, an id."""
    active = memory.root / "active/s1"
    with (active / "decisions.yaml").open("a") as file:
        file.write("# Anna: look at this again\n")
    with (active / "findings.yaml").open("a") as file:
        file.write("  - finding: Anna wrote this by hand\n")
    (active / "inbox").mkdir(exist_ok=True)
    (active / "inbox/drop.yaml").write_text("type: decision\ndecision: Anna decides\n")
    (active / "artifacts/raw.md").write_bytes(b"\xff\xfe Anna")
    filled.record_learning("a count", learned_by="vera", counts={"Anna": 3})
    report = filled.anonymize(names=NAMES)
    said = "\n".join(report.problems)
    for place in ("decisions.yaml, line", "findings.yaml", "inbox/drop.yaml", "artifacts/raw.md", "learnings.yaml"):
        assert place in said, place
    assert "has no id" in said
    other = memory.create_session(id="anna-1", user="Anna Berg")
    other.add_turn("user", "Berg was here")
    assert any("id of the session anna-1" in problem for problem in other.anonymize().problems)


def test_comments_and_foreign_keys_of_whole_files_are_changed(filled: Session, memory: Memory) -> None:
    path = memory.root / "active/s1/metadata.yaml"
    path.write_text("# Anna's session\n" + path.read_text())
    head = memory.root / "active/s1/decisions.yaml"
    head.write_text("# Anna keeps these\n" + head.read_text())
    before = files_of(memory, "active")
    report = filled.anonymize(names=NAMES)
    assert report.problems == []
    assert path.read_text().startswith("# User-1's session\n")
    assert head.read_text().startswith("# User-1 keeps these\n")
    filled.delete("DEC-001", reason="r")  # which notes the highest number in the head
    filled.restore("DEC-001")
    filled.restore_batch(report.batch)
    after = files_of(memory, "active")
    assert after.pop("active/s1/decisions.yaml").replace(b"last_id: 1\n", b"") == before.pop("active/s1/decisions.yaml")
    assert after == before


# In spite of others, and of crashes.


def in_a_process(do: Callable[[], None]) -> int:
    """Gives back its pid."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            do()
            status = 0
        finally:
            os._exit(status)
    return pid


def test_beside_somebody_who_writes_nothing_is_lost(filled: Session, memory: Memory) -> None:
    """Each run changes all that was there, or says that somebody was faster; what is written meanwhile stays."""
    count = 60

    def write() -> None:
        session = Memory(memory.root).session("s1")
        for number in range(count):
            session.add_turn("vera", f"Anna asked for number {number}.")
            if number % 10 == 0:
                session.update("DEC-001", confidence="high" if number % 20 else "low")

    pid = in_a_process(write)
    status = None
    while status is None:
        with suppress(Conflict):
            filled.anonymize(names=NAMES)
        ended, code = os.waitpid(pid, os.WNOHANG)
        status = code if ended else None
    assert status == 0
    filled.anonymize(names=NAMES)
    texts = [turn.text for turn in filled.turns()][2:]
    assert len(texts) == count
    assert all(text.startswith("User-") and text.endswith(f" asked for number {number}.") for number, text in enumerate(texts))
    assert holders(memory) == {"deleted/s1/backup.tar.gz"}


_STEPS = ("rename", "exchange", "unlink", "replace", "create")


def counting(end_at: int, seen: list[str]) -> None:
    """Has every step that changes a name counted, and this process killed before one of them."""
    for name in _STEPS:
        sound = getattr(Tree, name)

        def step(tree: Tree, *arguments: Any, _name: str = name, _sound: Any = sound) -> Any:
            seen.append(_name)
            if len(seen) == end_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return _sound(tree, *arguments)

        setattr(Tree, name, step)


def killed(root: Path, end_at: int) -> int:
    """The signal that ended it."""

    def run() -> None:
        counting(end_at, [])
        Memory(root).anonymize("s1", names=NAMES)

    return os.WTERMSIG(os.waitpid(in_a_process(run), 0)[1])


def steps_of(root: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    seen: list[str] = []
    with monkeypatch.context() as patched:
        for name in _STEPS:
            patched.setattr(Tree, name, getattr(Tree, name))  # so that it is put back
        counting(0, seen)
        Memory(root).anonymize("s1", names=NAMES)
    return len(seen)


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (8, 1, 9, 2, 10, 3, 11))])
def test_killed_anywhere_it_was_done_or_not(
    compacted: Session, memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    """Killed before a step: what is there is as it was, or all of it is anonymised and the batch gives it back. Another run ends
    where it would have ended. (Where `settle` leaves an anonymisation as it is, one that was killed before the copies of
    compaction were changed fails here.)"""
    before = members(files_of(memory, "active", "archived"))
    shutil.copytree(memory.root, tmp_path / "whole")
    total = steps_of(tmp_path / "whole", monkeypatch)
    outcomes: set[bool] = set()
    for end_at in range(1 + part, total + 1, 16):
        root = tmp_path / f"killed-{end_at}"
        shutil.copytree(memory.root, root)
        assert killed(root, end_at) == signal.SIGKILL
        later = Memory(root)
        tidy(later)
        is_done = not any(name.startswith(("active/", "archived/")) for name in holders(later))
        outcomes.add(is_done)
        if is_done:
            batch = later.deleted("s1")[0].batch
            assert later.anonymize("s1", names=NAMES).memories == []
            later.restore("s1", batch=batch)
        assert members(files_of(later, "active", "archived")) == before, end_at
        later.anonymize("s1", names=NAMES)
        assert holders(later) == {"deleted/s1/backup.tar.gz"}
        shutil.rmtree(root)
    assert outcomes


# On the way out.


@pytest.mark.parametrize("ending", ["yaml", "jsonl", "md"])
def test_an_export_without_names_is_imported_with_the_same_structure(
    compacted: Session, memory: Memory, tmp_path: Path, ending: str
) -> None:
    memory.everywhere.save_profile(name="Joan Quill")
    other = memory.create_session(id="s2", user="Anna Berg")
    other.add_turn("user", "Anna again, and Joan.")
    memory.archive_session("s2")
    changing = memory.anonymous_export(names=NAMES)
    target = tmp_path / f"export.{ending}"
    done = memory.export(target, transform=changing)
    assert done.problems == changing.problems == []
    text = target.read_text().casefold()
    assert not [word for word in (*WORDS, "joan", "quill") if word in text]
    assert audit_of(memory.tree)[-1]["anonymized"] is True
    fresh = Memory(tmp_path / "fresh")
    fresh.import_(target)
    evicted = {one.id for one in compacted.evicted() if one.type == "turn"}
    turns = [turn.data["turn"] for turn in fresh.session("s1").turns()]
    assert evicted <= {f"turn-{number}" for number in turns}
    assert turns == sorted(turns)
    assert fresh.verify_import(target).success
    assert fresh.session("s2").turns()[0].text == "User-2 again, and User-1."
    assert holders(fresh, (*WORDS, "joan", "quill")) == set()


# The command.


def test_the_command_shows_and_does_it(filled: Session, memory: Memory, tmp_path: Path) -> None:
    listed = tmp_path / "names.txt"
    listed.write_text("# staff\nZoë O'Neill\n\n")
    shown = smp("anonymize", "--root", memory.root, "s1", "--names-file", listed, "--dry-run")
    assert shown.returncode == 0
    assert [line.split()[0] for line in shown.stdout.splitlines()[1:6]] == ["User-1", "Project-A", "Email-1", "/path/1", "User-2"]
    assert "Anna Berg" in shown.stdout
    assert CANNOT_FIND[0] in shown.stderr
    done = smp("anonymise", "--root", memory.root, "s1", "--names-file", listed, "--project", "Apollo", "--json")
    said = json.loads(done.stdout)
    assert said["problems"] == []
    assert said["counts"]["contacts"] == 1
    assert "Anna" not in done.stdout
    back = smp("restore", "--root", memory.root, "--batch", said["batch"])
    assert back.returncode == 0, back.stderr
    assert filled.get("turn-2").text.startswith("Thanks, Anna.")
    erased = smp("anonymize", "--root", memory.root, "s1", "--names-file", listed, "--now", "--yes")
    assert erased.returncode == 0, erased.stderr
    assert "smp restore" not in erased.stdout
    assert holders(memory) == set()


@pytest.mark.parametrize("arguments", [("--keep", "everything"), ("--name", "x"), ("--id", "DEC-009")])
def test_the_command_says_what_is_wrong(filled: Session, memory: Memory, arguments: tuple[str, ...]) -> None:
    done = smp("anonymize", "--root", memory.root, "s1", *arguments)
    assert done.returncode
    assert done.stderr.startswith("smp: ")
    assert filled.get("turn-2").text.startswith("Thanks, Anna.")


def test_an_export_by_the_command(filled: Session, memory: Memory, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    done = smp("export", "--root", memory.root, "s1", "-o", target, "--anonymize", "--name", "Zoë O'Neill", "--json")
    assert json.loads(done.stdout)["replaced"]["user_names"] > 5
    assert not [word for word in WORDS if word in target.read_text().casefold()]
    assert smp("export", "--root", memory.root, "s1", "--name", "Zoë").returncode == 2


def test_the_help_names_every_kind(memory: Memory) -> None:
    said = " ".join(smp("anonymize", "--help").stdout.split())
    assert all(kind in said for kind in KINDS)


# Whatever a session says.

_TEXTS = st.lists(st.one_of(_PIECES, st.text(max_size=8)), max_size=5).map(" ".join).filter(str.strip)
_VALUES = st.recursive(
    st.one_of(_TEXTS, st.integers(-9, 9), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)),
    max_leaves=6,
)
_TAGS = st.lists(st.sampled_from(["anna", "apollo-api", "berg.x", "security"]), max_size=2, unique=True)


_SAID = st.tuples(st.sampled_from(["turn", "decision", "finding", "preference", "state", "artifact"]), _TEXTS, _VALUES, _TAGS)


_PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


@given(st.lists(_SAID, min_size=1, max_size=6), st.booleans())
@settings(max_examples=5, deadline=None, phases=_PHASES)
def test_structure_stays_and_names_go(
    tmp_path_factory: pytest.TempPathFactory, said: list[tuple[str, str, Any, list[str]]], now: bool
) -> None:
    """Ids, counts, relationships, times, types and shapes are the same; no known name is left but in `deleted/`, and restored all
    is as it was, byte for byte."""
    only_names_go(tmp_path_factory.mktemp("tree") / "sessions", said, now=now)


@pytest.mark.slow
@given(st.lists(_SAID, min_size=1, max_size=6), st.booleans())
@settings(max_examples=30, deadline=None, phases=_PHASES)
def test_structure_stays_and_names_go_of_much_else(
    tmp_path_factory: pytest.TempPathFactory, said: list[tuple[str, str, Any, list[str]]], now: bool
) -> None:
    only_names_go(tmp_path_factory.mktemp("tree") / "sessions", said, now=now)


def only_names_go(root: Path, said: list[tuple[str, str, Any, list[str]]], *, now: bool) -> None:
    memory = Memory(root)
    session = memory.create_session(id="s1", user="Anna Berg", project="Apollo", agents=["vera"])
    for number, (kind, text, value, tags) in enumerate(said):
        write(session, kind, number, text, value, tags)
    session.record_decision("first", made_by="vera")
    session.record(RELATIONSHIP, {"source": "DEC-001", "target": "turn-1", "relationship": "led_to"})
    bring_up_to_date(memory)
    before, kept = files_of(memory, "active"), structure(session)
    report = session.anonymize(names=NAMES, projects=PROJECTS, now=now)
    assert structure(session) == kept
    words = ("anna", "berg", "zoë", "apollo", "anna.berg@example.org")
    left = {name for name in holders(memory, words) if "annotation" not in name}
    assert left <= (set() if now else {"deleted/s1/backup.tar.gz"}), report.problems
    assert session.anonymize(names=NAMES, projects=PROJECTS).memories == []
    if report.batch:
        session.restore_batch(report.batch)
        assert files_of(memory, "active") == before
    memory.close()


def write(session: Session, kind: str, number: int, text: str, value: Any, tags: list[str]) -> None:
    further = {"detail": value, "tags": tags}
    if kind == "turn":
        session.add_turn("Anna" if number % 2 else "vera", text, **further)
    elif kind == "decision":
        session.record_decision(text, made_by="vera", **further)
    elif kind == "finding":
        session.record_finding(text, discovered_by="Zoë", severity="low", **further)
    elif kind == "preference":
        session.record_preference(text, confidence="inferred", **further)
    elif kind == "state":
        session.save_agent_state("vera", {"current_context": {"text": text, "value": value}})
    else:
        session.save_artifact(f"a-{number}", text, **further)
