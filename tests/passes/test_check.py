"""The check names faults of sessions and bundles, and repairs those that need no guess."""

from __future__ import annotations

import gzip
import os
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from bundles import evict
from daemons import smp

from smp_client import Memory, Session
from smp_client.disk import journal
from smp_client.disk.bundle import make_archive, read_members
from smp_client.disk.quarantine import quarantined
from smp_client.passes.check import check

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "sessions", clock=lambda: NOW)


@pytest.fixture
def session(memory: Memory) -> Session:
    session = memory.create_session(id="s1", user="user-123")
    for number in range(5):
        at = NOW - timedelta(days=9 - number)
        session.record_decision(f"Decision {number}", made_by="architect", timestamp=at)
        session.add_turn("veritas", f"Turn {number}")
    session.record_learning("Learned", learned_by="veritas")
    session.save_agent_state("veritas", {"task": "review"})
    return session


def place(session: Session, file: str = "") -> Path:
    return session.memory.root / "active" / session.id / file


def contents(session: Session) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in place(session).rglob("*") if path.is_file()}


def tear(session: Session, file: str = "decisions.yaml") -> None:
    with place(session, file).open("ab") as torn:
        torn.write(b'  - id: DEC-006 # smp\n    timestamp: "2026-03-0')


def cut_off_transaction(session: Session) -> None:
    """As a crash leaves it: recorded, and nothing of it done."""
    at = place(session, "decisions.yaml").stat().st_size
    added = "  - id: DEC-006\n    made_by: a\n    decision: Recorded\n"
    journal.record(session.scope, [{"file": "decisions.yaml", "append": added, "at": at}])


BROKEN: dict[str, tuple[Callable[[Session], object], str, str]] = {
    "a torn record": (tear, "set_aside", "decisions.yaml"),
    "a transaction that was cut off": (cut_off_transaction, "finish_transaction", ""),
    "no metadata": (lambda s: place(s, "metadata.yaml").unlink(), "make_metadata", "metadata.yaml"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_fault_that_needs_no_guess_is_repaired(session: Session, what: str) -> None:
    """A dry run says the same and changes nothing. Then nothing is left to do or to say."""
    breaks, type, about = BROKEN[what]
    decisions = {record.id for record in session.records("decision")}
    breaks(session)
    before = contents(session)
    shown = session.repair(dry_run=True)
    assert ([action.type for action in shown.actions], shown.problems) == ([type], [])
    assert (about in shown.actions[0].about[0], bool(shown.actions[0].reason)) == (True, True)
    if type != "finish_transaction":  # whoever reads finishes it
        assert contents(session) == before
        assert session.repair().actions == shown.actions
    again = session.repair()
    assert (again.actions, again.problems) == ([], [])
    assert decisions <= {record.id for record in session.records("decision")}


def test_repaired_sessions_keep_every_byte_and_are_in_use(memory: Memory, session: Session) -> None:
    """Quarantined bytes are named. With new metadata the session is not archived for its age."""
    tear(session)
    place(session, "metadata.yaml").unlink()
    reasons = [action.reason for action in session.repair().actions]
    torn = "a record that was cut off while it was written, from line"
    assert any(reason.startswith(torn) for reason in reasons)
    (name,) = quarantined(memory.tree)
    assert b"DEC-006" in (memory.root / name).read_bytes()
    assert [one.problem for one in session.validate()] == ["quarantined bytes"]
    found = session.metadata()
    known = [found[name] for name in ("id", "status", "last_accessed")]
    assert known == ["s1", "active", "2026-03-01T12:00:00Z"]


def edit(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new, 1))


LEFT: dict[str, tuple[Callable[[Path], object], str]] = {
    "a later version": (
        lambda d: (d / "findings.yaml").write_text("version: 99\nfindings: []\n"), "findings.yaml"),
    "an id twice": (
        lambda d: edit(d / "decisions.yaml", "DEC-003", "DEC-002"),
        "s1/decisions.yaml: 2 records have the id DEC-002. Give all but one another id."),
}  # fmt: skip


@pytest.mark.parametrize("what", LEFT)
def test_any_other_fault_is_left_and_named(session: Session, what: str) -> None:
    """With what a person must do; it keeps nothing else from being repaired."""
    breaks, problem = LEFT[what]
    breaks(place(session))
    before = contents(session)
    tear(session, "learnings.yaml")
    outcome = session.repair()
    assert any(problem in said for said in outcome.problems), outcome.problems
    assert all(said.endswith(".") for said in outcome.problems)
    assert [action.about for action in outcome.actions] == [("learnings.yaml",)]
    left = {path: path.read_bytes() for path in before if path.name != "learnings.yaml"}
    assert left.items() <= before.items()


def archived(memory: Memory) -> Path:
    memory.archive_session("s1")
    return memory.root / "archived/s1/archive.tar.gz"


def evicted(memory: Memory) -> Path:
    return memory.root / evict(memory, "s1", "DEC-001")


@pytest.mark.parametrize("leave", [archived, evicted])
def test_every_flipped_byte_that_changes_content_is_found(
    memory: Memory, session: Session, leave: Callable[[Memory], Path]
) -> None:
    """Bits all over the file, and its end cut off."""
    path = leave(memory)
    whole, chance = path.read_bytes(), random.Random(5)
    content, size = gzip.decompress(whole), len(whole)
    for at in [*range(12), *(chance.randrange(size) for _ in range(60)), *range(size - 9, size)]:
        changed = bytearray(whole)
        changed[at] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        found = [one for one in check(memory) if one.file == path.name]
        assert found or gzip.decompress(changed) == content, f"byte {at} of {size}"
        assert all(one.scope == f"{path.parent.parent.name}/s1" and one.advice for one in found)
    for length in (0, 5, size // 2, size - 1):
        path.write_bytes(whole[:length])
        assert [one.file for one in check(memory)] == [path.name]
    path.write_bytes(whole)
    assert check(memory) == []


def test_a_bundle_must_hold_what_its_manifest_says(memory: Memory, session: Session) -> None:
    name = str(evicted(memory).relative_to(memory.root))
    (_, manifest), (member, raw) = read_members(memory.tree, name)
    changed = [("manifest.json", manifest), (member, raw.replace(b"Decision 0", b"Decision 7"))]
    for members, said in ((changed, "DEC-001"), ([(member, raw)], ""), ([], "")):
        memory.tree.rename(make_archive(memory.tree, members), name)
        (complaint,) = check(memory)
        assert (complaint.file, said in complaint.problem) == (name.rpartition("/")[2], True)


def test_a_change_that_stays_unfinished_is_named_and_finished(
    memory: Memory, session: Session
) -> None:
    """Of a session that is archived nobody reads the files, so nobody finishes it by the way."""
    path, bundle = archived(memory), "archived/s1/archive.tar.gz"
    version = [0, *journal.version_of(memory.tree.stat(bundle))[1:]]
    steps = [{"bundle": bundle, "aside": None, "was": version}]
    os.utime(memory.root / journal.record(memory._scope("s1"), steps), (1, 1))
    assert [one.problem for one in check(memory)] == ["a recorded change that is not finished"]
    smp("doctor", "--fix", "--root", memory.root)
    assert path.exists()
    assert check(memory) == []


def test_files_that_people_keep_beside_are_left_alone(memory: Memory, session: Session) -> None:
    archived(memory)
    (memory.root / "archived/readme").write_text("Mine.")
    (memory.root / "archived/s1/notes.txt").write_text("Mine.")
    (memory.root / "deleted/link").symlink_to("/etc")
    assert check(memory) == []
