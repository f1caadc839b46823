"""Sessions that are put into the archive, deleted whole, and brought back."""

from __future__ import annotations

import subprocess
import tarfile
from io import BytesIO

import pytest
import yaml

from smp_client import CorruptionDetected, Invalid, Memory, Session, SessionNotFound
from smp_client.change import move
from smp_client.disk import bundle
from smp_client.errors import Conflict
from smp_client.layout import LEAVING
from smp_client.packing import MEMBERS_CAP, read_members, write_archive
from smp_client.tidy import tidy


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was put away may be removed as soon as nobody has it open."""
    monkeypatch.setattr(move, "GRACE_S", -1.0)
    monkeypatch.setattr("smp_client.rewrite.GRACE_S", -1.0)


def fill(session: Session) -> None:
    session.add_turn("user", "Which tokens do we use?")
    session.record_decision("Use OAuth 2.0 with JWT", made_by="architect", tags=["security"])
    session.record_finding("No MFA requirement", discovered_by="veritas", severity="critical")
    session.record_preference("MFA for admins", confidence="explicit")
    session.save_agent_state("veritas", {"mood": "calm"})
    session.save_agent_state("veritas", {"mood": "busy"})
    session.save_artifact("report", "# Report\n")
    (session.scope.tree.root / session.scope.directory / "inbox/note.yaml").write_text("type: decision\n")
    (session.scope.tree.root / session.scope.directory / "a person's own.txt").write_bytes(b"\x00\xff kept")


def files(memory: Memory, *below: str) -> dict[str, bytes]:
    """Everything that is not SMP's own, and not the log of what was done."""
    found = {str(path.relative_to(memory.root)): path.read_bytes() for path in memory.root.rglob("*") if path.is_file()}
    own = (".smp/", "audit.log")
    return {name: content for name, content in found.items() if not name.startswith(own) and name.startswith(below or ("",))}


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def test_archived_and_back_a_session_is_what_it_was(memory: Memory, session: Session) -> None:
    """Every file comes back byte for byte, also those that SMP knows nothing of; only the metadata say that it is in use again."""
    fill(session)
    before = files(memory)
    outcome = memory.archive_session("s1", "done with it")
    assert [(action.type, action.reason) for action in outcome.actions] == [("archive", "done with it")]
    assert set(files(memory)) == {"archived/s1/summary.yaml", "archived/s1/archive.tar.gz"}
    assert memory.sessions() == []
    assert move.sweep(memory) == []
    assert not list((memory.root / LEAVING).iterdir())
    back = memory.restore_session("s1")
    assert changed(before, files(memory)) == {"active/s1/metadata.yaml"}
    assert back.metadata()["status_reason"] == "brought back from the archive"


def test_the_summary_tells_a_person_what_it_was(memory: Memory, session: Session) -> None:
    fill(session)
    memory.archive_session("s1", "done with it")
    said = yaml.safe_load((memory.root / "archived/s1/summary.yaml").read_text())["archive"]
    assert said["state"] == "archived"
    assert [decision["text"] for decision in said["decisions"]] == ["Use OAuth 2.0 with JWT"]
    assert [finding["id"] for finding in said["open_findings"]] == ["FIND-001"]
    assert [preference["id"] for preference in said["preferences"]] == ["PREF-001"]
    assert "security" in {topic["name"] for topic in said["topics"]}
    assert said["first_activity"]
    assert said["last_activity"]
    members = {member["path"]: member for member in said["members"]}
    for path, content in bundle.read(memory.tree, "archived/s1/archive.tar.gz").files():
        assert members[path]["bytes"] == len(content)
    assert memory.search("oauth")[0].session == "s1"


def test_a_session_that_is_put_away_says_how_to_bring_it_back(memory: Memory, session: Session) -> None:
    memory.archive_session("s1")
    for touch in (lambda: memory.session("s1"), lambda: session.add_turn("user", "still here?"), lambda: session.search("OAuth")):
        with pytest.raises(SessionNotFound, match="smp unarchive s1"):
            touch()
    with pytest.raises(Conflict, match="archived/"):
        memory.create_session(id="s1")


def test_a_dry_run_says_what_archiving_frees(memory: Memory, session: Session) -> None:
    fill(session)
    said = memory.archive_session("s1", dry_run=True)
    assert [*(memory.root / "archived").iterdir()] == []
    (shown,), (done,) = said.actions, memory.archive_session("s1").actions
    assert abs(shown.bytes_freed - done.bytes_freed) < 20  # the time in the manifest is another


def test_an_archive_that_was_tampered_with_brings_nothing_back(memory: Memory, session: Session) -> None:
    """A member that leads out of the tree, is a link, stands twice, or is not the one that was packed: refused before anything of
    the archive is in its place, and the archive stays."""
    fill(session)
    memory.archive_session("s1")
    packed = memory.root / "archived/s1/archive.tar.gz"
    good = packed.read_bytes()
    for evil in evil_archives():
        packed.write_bytes(evil)
        with pytest.raises(CorruptionDetected):
            memory.restore_session("s1")
        assert memory.sessions() == []
        assert packed.read_bytes() == evil
        assert not list((memory.root / ".smp/tmp").iterdir())
    assert not (memory.root.parent / "out").exists()
    packed.write_bytes(good)
    assert memory.restore_session("s1").get("DEC-001").text == "Use OAuth 2.0 with JWT"


def evil_archives() -> list[bytes]:
    def packed(*members: tarfile.TarInfo) -> bytes:
        target = BytesIO()
        with tarfile.open(fileobj=target, mode="w:gz") as out:
            for member in members:
                out.addfile(member, BytesIO(b"x" * member.size))
        return target.getvalue()

    def plain(name: str, **facts: object) -> tarfile.TarInfo:
        member = tarfile.TarInfo(name)
        member.size = 1
        for fact, value in facts.items():
            setattr(member, fact, value)
        return member

    link = plain("metadata.yaml", type=tarfile.SYMTYPE, size=0, linkname="/etc/passwd")
    hard = plain("metadata.yaml", type=tarfile.LNKTYPE, size=0, linkname="decisions.yaml")
    fifo = plain("metadata.yaml", type=tarfile.FIFOTYPE, size=0)
    names = ["../out", "/out", "a/../../out", "a//b", "metadata.yaml"]
    return [*(packed(plain(name)) for name in names), packed(link), packed(hard), packed(fifo), b"no archive", b"",
            packed(plain("metadata.yaml"), plain("metadata.yaml"))]  # fmt: skip


def test_a_bomb_is_refused_before_it_goes_off(memory: Memory, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes that stand for more than any session holds are not unpacked."""
    monkeypatch.setattr("smp_client.packing.TOTAL_CAP_BYTES", 1 << 20)
    memory.tree.make_directory("archived/s2")
    target = BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as out:
        member = tarfile.TarInfo("zeros")
        member.size = 8 << 20
        out.addfile(member, BytesIO(bytes(8 << 20)))
    (memory.root / "archived/s2/archive.tar.gz").write_bytes(target.getvalue())
    with pytest.raises(CorruptionDetected, match="more than"):
        list(read_members(memory.tree, "archived/s2/archive.tar.gz"))
    assert MEMBERS_CAP < 1_000_000


def test_the_same_files_give_the_same_archive(memory: Memory, session: Session) -> None:
    for name in ("one", "two"):
        write_archive(memory.tree, f"archived/{name}.tar.gz", [("a/b", b"1"), ("ä", b"2")])
    assert (memory.root / "archived/one.tar.gz").read_bytes() == (memory.root / "archived/two.tar.gz").read_bytes()


@pytest.mark.parametrize("put_away", ["archive", "delete"])
def test_what_an_open_file_still_gets_is_kept(memory: Memory, session: Session, put_away: str) -> None:
    """A program that has a file of the session open goes on writing into it after the session is packed: that is in quarantine
    when the program is done, and nothing is removed before. (Removing the directory at once loses the line.)"""
    fill(session)
    with (memory.root / "active/s1/conversation.md").open("ab", buffering=0) as late:
        if put_away == "archive":
            memory.archive_session("s1")
        else:
            memory.delete_session("s1", reason="no longer wanted")
        late.write(b"\n## Turn 2\n**Speaker:** user\n\nOne more thing.\n")
        assert move.sweep(memory) == []
        assert list((memory.root / LEAVING).iterdir())
        late.write(b"And another.\n")
    assert move.sweep(memory) == []
    assert not list((memory.root / LEAVING).iterdir())
    (late_bytes,) = (memory.root / "quarantine/s1").glob("*conversation*.bytes")
    assert late_bytes.read_bytes().endswith(b"One more thing.\nAnd another.\n")


def test_what_comes_late_after_the_session_is_back_is_in_quarantine(memory: Memory, session: Session) -> None:
    fill(session)
    with (memory.root / "active/s1/conversation.md").open("ab", buffering=0) as late:
        memory.archive_session("s1")
        memory.restore_session("s1")
        late.write(b"\n## Turn 2\n**Speaker:** user\n\nOne more thing.\n")
    assert move.sweep(memory) == []
    (late_bytes,) = (memory.root / "quarantine/s1").glob("*conversation*.bytes")
    assert b"One more thing." in late_bytes.read_bytes()
    assert not list((memory.root / LEAVING).iterdir())


def test_a_link_in_a_session_is_neither_followed_nor_lost(memory: Memory, session: Session) -> None:
    """What cannot be copied keeps the session where it is, and the error names it."""
    (memory.root / "active/s1/artifacts/link.md").symlink_to("/etc/hostname")
    before = files(memory, "active/")
    with pytest.raises(Exception, match=r"link\.md"):
        memory.archive_session("s1")
    assert files(memory, "active/") == before
    assert not (memory.root / "archived/s1/archive.tar.gz").exists()
    memory.session("s1").add_turn("user", "Still writable.")


def test_deleted_and_back_a_session_is_what_it_was(memory: Memory, session: Session) -> None:
    """With the memories that were deleted from it before, which can still be restored one by one."""
    fill(session)
    session.delete("FIND-001", reason="wrong")
    before = files(memory)
    memory.delete_session("s1", reason="privacy", deleted_by="user-123")
    assert all(name.startswith("deleted/s1/") for name in files(memory))
    (gone,) = memory.deleted_sessions()
    assert (gone.session, gone.by, gone.reason) == ("s1", "user-123", "privacy")
    assert memory.search("oauth") == []
    with pytest.raises(SessionNotFound, match="smp restore s1"):
        memory.session("s1")
    memory.undelete_session("s1")
    assert changed(before, files(memory)) == {"active/s1/metadata.yaml"}
    assert memory.deleted_sessions() == []
    assert memory.session("s1").restore("FIND-001").text == "No MFA requirement"


def test_an_archived_session_is_deleted_with_its_archive(memory: Memory, session: Session) -> None:
    fill(session)
    before = files(memory)
    memory.archive_session("s1")
    in_archive = dict(bundle.read(memory.tree, "archived/s1/archive.tar.gz").files())
    memory.delete_session("s1", reason="privacy")
    assert set(files(memory)) == {"deleted/s1/deletion-record.yaml", "deleted/s1/backup.tar.gz"}
    memory.undelete_session("s1")
    assert dict(bundle.read(memory.tree, "archived/s1/archive.tar.gz").files()) == in_archive
    memory.restore_session("s1")
    assert changed(before, files(memory)) == {"active/s1/metadata.yaml"}


def test_a_deletion_needs_a_reason_and_a_session(memory: Memory, session: Session) -> None:
    with pytest.raises(Invalid, match="reason"):
        memory.delete_session("s1", reason=" ")
    with pytest.raises(SessionNotFound):
        memory.delete_session("s2", reason="privacy")
    with pytest.raises(SessionNotFound):
        memory.undelete_session("s1")
    with pytest.raises(SessionNotFound):
        memory.restore_session("s1")
    with pytest.raises(Invalid):
        memory.delete_session("../s1", reason="privacy")


def test_a_dry_run_changes_nothing(memory: Memory, session: Session) -> None:
    fill(session)
    before = files(memory)
    assert memory.archive_session("s1", "why not", dry_run=True).actions[0].reason == "why not"
    assert memory.delete_session("s1", reason="why not", dry_run=True).dry_run
    assert files(memory) == before


def test_a_session_of_the_same_name_is_never_replaced(memory: Memory, session: Session) -> None:
    """A directory that somebody drops into the place of a session in the archive stays as it is, and so does the archive."""
    fill(session)
    memory.archive_session("s1")
    (memory.root / "active/s1").mkdir()
    (memory.root / "active/s1/conversation.md").write_text("## Turn 1\n**Speaker:** user\n\nA new beginning.\n")
    before = files(memory)
    with pytest.raises(Conflict):
        memory.restore_session("s1")
    assert files(memory) == before


def test_a_shell_writes_on_while_sessions_go_and_come(memory: Memory, session: Session) -> None:
    """A loop of unlocked appends against archiving and bringing back: each line that the shell could write is in the session at the
    end; those that found no file were refused by the system, which the shell was told."""
    target = memory.root / "active/s1/conversation.md"
    loop = 'n=0; while [ $n -lt 400 ]; do if printf "line-%d.\\n" $n >> "$1"; then echo $n; fi 2>/dev/null; n=$((n+1)); done'
    with subprocess.Popen(["bash", "-c", loop, "-", target], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as shell:
        rounds = 0
        while shell.poll() is None or rounds < 3:
            memory.archive_session("s1")
            memory.restore_session("s1")
            rounds += 1
        written = shell.stdout.read().split() if shell.stdout else []
    while not all([not move.sweep(memory), not list((memory.root / LEAVING).iterdir())]):
        pass
    memory.session("s1").add_turn("user", "The end.")
    content = target.read_text() + "".join(path.read_text() for path in (memory.root / "quarantine").rglob("*.bytes"))
    assert rounds >= 3
    assert [number for number in written if f"line-{number}.\n" not in content] == []


def new_directory(memory: Memory, text: str = "A new beginning") -> None:
    """As a shell agent makes it, which knows nothing of what has been there."""
    directory = memory.root / "active/s1"
    directory.mkdir()
    (directory / "decisions.yaml").write_text(f"decisions:\n  - id: DEC-001\n    decision: {text}\n    made_by: shell\n")


@pytest.mark.parametrize("summary", [True, False], ids=["with its summary", "without"])
def test_another_session_of_the_same_id_leaves_the_archive_alone(memory: Memory, session: Session, summary: bool) -> None:
    """Archiving it, which would replace the archive, and bringing back are refused with nothing changed. (It was replaced, and an
    archive without a summary removed as a leftover.)"""
    fill(session)
    memory.archive_session("s1")
    if not summary:
        (memory.root / "archived/s1/summary.yaml").unlink()
    new_directory(memory)
    before = files(memory, "archived/")
    with pytest.raises(Conflict, match="archive"):
        memory.archive_session("s1")
    with pytest.raises((Conflict, CorruptionDetected)):
        memory.restore_session("s1")
    tidy(memory)
    assert files(memory, "archived/") == before


def test_another_session_of_the_same_id_leaves_the_deleted_one_alone(memory: Memory, session: Session) -> None:
    """Neither deleting it whole nor deleting one of its memories touches the copy of the session that was deleted before. (Both
    destroyed it.)"""
    fill(session)
    memory.delete_session("s1", reason="no longer wanted")
    new_directory(memory)
    before = files(memory)
    with pytest.raises(Conflict, match="restored"):
        memory.delete_session("s1", reason="again")
    tidy(memory)
    assert files(memory) == before
    memory.session("s1").delete("DEC-001", reason="again")
    assert files(memory)["deleted/s1/backup.tar.gz"] == before["deleted/s1/backup.tar.gz"]


@pytest.mark.parametrize("put_away", ["archive", "delete"])
def test_a_repair_does_not_bring_a_session_back_empty(memory: Memory, session: Session, put_away: str) -> None:
    """Whoever still has the session in hand, and repairs it after somebody else has put it away, makes nothing in its place. (A
    directory with nothing in it came back, and with it the next archive was empty.)"""
    fill(session)
    if put_away == "archive":
        memory.archive_session("s1")
    else:
        memory.delete_session("s1", reason="no longer wanted")
    before = files(memory)
    with pytest.raises(SessionNotFound):
        session.repair()
    assert files(memory) == before
    assert not (memory.root / "active/s1").exists()


def test_one_that_cannot_be_read_does_not_hide_the_others(memory: Memory, session: Session) -> None:
    """Of the packed sessions one has a bundle that is damaged: it is named with what is wrong, beside the rest."""
    for name in ("s2", "s3", "s4"):
        memory.create_session(id=name)
    memory.delete_session("s1", reason="no longer wanted")
    memory.delete_session("s2", reason="no longer wanted")
    memory.archive_session("s3")
    memory.archive_session("s4")
    (memory.root / "deleted/s1/backup.tar.gz").write_bytes(b"torn")
    (memory.root / "archived/s3/archive.tar.gz").write_bytes(b"torn")
    assert [(one.session, "cannot be read" in one.reason) for one in memory.deleted_sessions()] == [("s1", True), ("s2", False)]
    assert [(one.session, "cannot be read" in one.reason) for one in memory.archived_sessions()] == [("s3", True), ("s4", False)]
    memory.undelete_session("s2")
    memory.restore_session("s4")


def test_a_dry_run_of_bringing_back_finishes_nothing(memory: Memory, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(session)
    monkeypatch.setattr(move, "GRACE_S", 3600.0)
    memory.archive_session("s1")
    monkeypatch.setattr(move, "GRACE_S", -1.0)
    left = sorted((memory.root / LEAVING).iterdir())
    assert left
    assert move.unarchive(memory, "s1", dry_run=True).dry_run
    assert sorted((memory.root / LEAVING).iterdir()) == left
