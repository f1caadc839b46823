"""Every place where a text stands: found whatever door it came in by and wherever it went."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tarfile
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from smp_client import InvalidQuery, Memory, Session
from smp_client.disk.journal import record as record_intent
from smp_client.disk.quarantine import quarantine_bytes
from smp_client.index.topics import write as write_indexes
from smp_client.passes.compaction import compact
from smp_client.privacy import find
from smp_client.privacy.find import Occurrence

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NEEDLE = "Zoë Quibble"
SAID = "we met zoë quibble there"


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "sessions", clock=lambda: NOW, count_access=False)


def about(memory: Memory, text: str = NEEDLE, session: str | None = None) -> list[Occurrence]:
    """Where it stands, beside summaries, which repeat it."""
    repeated = ("summary.yaml", "manifest.json")
    return [one for one in memory.privacy.find(text, session)
            if (one.member or one.path).rpartition("/")[2] not in repeated]  # fmt: skip


# The doors: each puts the needle into one place, and says which: session, place, file, id.

Expected = tuple[str, str, str, str]
Door = Callable[[Memory, Session], Expected]


def a_turn(_: Memory, session: Session) -> Expected:
    return "s1", "active", "conversation.md", session.add_turn("user", f"one\n\n{SAID}\nthree").id


def a_decision(_: Memory, session: Session) -> Expected:
    session.record_decision("another one", made_by="vera")
    rejected = [{"option": SAID, "rejected_because": "y"}]
    made = session.record_decision("x", made_by="vera", alternatives_considered=rejected)
    return "s1", "active", "decisions.yaml", made.id


def a_key_in_a_state(_: Memory, session: Session) -> Expected:
    session.save_agent_state("kim", {"current_context": {NEEDLE: 1}})
    return "s1", "active", "agent-states/kim.yaml", "kim"


def an_earlier_state(_: Memory, session: Session) -> Expected:
    session.save_agent_state("olga", {"current_context": SAID})
    session.save_agent_state("olga", {"current_context": "x"})
    shutil.rmtree(session.scope.tree.root / ".smp/retired")
    return "s1", "active", "agent-states/history/olga.yaml", "STATE-001"


def an_artifact(_: Memory, session: Session) -> Expected:
    session.save_artifact("report-1", f"# Report\n\n{SAID}\n")
    return "s1", "active", "artifacts/report-1.md", "report-1"


def the_metadata(_: Memory, session: Session) -> Expected:
    path = session.scope.tree.root / "active/s1/metadata.yaml"
    path.write_text(path.read_text() + f"  remark: {SAID}\n")
    return "s1", "active", "metadata.yaml", "metadata"


def the_profile(memory: Memory, _: Session) -> Expected:
    memory.everywhere.save_profile(name=SAID)
    return "global", "global", "user-profile.yaml", "user-profile"


def a_deleted_memory(memory: Memory, session: Session) -> Expected:
    made = session.record_decision(SAID, made_by="dora")
    session.delete(made.id, reason="privacy")
    shutil.rmtree(memory.root / ".smp/retired")
    return "s1", "deleted", "decisions.yaml", made.id


def an_original(memory: Memory, session: Session) -> Expected:
    made = session.add_turn("user", SAID)
    session.anonymize(names=[NEEDLE])
    shutil.rmtree(memory.root / ".smp/retired")
    return "s1", "deleted", "conversation.md", made.id


def an_archived_session(memory: Memory, _: Session) -> Expected:
    old = memory.create_session(id="old")
    made = old.record_finding("x", discovered_by="a", severity="low", impact=SAID)
    memory.archive_session("old")
    shutil.rmtree(memory.root / ".smp/leaving")
    return "old", "archived", "findings.yaml", made.id


def a_session_deleted_whole(memory: Memory, _: Session) -> Expected:
    made = memory.create_session(id="unwanted").add_turn("user", SAID)
    memory.delete_session("unwanted", reason="privacy")
    shutil.rmtree(memory.root / ".smp/leaving")
    return "unwanted", "deleted", "conversation.md", made.id


def an_evicted_memory(memory: Memory, _: Session) -> Expected:
    session = memory.create_session(id="full")
    for number in range(5):
        session.record_finding(f"{SAID if number == 3 else 'x'} {'and more ' * 40}",
                               discovered_by="a", severity="low",
                               timestamp=NOW - timedelta(days=60),
                               resolution={"status": "resolved"})  # fmt: skip
    compact(session, reduction_pct=100)
    shutil.rmtree(memory.root / ".smp/retired")
    return "full", "archived", "findings.yaml", "FIND-004"


def an_evicted_memory_of_a_deleted_session(memory: Memory, session: Session) -> Expected:
    an_evicted_memory(memory, session)
    memory.delete_session("full", reason="privacy")
    shutil.rmtree(memory.root / ".smp/leaving", ignore_errors=True)
    return "full", "deleted", "findings.yaml", "FIND-004"


def a_drop(memory: Memory, _: Session) -> Expected:
    (memory.root / "active/s1/inbox/drop.yaml").write_text(f"type: finding\n# hm\ntext: {SAID}\n")
    return "s1", "active", "inbox/drop.yaml", ""


def quarantined_bytes(memory: Memory, _: Session) -> Expected:
    torn = f"  - id: DEC\n    decision: {SAID}".encode()
    name = quarantine_bytes(memory.tree, "s1", "decisions.yaml", 7, torn, "torn", NOW)
    return "s1", "quarantine", f"{name.removeprefix('quarantine/s1/')}.bytes", ""


def a_record_that_cannot_be_read(memory: Memory, _: Session) -> Expected:
    with (memory.root / "active/s1/preferences.yaml").open("a") as file:
        file.write(f"  - id: PREF-hand\n    preference: [{SAID}\n")
    return "s1", "active", "preferences.yaml", ""


def a_comment(memory: Memory, session: Session) -> Expected:
    made = session.record_learning("x", learned_by="vera")
    with (memory.root / "active/s1/learnings.yaml").open("a") as file:
        file.write(f"    remark: y\n    # {SAID}\n    further: z\n")
    return "s1", "active", "learnings.yaml", made.id


def an_escaped_value(memory: Memory, _: Session) -> Expected:
    with (memory.root / "active/s1/findings.yaml").open("a") as file:
        file.write('  - id: FIND-hand\n    finding: "we met ZO\\u00CB\\\n      \\ quibble"\n')
    return "s1", "active", "findings.yaml", "FIND-hand"


def a_transaction_that_was_cut_off(_: Memory, session: Session) -> Expected:
    change = {"file": "artifacts/never.md", "content": f"---\nid: never\n---\n{SAID}"}
    name = record_intent(session.scope, [change])
    return "s1", "internal", name.removeprefix(".smp/journal/"), ""


def a_file_of_somebody_else(memory: Memory, _: Session) -> Expected:
    (memory.root / "notes.txt").write_text(f"first\r\n{SAID}\r\n")
    return "", "other", "notes.txt", ""


def the_name_of_a_file(memory: Memory, _: Session) -> Expected:
    (memory.root / "active/s1/artifacts/about zoë quibble.md").write_text("x")
    return "s1", "active", "artifacts/about zoë quibble.md", ""


DOORS: list[Door] = [
    a_turn, a_decision, a_key_in_a_state, an_earlier_state, an_artifact, the_metadata, the_profile,
    a_deleted_memory, an_original, an_archived_session, a_session_deleted_whole, an_evicted_memory,
    an_evicted_memory_of_a_deleted_session, a_drop, quarantined_bytes,
    a_record_that_cannot_be_read, a_comment, an_escaped_value, a_transaction_that_was_cut_off,
    a_file_of_somebody_else, the_name_of_a_file,
]  # fmt: skip


def told(one: Occurrence) -> Expected:
    """As a door says it."""
    below = 1 if one.session == "global" else 0 if not one.session else 2
    return one.session, one.place, one.member or one.path.split("/", below)[-1], one.id


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_what_came_in_by_any_door_is_found_once_on_its_line(memory: Memory, door: Door) -> None:
    expected = door(memory, memory.create_session(id="s1", user="user-123"))
    (one,) = about(memory)
    assert (told(one), one.problem) == (expected, "")
    assert NEEDLE.casefold() in " ".join(one.excerpt.casefold().split())
    is_plain = one.place != "internal" and door is not an_escaped_value
    if one.line and not one.member and is_plain:
        line = (memory.root / one.path).read_text().splitlines()[one.line - 1]
        assert NEEDLE.casefold() in line.casefold()
    if one.place == "deleted":
        assert one.until.startswith("2026-03-31")


def test_of_one_session_only_its_own_places_are_told(memory: Memory) -> None:
    session = memory.create_session(id="s1")
    doors = [a_turn, the_profile, a_deleted_memory, an_archived_session, an_evicted_memory, a_drop,
             a_file_of_somebody_else]  # fmt: skip
    expected = Counter(door(memory, session) for door in doors)
    assert Counter(map(told, about(memory))) == expected
    for name in ("s1", "global", "full"):
        of_it = {one: count for one, count in expected.items() if one[0] == name}
        assert Counter(map(told, about(memory, session=name))) == of_it


@pytest.mark.parametrize(("stands", "asked"), [
    ("Zoe\u0308", "ZOË"), ("Zoë", "zoe\u0308"), ("ΟΔΥΣΣΕΥΣ", "οδυσσευς"), ("Анна", "АННА"),
    ("Jane\n   Roe", "jane roe"), ("Jane\u00a0Roe", "Jane  Roe"), ("日本語", "日本語"),
])  # fmt: skip
def test_case_accents_and_white_space_do_not_matter(
    memory: Memory, stands: str, asked: str
) -> None:
    memory.create_session(id="s1").save_artifact("a", f"x {stands} y")
    (one,) = about(memory, asked)
    assert " ".join(stands.split()) in " ".join(one.excerpt.split())


@pytest.mark.parametrize("text", ["", "xy", " xy\n", None, 7])
def test_what_would_stand_everywhere_is_refused_at_once(memory: Memory, text: Any) -> None:
    memory.create()
    with pytest.raises(InvalidQuery, match="at least 3 characters"):
        memory.privacy.find(text)


def test_the_indexes_are_not_searched(memory: Memory) -> None:
    session = memory.create_session(id="s1")
    session.record_decision("x", made_by="a", tags=["quibbling"])
    session._asker().ask(lambda view: write_indexes(memory, view.index, "s1"))
    assert {one.place for one in about(memory, "quibbling")} == {"active"}


# Trees that somebody has made to break it.

WELL = ("s1", "active", "decisions.yaml", "DEC-001")


@pytest.fixture
def hostile(memory: Memory, tmp_path: Path) -> Memory:
    """With a file that must not be read, and a session beside it that is well."""
    memory.create_session(id="s1").record_decision(SAID, made_by="a")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.yaml").write_text(SAID)
    return memory


def problems(memory: Memory) -> set[str]:
    return {one.path for one in about(memory) if one.problem}


def good(memory: Memory) -> list[Expected]:
    return [told(one) for one in about(memory) if not one.problem]


def test_links_and_pipes_are_not_read_and_reported(hostile: Memory, tmp_path: Path) -> None:
    """Nothing outside the root is ever read, and no pipe is waited for."""
    top = hostile.root / "active/s1"
    (top / "link.yaml").symlink_to(tmp_path / "outside/secret.yaml")
    (top / "artifacts/folder").symlink_to(tmp_path / "outside")
    os.mkfifo(top / "inbox/pipe.yaml")
    (hostile.root / "active/s2").symlink_to(tmp_path / "outside")
    assert good(hostile) == [WELL]
    names = {"s1/link.yaml", "s1/artifacts/folder", "s1/inbox/pipe.yaml", "s2"}
    assert problems(hostile) == {f"active/{name}" for name in names}


def damaged(how: str) -> bytes:
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w:gz") as packed:
        content = os.urandom(5000) + SAID.encode()
        entry = tarfile.TarInfo("decisions.yaml")
        entry.size = len(content)
        packed.addfile(entry, io.BytesIO(content))
    whole = into.getvalue()
    return {"cut off": whole[: len(whole) // 2], "no archive": b"\x1f\x8b" + b"\x00" * 500,
            "no bundle": whole, "a bomb": gzip.compress(bytes(64 << 20))}[how]  # fmt: skip


@pytest.mark.parametrize("how", ["cut off", "no archive", "no bundle", "a bomb"])
@pytest.mark.parametrize("name", ["archived/old/archive.tar.gz", "notes.zip"])
def test_a_packed_file_that_is_no_bundle_is_a_problem_and_hides_no_other(
    hostile: Memory, monkeypatch: pytest.MonkeyPatch, name: str, how: str
) -> None:
    monkeypatch.setattr("smp_client.disk.bundle.TOTAL_CAP_BYTES", 1 << 20)
    (hostile.root / name).parent.mkdir(parents=True, exist_ok=True)
    (hostile.root / name).write_bytes(damaged(how))
    assert WELL in good(hostile)
    assert problems(hostile) == {name}


def test_a_huge_file_is_named_and_not_searched(
    hostile: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "_WHOLE_BYTES", 10_000)
    (hostile.root / "huge.log").write_text(SAID * 10_000)
    (one,) = [one for one in about(hostile) if one.path == "huge.log"]
    assert "not searched" in one.problem


def test_a_file_of_a_newer_version_is_searched_as_bytes(hostile: Memory) -> None:
    newer = f"version: 99\nfindings:\n  - id: F\n    finding: {SAID}\n"
    (hostile.root / "active/s1/findings.yaml").write_text(newer)
    assert ("s1", "active", "findings.yaml", "") in good(hostile)
