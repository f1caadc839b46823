"""Every place where a text stands: found whatever door it came in by and wherever it went, each once, on the line where it is."""

from __future__ import annotations

import functools
import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from smp_client.privacy.seeking import everywhere, unpacking
from smp_client.privacy.seeking.everywhere import Occurrence
from smp_client.privacy.seeking.needle import Needle

from smp_client import InvalidQuery, Memory, Session
from smp_client.index import Index
from smp_client.journal import record as record_intent
from smp_client.passes.compaction import compact
from smp_client.quarantine import set_aside
from smp_client.records import RELATIONSHIP
from smp_client.status import INDEX_FILE
from smp_client.yaml_indexes import write as write_indexes

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=60)
NEEDLE = "Zoë Quibble"
SAID = "we met zoë quibble there"


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "sessions", clock=lambda: NOW, count_access=False)


def about(memory: Memory, text: str = NEEDLE, session: str | None = None) -> list[Occurrence]:
    return list(memory.all_about(text, session))


def content_at(memory: Memory, one: Occurrence) -> bytes:
    """The file, or what is packed in it, by a way of its own."""
    content = (memory.root / one.path).read_bytes()
    inner = one.member
    while inner:
        packed = gzip.decompress(content)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            names = [name for name in archive.getnames() if inner == name or inner.startswith(f"{name}/")]
            opened = archive.extractfile(max(names, key=len))
            assert opened is not None
            content, inner = opened.read(), inner[len(max(names, key=len)) + 1 :]
    return content


def assert_on_its_line(memory: Memory, one: Occurrence) -> None:
    lines = content_at(memory, one).decode().split("\n")
    assert next(Needle(NEEDLE).find(lines[one.line - 1]), None) is not None, one
    assert one.excerpt[one.start : one.end].casefold() == NEEDLE.casefold()


# The doors: each puts the needle into one place, and says which: session, place, file, id, field.

Expected = tuple[str, str, str, str, str]
Door = Callable[[Memory, Session], Expected]


def a_turn(_: Memory, session: Session) -> Expected:
    return "s1", "active", "conversation.md", session.add_turn("user", f"one\n\n{SAID}\nthree").id, "content"


def a_decision(_: Memory, session: Session) -> Expected:
    session.record_decision("another one", made_by="vera")
    made = session.record_decision("x", made_by="vera", alternatives_considered=[{"option": SAID, "rejected_because": "y"}])
    return "s1", "active", "decisions.yaml", made.id, "alternatives_considered[0].option"


def a_finding(_: Memory, session: Session) -> Expected:
    made = session.record_finding("several\nlines: and\n" + SAID, discovered_by="vera", severity="low")
    return "s1", "active", "findings.yaml", made.id, "finding"


def a_preference(_: Memory, session: Session) -> Expected:
    return "s1", "active", "preferences.yaml", session.record_preference("x", context=SAID).id, "context"


def a_learning(_: Memory, session: Session) -> Expected:
    return "s1", "active", "learnings.yaml", session.record_learning(SAID, learned_by="vera").id, "learning"


def a_relationship(_: Memory, session: Session) -> Expected:
    fields = {"source": "DEC-007", "target": "FIND-007", "relationship": SAID}
    return "s1", "active", "relationships.yaml", session.record(RELATIONSHIP, fields).id, "relationship"


def a_state(_: Memory, session: Session) -> Expected:
    session.save_agent_state("vera", {"current_context": {"who": [SAID]}})
    return "s1", "active", "agent-states/vera.yaml", "vera", "agent_state.current_context.who[0]"


def a_key_in_a_state(_: Memory, session: Session) -> Expected:
    session.save_agent_state("kim", {"current_context": {NEEDLE: 1}})
    return "s1", "active", "agent-states/kim.yaml", "kim", f"agent_state.current_context.{NEEDLE}"


def an_earlier_state(_: Memory, session: Session) -> Expected:
    session.save_agent_state("olga", {"current_context": SAID})
    session.save_agent_state("olga", {"current_context": "x"})
    shutil.rmtree(session.scope.tree.root / ".smp/retired")
    return "s1", "active", "agent-states/history/olga.yaml", "STATE-001", "state.current_context"


def an_artifact(_: Memory, session: Session) -> Expected:
    session.save_artifact("report-1", f"# Report\n\n{SAID}\n")
    return "s1", "active", "artifacts/report-1.md", "report-1", "content"


def the_metadata(_: Memory, session: Session) -> Expected:
    path = session.scope.tree.root / "active/s1/metadata.yaml"
    path.write_text(path.read_text() + f"  remark: {SAID}\n")
    return "s1", "active", "metadata.yaml", "metadata", "session.remark"


def a_pattern(memory: Memory, _: Session) -> Expected:
    return "global", "global", "learned-patterns.yaml", memory.everywhere.record_pattern(SAID).id, "pattern"


def a_global_preference(memory: Memory, _: Session) -> Expected:
    made = memory.everywhere.record_preference(SAID)
    return "global", "global", "cross-session-preferences.yaml", made.id, "preference"


def the_profile(memory: Memory, _: Session) -> Expected:
    memory.everywhere.save_profile(name=SAID)
    return "global", "global", "user-profile.yaml", "user-profile", "user_profile.name"


def a_deleted_memory(_: Memory, session: Session) -> Expected:
    made = session.record_decision(SAID, made_by="dora")
    session.delete(made.id, reason="privacy")
    return "s1", "deleted", f"decisions.yaml/{made.id}", made.id, "decision"


def a_deleted_artifact(_: Memory, session: Session) -> Expected:
    session.save_artifact("gone-1", SAID)
    session.delete("gone-1", reason="privacy")
    return "s1", "deleted", "artifacts/gone-1.md/gone-1", "gone-1", "content"


def an_archived_session(memory: Memory, _: Session) -> Expected:
    made = memory.create_session(id="old").record_finding("x", discovered_by="a", severity="low", impact=SAID)
    memory.archive_session("old")
    shutil.rmtree(memory.root / ".smp/leaving")
    return "old", "archived", "findings.yaml", made.id, "impact"


def a_session_deleted_whole(memory: Memory, _: Session) -> Expected:
    made = memory.create_session(id="unwanted").add_turn("user", SAID)
    memory.delete_session("unwanted", reason="privacy")
    shutil.rmtree(memory.root / ".smp/leaving")
    return "unwanted", "deleted", "session/conversation.md", made.id, "content"


def an_archived_session_deleted_whole(memory: Memory, _: Session) -> Expected:
    made = memory.create_session(id="older").record_decision("x", made_by="a", rationale=SAID)
    memory.archive_session("older")
    memory.delete_session("older", reason="privacy")
    shutil.rmtree(memory.root / ".smp/leaving")
    return "older", "deleted", "archived/archive.tar.gz/decisions.yaml", made.id, "rationale"


def what_compaction_took_out(memory: Memory, _: Session) -> Expected:
    session = memory.create_session(id="full")
    for number in range(5):
        session.record_finding(f"{SAID if number == 3 else 'x'} {'and more ' * 40}", discovered_by="a", severity="low",
                               timestamp=LONG_AGO, resolution={"status": "resolved"})  # fmt: skip
    compact(session, reduction_pct=100)
    shutil.rmtree(memory.root / ".smp/retired")
    return "full", "evicted", "findings.yaml", "FIND-004", "finding"


def a_drop(memory: Memory, _: Session) -> Expected:
    (memory.root / "active/s1/inbox/drop.yaml").write_text(f"type: finding\n# hm\ntext: {SAID}\n")
    return "s1", "inbox", "inbox/drop.yaml", "", "text"


def a_drop_in_markdown(memory: Memory, _: Session) -> Expected:
    (memory.root / "active/s1/inbox/drop.md").write_text(f"---\ntype: finding\n---\nfirst\n{SAID}\n")
    return "s1", "inbox", "inbox/drop.md", "", ""


def a_rejected_drop(memory: Memory, _: Session) -> Expected:
    (memory.root / "active/s1/inbox/rejected").mkdir(exist_ok=True)
    (memory.root / "active/s1/inbox/rejected/bad.yaml").write_text(f"type: [\n{SAID}\n")
    return "s1", "rejected", "inbox/rejected/bad.yaml", "", ""


def what_was_set_aside(memory: Memory, _: Session) -> Expected:
    name = set_aside(memory.tree, "s1", "decisions.yaml", 7, f"  - id: DEC\n    decision: {SAID}".encode(), "torn", NOW)
    return "s1", "quarantined", f"{name.removeprefix('quarantine/s1/')}.bytes", "", ""


def a_record_that_cannot_be_read(memory: Memory, _: Session) -> Expected:
    with (memory.root / "active/s1/preferences.yaml").open("a") as file:
        file.write(f"  - id: PREF-hand\n    preference: [{SAID}\n")
    return "s1", "active", "preferences.yaml", "", ""


def a_record_without_an_id(memory: Memory, _: Session) -> Expected:
    with (memory.root / "active/s1/learnings.yaml").open("a") as file:
        file.write(f"  - learning: {SAID}\n")
    return "s1", "active", "learnings.yaml", "", "learning"


def a_comment(memory: Memory, session: Session) -> Expected:
    made = session.record_learning("x", learned_by="vera")
    with (memory.root / "active/s1/learnings.yaml").open("a") as file:
        file.write(f"    remark: y\n    # {SAID}\n    further: z\n")
    return "s1", "active", "learnings.yaml", made.id, ""


def an_escaped_value(memory: Memory, _: Session) -> Expected:
    with (memory.root / "active/s1/findings.yaml").open("a") as file:
        file.write('  - id: FIND-hand\n    finding: "we met ZO\\u00CB\\\n      \\ quibble"\n')
    return "s1", "active", "findings.yaml", "FIND-hand", "finding"


def a_transaction_that_was_cut_off(memory: Memory, session: Session) -> Expected:
    name = record_intent(session.scope, [{"file": "artifacts/never.md", "content": f"---\nid: never\n---\n{SAID}"}])
    return "s1", "journal", name.removeprefix(".smp/journal/"), "", "steps[0].content"


def an_old_version(memory: Memory, _: Session) -> Expected:
    (memory.root / ".smp/retired").mkdir(exist_ok=True)
    (memory.root / ".smp/retired/s1+decisions.yaml+1+2+3+x").write_text(f"decisions:\n  - id: DEC-900\n    decision: {SAID}\n")
    return "s1", "retired", "decisions.yaml", "DEC-900", "decision"


def a_file_of_somebody_else(memory: Memory, _: Session) -> Expected:
    (memory.root / "notes.txt").write_text(f"first\r\n{SAID}\r\n")
    return "", "other", "notes.txt", "", ""


def something_packed_twice(memory: Memory, _: Session) -> Expected:
    (memory.root / "mine.tar.gz").write_bytes(packed({"deep/inner.tar.gz": packed({"a.txt": f"x\n{SAID}".encode()})}))
    return "", "other", "deep/inner.tar.gz/a.txt", "", ""


def the_name_of_a_file(memory: Memory, _: Session) -> Expected:
    (memory.root / "active/s1/artifacts/about zoë quibble.md").write_text("x")
    return "s1", "active", "artifacts/about zoë quibble.md", "", "name"


def packed(files: dict[str, bytes]) -> bytes:
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return into.getvalue()


DOORS: list[Door] = [
    a_turn, a_decision, a_finding, a_preference, a_learning, a_relationship, a_state, a_key_in_a_state, an_earlier_state,
    an_artifact, the_metadata, a_pattern, a_global_preference, the_profile, a_deleted_memory, a_deleted_artifact,
    an_archived_session, a_session_deleted_whole, an_archived_session_deleted_whole, what_compaction_took_out, a_drop,
    a_drop_in_markdown, a_rejected_drop, what_was_set_aside, a_record_that_cannot_be_read, a_record_without_an_id, a_comment,
    an_escaped_value,
    a_transaction_that_was_cut_off, an_old_version, a_file_of_somebody_else, something_packed_twice, the_name_of_a_file,
]  # fmt: skip
WITHOUT_A_LINE_OF_ITS_OWN = (an_escaped_value, a_transaction_that_was_cut_off, the_name_of_a_file)


def told(one: Occurrence) -> Expected:
    """As a door says it; of an old version, the file that it is one of is in its name."""
    file = one.member or one.path.split("/", 2 if one.session not in ("", "global") else 1 if one.session else 0)[-1]
    return one.session, one.place, file.split("+")[1] if one.place == "retired" else file, one.id, one.field


def places(found: list[Occurrence]) -> Counter[Expected]:
    """Without what the summary of an archived session repeats."""
    return Counter(told(one) for one in found if not one.path.endswith("summary.yaml") and "summary.yaml" not in one.member)


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_what_came_in_by_any_door_is_found_once_on_its_line(memory: Memory, door: Door) -> None:
    """In whatever place it is by then. Without looking at values, what is escaped is missed; without the bytes, the comment."""
    session = memory.create_session(id="s1", user="user-123")
    expected = door(memory, session)
    found = [one for one in about(memory) if "summary.yaml" not in one.where]
    assert [told(one) for one in found] == [expected]
    assert found[0].count == 1
    assert not found[0].problem
    if door not in WITHOUT_A_LINE_OF_ITS_OWN:
        assert_on_its_line(memory, found[0])


@pytest.mark.parametrize("door", [a_deleted_memory, a_session_deleted_whole, an_archived_session_deleted_whole])
def test_of_what_is_deleted_it_is_said_until_when_it_can_be_restored(memory: Memory, door: Door) -> None:
    door(memory, memory.create_session(id="s1"))
    assert {one.until[:10] for one in about(memory)} == {"2026-03-31"}


def test_through_all_doors_at_once_each_is_found_once(memory: Memory) -> None:
    session = memory.create_session(id="s1")
    expected = Counter(door(memory, session) for door in DOORS if door is not a_transaction_that_was_cut_off)
    assert places(about(memory)) == expected
    assert places(about(memory, session="s1")) == Counter({one: n for one, n in expected.items() if one[0] == "s1"})
    assert places(about(memory, session="global")) == Counter({one: n for one, n in expected.items() if one[0] == "global"})


def test_the_summary_of_an_archived_session_is_a_place_too(memory: Memory) -> None:
    memory.create_session(id="s1").record_decision(SAID, made_by="a")
    memory.archive_session("s1")
    (one,) = [one for one in about(memory) if one.path == "archived/s1/summary.yaml"]
    assert (one.place, one.type, one.field) == ("archived", "summary", "archive.decisions[0].text")
    assert_on_its_line(memory, one)


def test_several_on_a_line_are_one_place_and_counted(memory: Memory) -> None:
    memory.create_session(id="s1").save_artifact("a", f"{SAID} and {SAID}\n{SAID}\n")
    assert sorted((one.count, one.field) for one in about(memory)) == [(1, "content"), (2, "content")]
    assert len({one.line for one in about(memory)}) == 2


def test_a_value_and_a_comment_of_one_record_are_two_places(memory: Memory) -> None:
    session = memory.create_session(id="s1")
    session.record_learning("x", learned_by="a")
    with (memory.root / "active/s1/learnings.yaml").open("a") as file:
        file.write(f"    # {NEEDLE} is a comment\n    remark: by {NEEDLE}\n")
    found = about(memory)
    assert [one.field for one in found] == ["", "remark"]
    assert found[0].line + 1 == found[1].line
    for one in found:
        assert_on_its_line(memory, one)


def test_the_words_of_the_format_are_not_what_a_memory_says(memory: Memory) -> None:
    """Whoever looks for `finding` wants to know who said so, and not that every finding is one."""
    session = memory.create_session(id="s1")
    session.record_finding("x", discovered_by="a", severity="low")
    session.record_decision("y", made_by="a", rationale="because of the finding")
    session.add_turn("user", "made_by: nobody")
    assert [(one.id, one.field) for one in about(memory, "finding")] == [("DEC-001", "rationale")]
    assert [(one.id, one.field) for one in about(memory, "made_by")] == [("turn-1", "content")]
    assert about(memory, "speaker") == about(memory, "Conversation History") == []


@pytest.mark.parametrize(
    ("stands", "asked"),
    [
        ("straße", "STRASSE"), ("STRASSE", "straße"), ("Zoe\u0308", "ZOË"), ("Zoë", "zoe\u0308"), ("ΟΔΥΣΣΕΥΣ", "οδυσσευς"),
        ("ﬁle", "FILE"), ("İstanbul", "i\u0307stanbul"), ("Анна", "АННА"), ("Jane\n   Roe", "jane roe"),
        ("Jane\u00a0Roe", "Jane  Roe"), ("日本", "日本"),
    ],
)  # fmt: skip
def test_letters_are_compared_as_unicode_folds_them(memory: Memory, stands: str, asked: str) -> None:
    memory.create_session(id="s1").save_artifact("a", f"x {stands} y")
    (one,) = about(memory, asked)
    assert one.excerpt[one.start : one.end].split() == stands.split()


@pytest.mark.parametrize("text", ["", " ", "x", " x\n", None, 7])
def test_what_would_stand_everywhere_is_refused_at_once(memory: Memory, text: Any) -> None:
    memory.create()
    with pytest.raises(InvalidQuery, match="at least 2 characters"):
        memory.all_about(text)


def test_the_indexes_say_nothing_further_but_for_what_stands_nowhere_else(memory: Memory) -> None:
    session = memory.create_session(id="s1")
    session.record_decision("x", made_by="a", tags=["quibbling"])
    session._asker().ask(lambda view: write_indexes(memory, view.index, "s1"))
    assert {one.place for one in about(memory, "quibbling")} == {"active"}
    path = memory.root / "active/s1/decisions.yaml"
    path.write_text(path.read_text().replace("quibbling", "other"))
    found = about(memory, "quibbling")
    assert {one.place for one in found} == {"derived"}
    # SQLite may still have it in its log.
    assert {one.path.removesuffix("-wal") for one in found} >= {".smp/index.db", "active/s1/indexes/topics.yaml"}
    assert {one.path for one in about(memory, "quibbling", "s1")} == {one.path for one in found if one.path.startswith("active")}


def test_looking_changes_nothing(memory: Memory) -> None:
    session = memory.create_session(id="s1")
    for door in DOORS:
        door(memory, session)
    before = {path: path.read_bytes() for path in memory.root.rglob("*") if path.is_file()}
    about(memory)
    assert {path: path.read_bytes() for path in memory.root.rglob("*") if path.is_file()} == before


# Trees that somebody has made to break it.


@pytest.fixture
def hostile(memory: Memory, tmp_path: Path) -> Memory:
    """With what must not be followed, and a session beside it that is well."""
    session = memory.create_session(id="s1")
    session.record_decision(SAID, made_by="a")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.yaml").write_text(SAID)
    return memory


def problems(memory: Memory) -> dict[str, str]:
    return {one.path: one.problem for one in about(memory) if one.problem}


def good(memory: Memory) -> list[Expected]:
    return [told(one) for one in about(memory) if not one.problem]


WELL = ("s1", "active", "decisions.yaml", "DEC-001", "decision")


def test_links_pipes_and_second_names_are_not_read_and_said_to_be_there(hostile: Memory, tmp_path: Path) -> None:
    """Nothing outside the root is ever read, and no pipe is waited for."""
    top = hostile.root / "active/s1"
    (top / "link.yaml").symlink_to(tmp_path / "outside/secret.yaml")
    (top / "artifacts/folder").symlink_to(tmp_path / "outside")
    (top / "dangling").symlink_to(tmp_path / "nowhere")
    os.mkfifo(top / "inbox/pipe.yaml")
    os.link(tmp_path / "outside/secret.yaml", top / "agent-states/second.yaml")
    assert good(hostile) == [WELL]
    names = {"link.yaml", "artifacts/folder", "dangling", "inbox/pipe.yaml", "agent-states/second.yaml"}
    assert problems(hostile).keys() == {f"active/s1/{name}" for name in names}


def test_a_session_that_is_a_link_is_not_followed(hostile: Memory, tmp_path: Path) -> None:
    (hostile.root / "active/s2").symlink_to(tmp_path / "outside")
    assert good(hostile) == [WELL]
    assert problems(hostile).keys() == {"active/s2"}


def test_names_that_are_none_break_nothing(hostile: Memory) -> None:
    odd = os.fsencode(hostile.root) + b"/active/s1/artifacts/\xff\n\x1b[31m.md"
    Path(os.fsdecode(odd)).write_text(SAID)
    (hostile.root / "active/s1/artifacts/back\\slash.md").write_text(SAID)
    found = about(hostile)
    assert any("\\xff" in path.encode("unicode_escape").decode() or "\\udcff" in path for path in (one.path for one in found))
    assert ("active/s1/artifacts/back\\slash.md", "") in [(one.path, one.problem) for one in found]
    for one in found:
        one.path.encode()


def damaged(how: str) -> bytes:
    whole = packed({"decisions.yaml": os.urandom(5000) + SAID.encode()})
    if how == "cut off":
        return whole[: len(whole) // 2]
    if how == "flipped":
        return whole[:-9] + bytes([whole[-9] ^ 255]) + whole[-8:]
    if how == "no archive":
        return b"\x1f\x8b" + b"\x00" * 500
    if how == "too deep":
        return functools.reduce(lambda inner, _: gzip.compress(inner), range(9), SAID.encode())
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w") as archive:
        archive.writestr("a", SAID)
    return into.getvalue()


@pytest.mark.parametrize("how", ["cut off", "flipped", "no archive", "too deep", "a zip"])
@pytest.mark.parametrize("name", ["archived/old/archive.tar.gz", "archived/old/evicted-a.tar.gz", "deleted/old/backup.tar.gz"])
def test_a_damaged_archive_is_a_problem_and_hides_no_other_file(hostile: Memory, name: str, how: str) -> None:
    (hostile.root / name).parent.mkdir(parents=True)
    (hostile.root / name).write_bytes(damaged(how))
    assert WELL in good(hostile)
    assert problems(hostile).keys() == {name}


def test_what_can_be_read_of_a_damaged_archive_is_looked_through(hostile: Memory) -> None:
    files = {"decisions.yaml": f"decisions:\n  - id: DEC-009\n    decision: {SAID}\n".encode(), "noise": os.urandom(400_000)}
    (hostile.root / "archived/old").mkdir()
    (hostile.root / "archived/old/archive.tar.gz").write_bytes(packed(files)[:-200_000])
    assert ("old", "archived", "decisions.yaml", "DEC-009", "decision") in good(hostile)
    assert problems(hostile).keys() == {"archived/old/archive.tar.gz"}


def test_few_bytes_that_stand_for_very_many_are_not_unpacked_without_end(hostile: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "TOTAL_CAP_BYTES", 1 << 20)
    (hostile.root / "bomb.gz").write_bytes(gzip.compress(b"\0" * (64 << 20)))
    (hostile.root / "nested.tar.gz").write_bytes(packed({f"{n}.gz": gzip.compress(b"\0" * (600 << 10)) for n in range(4)}))
    assert good(hostile) == [WELL]
    assert problems(hostile).keys() == {"bomb.gz", "nested.tar.gz"}


def test_a_huge_file_is_looked_through_in_pieces(hostile: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the text stands on the border of two pieces. Without what reaches over it would be missed there."""
    monkeypatch.setattr(everywhere, "WHOLE_CAP_BYTES", 10_000)
    monkeypatch.setattr(everywhere, "_PIECE_BYTES", 4_096)
    for shift in range(0, 30, 3):
        lines = ["é" * 20] * 200
        at = (4_096 * 2 - shift) // 41
        lines[at] = SAID
        (hostile.root / "huge.log").write_text("\n".join(lines))
        found = [one for one in about(hostile) if one.path == "huge.log"]
        assert [(one.line, one.excerpt[one.start : one.end]) for one in found] == [(at + 1, "zoë quibble")]


def test_records_of_any_damage_are_looked_through_as_bytes(hostile: Memory) -> None:
    """A deletion record, a manifest and a summary that say nonsense, and a version that nobody knows yet."""
    root = hostile.root
    (root / "deleted/old").mkdir()
    (root / "deleted/old/deletion-record.yaml").write_text(f"deletion: [{SAID}\n")
    (root / "deleted/old/backup.tar.gz").write_bytes(packed({"decisions.yaml/DEC-1": f"- id: {SAID}".encode()}))
    (root / "archived/old").mkdir()
    wrong = b'{"items": [{"file": "decisions.yaml", "offset": -5, "length": 1e9, "id": 7}, 8]}'
    (root / "archived/old/evicted-x.tar.gz").write_bytes(packed({"manifest.json": wrong, "decisions.yaml": SAID.encode()}))
    (root / "archived/old/summary.yaml").write_text(f"archive: {SAID}: x\n")
    (root / "active/s1/findings.yaml").write_text(f"version: 99\nfindings:\n  - id: F\n    finding: {SAID}\n")
    found = {told(one)[:3] for one in about(hostile) if not one.problem}
    assert found == {
        WELL[:3], ("old", "deleted", "deletion-record.yaml"), ("old", "deleted", "decisions.yaml/DEC-1"),
        ("old", "evicted", "decisions.yaml"), ("old", "archived", "summary.yaml"), ("s1", "active", "findings.yaml"),
    }  # fmt: skip
    (root / "deep.json").write_text("[" * 950 + f'"{SAID}"' + "]" * 950)
    assert "deep.json" in {one.path for one in about(hostile)}
    assert not problems(hostile)


# Any text, in any of the places, among any others.

LETTERS = "abXÄßŒκσςЖжİﬁǅ漢ñ"
needles = st.lists(st.text(LETTERS, min_size=3, max_size=6), min_size=1, max_size=2).map(" ".join)
forms = st.sampled_from([
    lambda text: text, str.upper, str.lower, lambda text: unicodedata.normalize("NFD", text),
    lambda text: text.replace(" ", " \n "),
])  # fmt: skip
around = st.text("0123456789 .,:;-#'\"{}[]\\&*!|>%@`\n", max_size=30)
SLOTS: dict[str, Callable[[Session, str], tuple[str, str]]] = {
    "turn": lambda session, text: (session.add_turn("user", text).id, "content"),
    "decision": lambda session, text: (session.record_decision(text, made_by="1").id, "decision"),
    "rationale": lambda session, text: (session.record_decision("1", made_by="1", rationale=text).id, "rationale"),
    "nested": lambda session, text: (session.record_preference("1", more=[{"2": text}]).id, "more[0].2"),
    "learning": lambda session, text: (session.record_learning("1", learned_by="1", remark={"3": [text]}).id, "remark.3[0]"),
    "fields of a turn": lambda session, text: (session.add_turn("user", "1", remark=text).id, "remark"),
}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(needles, st.lists(st.tuples(st.sampled_from(sorted(SLOTS)), st.none() | forms, around, around), max_size=8))
def test_a_text_is_found_exactly_where_it_was_put(needle: str, slots: list[tuple[str, Any, str, str]]) -> None:
    """In any of its forms, among whatever YAML and Markdown have to quote, fold or escape."""
    with tempfile.TemporaryDirectory() as top:
        memory = Memory(Path(top) / "sessions", fsync="batch", count_access=False, redaction=None)
        session = memory.create_session(id="s1")
        expected: set[tuple[str, str]] = set()
        for slot, form, before, behind in slots:
            text = f"1{before}{'' if form is None else form(needle)}{behind}1"
            where = SLOTS[slot](session, text)
            expected |= set() if form is None else {where}
        found = about(memory, needle)
        assert {(one.id, one.field) for one in found} == expected
        assert len(found) == len(expected)
        for one in found:
            assert list(Needle(needle).find(one.excerpt[one.start : one.end])), one


def test_looking_into_the_index_takes_no_lock_from_sqlite(memory: Memory) -> None:
    """A descriptor of the index that is closed would: then another process could write while this one is in a transaction."""
    memory.create_session(id="s1").search("x")
    memory.close()
    with closing(Index.open(memory.root / INDEX_FILE)) as index:
        ours = index.connection
        ours.execute("PRAGMA journal_mode = DELETE")
        ours.execute("BEGIN EXCLUSIVE")
        assert about(memory, "stands nowhere") == []
        code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None).execute('BEGIN IMMEDIATE')"
        asked = [sys.executable, "-c", code, str(memory.root / INDEX_FILE)]
        other = subprocess.run(asked, capture_output=True, text=True, check=False)
        assert "database is locked" in other.stderr
