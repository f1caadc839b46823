"""Every place where a text stands: found whatever door it came in by and wherever it went."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest

from smp_client import InvalidQuery, Memory
from smp_client.disk.journal import record as record_intent
from smp_client.disk.quarantine import quarantine_bytes
from smp_client.index.topics import write as write_indexes
from smp_client.passes.compaction import compact
from smp_client.privacy import find
from smp_client.privacy.find import Occurrence

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NEEDLE = "Zoë Quibble"
SAID = "we met zoë quibble there"
REPEATED = ("summary.yaml", "manifest.json")
Place = tuple[str, str, str, str]  # session, place, file or member of a bundle, id


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "sessions", clock=lambda: NOW, count_access=False)


def about(memory: Memory, text: str = NEEDLE, session: str | None = None) -> list[Occurrence]:
    """Where it stands, beside summaries and old versions, which repeat it."""
    found = memory.privacy.find(text, session)
    return [one for one in found if (one.member or one.path).rpartition("/")[2] not in REPEATED]


def told(one: Occurrence) -> Place:
    below = 1 if one.session == "global" else 0 if not one.session else 2
    return one.session, one.place, one.member or one.path.split("/", below)[-1], one.id


def filled(memory: Memory) -> list[Place]:
    """Put the needle once into every place there is, and return these places."""
    session, root = memory.create_session(id="s1", user="user-123"), memory.root
    for name, text in (("old", SAID), ("gone", SAID)):
        memory.create_session(id=name).record_finding("x", discovered_by="a", impact=text)
    full = memory.create_session(id="full")
    for text in ("x", "x", SAID, "x"):
        full.record_finding(f"{text} {'and more ' * 40}", discovered_by="a", severity="low",
                            timestamp=NOW - timedelta(days=60),
                            resolution={"status": "resolved"})  # fmt: skip
    compact(full, reduction_pct=100)
    memory.archive_session("old")
    memory.delete_session("gone", reason="privacy")
    session.add_turn("user", f"one\n\n{SAID}\nthree")
    session.memory.privacy.anonymize(session.id, names=[NEEDLE])  # so that the original is in a bundle of undo
    rejected = [{"option": SAID, "rejected_because": "y"}]
    session.record_decision("x", made_by="vera", alternatives_considered=rejected)
    session.delete(session.record_decision(SAID, made_by="dora").id, reason="privacy")
    for context in (SAID, {NEEDLE: 1}):
        session.save_agent_state("kim", {"current_context": context})
    session.save_artifact("report-1", f"# Report\n\n{SAID}\n")
    memory.everywhere.save_profile(name=SAID)
    for name in ("retired", "leaving"):
        shutil.rmtree(root / ".smp" / name, ignore_errors=True)
    active = root / "active/s1"
    (active / "inbox/drop.yaml").write_text(f"type: finding\n# hm\ntext: {SAID}\n")
    (active / "artifacts/about zoë quibble.md").write_text("x")
    (root / "notes.txt").write_text(f"first\r\n{SAID}\r\n")
    escaped = '  - id: FIND-hand\n    finding: "we met ZO\\u00CB\\\n      \\ quibble"\n'
    for name, text in (("metadata", f"  remark: {SAID}\n"), ("findings", escaped),
                       ("preferences", f"  - id: PREF-hand\n    preference: [{SAID}\n"),
                       ("learnings", f"  - id: LEARN-hand\n    # {SAID}\n    remark: y\n")):  # fmt: skip
        with (active / f"{name}.yaml").open("a") as file:
            file.write(text)
    torn = f"  - id: DEC\n    decision: {SAID}".encode()
    apart = quarantine_bytes(session.scope, "decisions.yaml", torn, "torn", 7)
    change = {"file": "artifacts/never.md", "content": f"---\nid: never\n---\n{SAID}"}
    intent = record_intent(session.scope, [change])
    return [
        ("s1", "deleted", "conversation.md", "turn-1"), ("s1", "active", "decisions.yaml", "DEC-001"),
        ("s1", "deleted", "decisions.yaml", "DEC-002"), ("s1", "active", "metadata.yaml", "metadata"),
        ("s1", "active", "agent-states/kim.yaml", "kim"), ("", "other", "notes.txt", ""),
        ("s1", "active", "agent-states/history/kim.yaml", "STATE-001"),
        ("s1", "active", "artifacts/report-1.md", "report-1"),
        ("s1", "active", "artifacts/about zoë quibble.md", ""),
        ("s1", "active", "inbox/drop.yaml", ""), ("s1", "active", "findings.yaml", "FIND-hand"),
        ("s1", "active", "preferences.yaml", ""), ("s1", "active", "learnings.yaml", "LEARN-hand"),
        ("s1", "quarantine", f"{apart.removeprefix('quarantine/s1/')}.bytes", ""),
        ("", "internal", intent, ""),
        ("global", "global", "user-profile.yaml", "user-profile"),
        ("old", "archived", "findings.yaml", "FIND-001"),
        ("gone", "deleted", "findings.yaml", "FIND-001"),
        ("full", "archived", "findings.yaml", "FIND-003"),
    ]  # fmt: skip


def test_every_place_is_found_once_on_its_line(memory: Memory) -> None:
    expected, found = filled(memory), about(memory)
    assert sorted(map(told, found)) == sorted(expected)
    for one in found:
        assert not one.problem
        assert NEEDLE.casefold() in " ".join(one.excerpt.casefold().split())
        if one.line and not one.member and one.place != "internal" and one.id != "FIND-hand":
            line = (memory.root / one.path).read_text().splitlines()[one.line - 1]
            assert NEEDLE.casefold() in line.casefold()
        assert one.until.startswith("2026-03-31") == (one.place == "deleted")
    for name in ("s1", "global", "full"):
        of_it = [one for one in expected if one[0] == name]
        assert sorted(map(told, about(memory, session=name))) == sorted(of_it)


@pytest.mark.parametrize(("stands", "asked"), [
    ("Zoe\u0308", "ZOË"), ("Zoë", "zoe\u0308"), ("ΟΔΥΣΣΕΥΣ", "οδυσσευς"), ("Анна", "АННА"),
    ("Jane\n   Roe", "jane roe"), ("Jane\u00a0Roe", "Jane  Roe"), ("日本語", "日本語"),
])  # fmt: skip
def test_case_accents_and_white_space_do_not_matter(
    memory: Memory, stands: str, asked: str
) -> None:
    memory.create_session(id="s1").save_artifact("a", f"x {stands} y")
    (one,) = about(memory, asked)
    assert " ".join(normalize("NFC", stands).split()) in " ".join(one.excerpt.split())


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

WELL: Place = ("s1", "active", "decisions.yaml", "DEC-001")


@pytest.fixture
def hostile(memory: Memory, tmp_path: Path) -> Memory:
    """With a file that must not be read, and a session beside it that is well."""
    memory.create_session(id="s1").record_decision(SAID, made_by="a")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.yaml").write_text(SAID)
    return memory


def problems(memory: Memory) -> set[str]:
    return {one.path for one in about(memory) if one.problem}


def good(memory: Memory) -> list[Place]:
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
