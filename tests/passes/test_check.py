"""Saying what is wrong with a session and with what was put away of it, and putting right what can
be without guessing.
"""

from __future__ import annotations

import gzip
import json
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
from smp_client.disk.locks import lock
from smp_client.disk.quarantine import quarantined
from smp_client.disk.scope import UPKEEP
from smp_client.disk.tarball import make_archive, read_members
from smp_client.passes.check import check, repair, validate

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "sessions", clock=lambda: NOW)


@pytest.fixture
def session(memory: Memory) -> Session:
    session = memory.create_session(id="s1", user="user-123")
    for number in range(5):
        session.record_decision(
            f"Decision {number}", made_by="architect", timestamp=NOW - timedelta(days=9 - number)
        )
        session.add_turn("veritas", f"Turn {number}")
    session.save_agent_state("veritas", {"task": "review"})
    return session


def directory(session: Session) -> Path:
    return session.scope.tree.root / "active" / session.id


def tear(session: Session) -> None:
    with (directory(session) / "decisions.yaml").open("ab") as file:
        file.write(b'  - id: DEC-006 # smp\n    timestamp: "2026-03-0')


def cut_off_transaction(session: Session) -> None:
    """As a crash leaves it: recorded, and nothing of it done."""
    content = (directory(session) / "decisions.yaml").read_bytes()
    added = '  - id: DEC-006\n    timestamp: "2026-03-01T12:00:00Z"\n    made_by: a\n    decision: Recorded\n'
    journal.record(session.scope, [{"file": "decisions.yaml", "append": added, "at": len(content)}])


def old_version(session: Session) -> None:
    """As a crash leaves it: replaced, and the old version not yet looked at."""
    from smp_client.disk.rewrite import _prepare

    path = directory(session) / "decisions.yaml"
    content = path.read_bytes()
    slot = _prepare(session.scope, "decisions.yaml", content, content)
    session.scope.tree.exchange(slot, session.scope.path("decisions.yaml"))
    with (session.scope.tree.root / slot).open("ab") as file:
        file.write(
            b'  - {id: DEC-009, timestamp: "2026-03-01T12:00:00Z", made_by: a, decision: Late}\n'
        )


BROKEN: dict[str, tuple[Callable[[Session], object], list[tuple[str, str]]]] = {
    "a torn record": (tear, [("set_aside", "decisions.yaml")]),
    "a transaction that was cut off": (cut_off_transaction, [("finish_transaction", "")]),
    "an old version": (old_version, [("fold_versions", "decisions.yaml")]),
    "no metadata": (
        lambda s: (directory(s) / "metadata.yaml").unlink(),
        [("make_metadata", "metadata.yaml")],
    ),
    "empty metadata": (
        lambda s: (directory(s) / "metadata.yaml").write_bytes(b""),
        [("make_metadata", "metadata.yaml")],
    ),
    "no findings": (
        lambda s: (directory(s) / "findings.yaml").unlink(),
        [("make_file", "findings.yaml")],
    ),
    "no artifacts": (
        lambda s: (directory(s) / "artifacts").rmdir(),
        [("make_directory", "artifacts")],
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_can_be_put_right_is(session: Session, what: str) -> None:
    """For show, the same is said and no file of the session differs; then it is done, and nothing
    is left to do or to say.
    """
    breaks, expected = BROKEN[what]
    decisions = {record.id for record in session.records("decision")}
    breaks(session)
    before = {path: path.read_bytes() for path in directory(session).rglob("*") if path.is_file()}
    shown = repair(session, dry_run=True)
    assert shown.dry_run
    if expected[0][0] != "finish_transaction":  # whoever reads finishes it
        assert {
            path: path.read_bytes() for path in directory(session).rglob("*") if path.is_file()
        } == before
        done = repair(session)
        assert done.actions == shown.actions
    assert [action.type for action in shown.actions] == [type for type, _ in expected]
    assert all(
        about in action.about[0] for action, (_, about) in zip(shown.actions, expected, strict=True)
    )
    assert all(action.reason for action in shown.actions)
    assert shown.problems == []
    again = repair(session)
    assert (again.actions, again.problems) == ([], [])
    assert decisions <= {record.id for record in session.records("decision")}
    assert session.record_decision("Goes on", made_by="a").id in ("DEC-006", "DEC-007", "DEC-010")


def test_what_is_set_aside_is_kept(memory: Memory, session: Session) -> None:
    tear(session)
    (action,) = repair(session).actions
    assert action.reason.startswith("a record that was cut off while it was written, from line")
    (name,) = quarantined(memory)
    assert b"DEC-006" in (memory.root / name).read_bytes()
    assert [complaint.problem for complaint in validate(session)] == ["bytes that were set aside"]
    assert len(session.records("decision")) == 5


def test_metadata_are_made_from_what_the_memories_tell(session: Session) -> None:
    """It began with the first of them, and is in use from now on: else it would be archived for its
    age.
    """
    (directory(session) / "metadata.yaml").unlink()
    repair(session)
    found = session.metadata()
    assert (found["id"], found["status"]) == ("s1", "active")
    assert (found["created_at"], found["last_accessed"]) == (
        "2026-02-20T12:00:00Z",
        "2026-03-01T12:00:00Z",
    )


LEFT: dict[str, tuple[Callable[[Path], object], str]] = {
    "metadata that are no YAML": (lambda d: (d / "metadata.yaml").write_text("session: ["), "s1/metadata.yaml: "),
    "a later version": (lambda d: (d / "findings.yaml").write_text("version: 99\nfindings: []\n"), "findings.yaml"),
    "a record in the middle": (
        lambda d: (d / "decisions.yaml").write_text((d / "decisions.yaml").read_text().replace("id: DEC-003", "id: [", 1)),
        "s1/decisions.yaml:",
    ),
    "an id twice": (
        lambda d: (d / "decisions.yaml").write_text((d / "decisions.yaml").read_text().replace("DEC-003", "DEC-002")),
        "s1/decisions.yaml:15: 2 records have the id DEC-002, on the lines 9 and 15. Give all but one another id.",
    ),
    "a file for a directory": (
        lambda d: ((d / "artifacts").rmdir(), (d / "artifacts").write_text("")),
        "s1/artifacts: it is not a directory. Move it away, and repair.",
    ),
    "a link": (
        lambda d: ((d / "findings.yaml").unlink(), (d / "findings.yaml").symlink_to("/etc/hostname")), "findings.yaml",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", LEFT)
def test_what_cannot_be_put_right_is_left_and_said(session: Session, what: str) -> None:
    """With what a person must do; and it keeps nothing else from being put right."""
    breaks, problem = LEFT[what]
    breaks(directory(session))
    before = {path: path.read_bytes() for path in directory(session).rglob("*") if path.is_file()}
    (directory(session) / "learnings.yaml").unlink()
    outcome = repair(session)
    assert not outcome.success
    assert any(problem in said for said in outcome.problems), outcome.problems
    assert all(said.endswith(".") for said in outcome.problems)
    assert [action.about for action in outcome.actions] == [("learnings.yaml",)]
    assert all(
        path.read_bytes() == content
        for path, content in before.items()
        if path.name != "learnings.yaml"
    )


# What was put away.


def archived(memory: Memory) -> Path:
    memory.archive_session("s1")
    return memory.root / "archived/s1/archive.tar.gz"


def evicted(memory: Memory) -> Path:
    return memory.root / evict(memory, "s1", "DEC-001")


def deleted(memory: Memory) -> Path:
    batch = memory.session("s1").delete(["DEC-001", "DEC-002", "turn-1"], reason="a test").batch
    return memory.root / f"deleted/s1/{batch}.tar.gz"


def deleted_whole(memory: Memory) -> Path:
    memory.session("s1").delete(["DEC-001"], reason="a test")
    memory.delete_session("s1", reason="a test")
    return memory.root / "deleted/s1/backup.tar.gz"


PUT_AWAY = [archived, evicted, deleted, deleted_whole]


@pytest.mark.parametrize("put_away", PUT_AWAY, ids=lambda put_away: put_away.__name__)
def test_every_flipped_byte_that_changes_content_is_found(
    memory: Memory, session: Session, put_away: Callable[[Memory], Path]
) -> None:
    """Bits all over the file, and its end cut off. Seen to fail where it was read no further than
    its last member.
    """
    path = put_away(memory)
    assert check(memory) == []
    whole = path.read_bytes()
    content = gzip.decompress(whole)
    chance = random.Random(5)
    for at in [
        *range(12),
        *(chance.randrange(len(whole)) for _ in range(60)),
        *range(len(whole) - 9, len(whole)),
    ]:
        changed = bytearray(whole)
        changed[at] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        found = [complaint for complaint in check(memory) if complaint.file == path.name]
        assert found or read(bytes(changed)) == content, f"byte {at} of {len(whole)}"
        assert all(
            complaint.scope == f"{path.parent.parent.name}/s1" and complaint.advice
            for complaint in found
        )
    for length in (0, 5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert [complaint.file for complaint in check(memory)] == [path.name]
    path.write_bytes(whole)
    assert check(memory) == []


def read(packed: bytes) -> bytes | None:
    try:
        return gzip.decompress(packed)
    except Exception:
        return None


def test_a_bundle_must_hold_what_its_manifest_says(memory: Memory, session: Session) -> None:
    """Each record of it, and the manifest itself."""
    name = str(evicted(memory).relative_to(memory.root))
    (_, manifest), (member, raw) = read_members(memory.tree, name)
    changed = [("manifest.json", manifest), (member, raw.replace(b"Decision 0", b"Decision 7"))]
    memory.tree.rename(make_archive(memory.tree, changed), name)
    assert [
        "DEC-001" in complaint.problem and "is damaged" in complaint.problem
        for complaint in check(memory)
    ] == [True]
    for members in ([(member, raw)], [("manifest.json", b"{}")], []):
        memory.tree.rename(make_archive(memory.tree, members), name)
        assert [complaint.file for complaint in check(memory)] == [name.rpartition("/")[2]]


@pytest.mark.parametrize(("put_away", "name"), [
    (archived, "archived/s1/summary.yaml"), (deleted, "deleted/s1/deletion-record.yaml"),
    (deleted_whole, "deleted/s1/deletion-record.yaml"),
])  # fmt: skip
@pytest.mark.parametrize("is_there", [True, False])
def test_the_files_for_people_are_rendered_anew(
    memory: Memory, session: Session, put_away: Callable[[Memory], Path], name: str, is_there: bool
) -> None:
    put_away(memory)
    path = memory.root / name
    said = path.read_bytes()
    path.write_bytes(said.replace(b"s1", b"s2")) if is_there else path.unlink()
    assert [(one.scope, one.file) for one in check(memory)] == [
        (name.rpartition("/")[0], path.name)
    ]
    shown = smp("check", "--repair", "--dry-run", "--json", "--root", memory.root)
    assert [one["type"] for one in json.loads(shown.stdout)["actions"]] == ["describe_bundles"]
    assert len(check(memory)) == 1
    assert smp("check", "--repair", "--root", memory.root).returncode == 0
    assert (path.read_bytes(), check(memory)) == (said, [])


def test_a_change_that_stays_unfinished_is_named_and_finished(
    memory: Memory, session: Session
) -> None:
    """Of a session that is archived nobody reads the files, so nobody finishes it by the way."""
    path = archived(memory)
    scope = memory._scope("s1")
    version = journal.version_of(memory.tree.stat("archived/s1/archive.tar.gz"))
    name = journal.record(
        scope, [{"bundle": "archived/s1/archive.tar.gz", "aside": None, "was": [0, *version[1:]]}]
    )
    os.utime(memory.root / name, (1, 1))
    assert [one.problem for one in check(memory)] == ["a recorded change that is not finished"]
    assert smp("check", "--repair", "--root", memory.root).returncode == 0
    assert path.exists()
    assert check(memory) == []


def test_what_somebody_is_at_work_on_is_no_complaint(memory: Memory, session: Session) -> None:
    """While a session is put away, its archive and its summary do not fit for a moment."""
    path = archived(memory)
    path.write_bytes(path.read_bytes()[:-20])
    with lock(memory.tree, "s1", UPKEEP, 15.0, "testing"):
        assert check(memory) == []
    assert len(check(memory)) == 1


def test_what_people_keep_beside_is_left_alone(memory: Memory, session: Session) -> None:
    archived(memory)
    (memory.root / "archived/readme").write_text("Mine.")
    (memory.root / "archived/not a session").mkdir()
    (memory.root / "archived/s1/notes.txt").write_text("Mine.")
    (memory.root / "deleted/link").symlink_to("/etc")
    assert check(memory) == []
