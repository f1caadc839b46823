"""Moving in from elsewhere, step by step: a backup, the import, priorities, and a comparison that notices whatever is lost."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from layouts_data import CHECKED_EXAMPLE, MEMLOG_EXAMPLE, PER_KIND_EXAMPLE, SINGLE_EXAMPLE, with_checksum, write_lines
from test_importing_layouts import WRITERS, contents, source_of, write_checks, write_kinds, write_log, write_single

from smp_client import CorruptionDetected, Invalid, Memory, Session
from smp_client.exchange.backup import back_up, directory_of, not_backed_up
from smp_client.exchange.layouts import recognise
from smp_daemon.cli import smp as main_command


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """With memories in two layouts, a log, and one line that nobody can read."""
    write_kinds(tmp_path / "shop/.bmad/memory")
    path = write_lines(tmp_path / "shop/memory/two.jsonl", SINGLE_EXAMPLE)
    path.write_text(path.read_text() + '{"id": "torn')
    (tmp_path / "shop/docs/brainstorm-2026-06-07").mkdir(parents=True)
    (tmp_path / "shop/docs/brainstorm-2026-06-07/.memlog.md").write_text(MEMLOG_EXAMPLE)
    (tmp_path / "shop/src").mkdir()
    (tmp_path / "shop/src/main.py").write_text("print()")
    return tmp_path / "shop"


def run(root: Path, *arguments: object, code: int = 0) -> Result:
    done = CliRunner().invoke(main_command, [*map(str, arguments), "--root", str(root)])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def files_in(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


# All steps.


def test_a_migration_takes_every_step(project: Path) -> None:
    """Backup, import with what logs mark, priorities, comparison; the old files stay; the torn line is the only complaint."""
    root = project / ".bmad/sessions"
    before = files_in(project)
    done = run(root, "import", project, "--migrate", "--json", code=1)
    said = json.loads(done.stdout)
    assert [one["layout"] for one in said["found"]] == ["jsonl-per-kind", "jsonl", "markdown-log"]
    assert (said["backup"]["files"], said["backup"]["is_new"]) == (8, True)
    assert said["imported"]["added"] == 19
    assert (said["verified"]["is_whole"], said["verified"]["quarantined"]) == (True, 1)
    assert {name: one["source"] for name, one in said["verified"]["sessions"].items()} == {
        "global": 2, "s1": 5, "two": 4, "brainstorm-2026-06-07": 8
    }  # fmt: skip
    memory = Memory(root)
    assert memory.session("two").get("m002").data["decay"]["priority"] < 0.95  # it is months old
    assert memory.session("brainstorm-2026-06-07").records("decision")
    assert {name: content for name, content in files_in(project).items() if name in before} == before


def test_a_migration_may_be_repeated(project: Path) -> None:
    """It finds its backup, adds nothing, and comes to the same end."""
    root = project / ".bmad/sessions"
    run(root, "import", project, "--migrate", code=1)
    before, backup = contents(root), files_in(project / ".bmad/backup-pre-smp")
    again = run(root, "import", project, "--migrate", code=1)
    assert "made before and left as it is" in again.stdout
    assert "0 memories added, 19 there already" in again.stdout
    assert "19 of 19 memories are here, 1 line in quarantine; nothing is lost" in again.stdout
    assert "keep the backup for 30 days" in again.stdout
    assert contents(root) == before
    assert files_in(project / ".bmad/backup-pre-smp") == backup


def test_a_dry_run_of_a_migration_writes_nothing(project: Path) -> None:
    before = files_in(project)
    said = run(project / ".bmad/sessions", "import", project, "--migrate", "--dry-run", code=1).stdout
    assert "backup: 8 files would be copied to" in said
    assert "nothing was changed" in said
    assert files_in(project) == before


def test_what_was_found_is_told_with_why(project: Path) -> None:
    said = run(project / ".bmad/sessions", "import", project, "--dry-run", code=1).stdout
    assert "found jsonl: 1 session (memory/two.jsonl: its lines have 'type', 'ts' and 'data')" in said
    assert "brainstorm-2026-06-07/.memlog.md is a memlog" in said


def test_what_does_not_go_together_is_refused(project: Path) -> None:
    root = project / ".bmad/sessions"
    run(root, "import", project, "--migrate", "--verify", code=2)
    run(root, "import", project, "--as", "xml", code=2)
    run(root, "import", "-", "--verify", code=2)
    run(root, "import", "-", "--as", "jsonl", code=2)
    refused = run(root, "import", project, "--as", "jsonl-checked", code=1)
    assert "nothing in the layout jsonl-checked" in str(refused.exception)
    assert not root.exists()


def test_only_one_layout_is_imported_where_it_is_named(project: Path) -> None:
    root = project / ".bmad/sessions"
    run(root, "import", project, "--as", "markdown-log", "--no-extract")
    memory = Memory(root)
    assert [session.id for session in memory.sessions()] == ["brainstorm-2026-06-07"]
    assert not memory.session("brainstorm-2026-06-07").records("decision")


# The backup.


def test_the_backup_is_what_is_imported_and_nothing_else(project: Path, memory: Memory) -> None:
    done = back_up(memory, recognise(project))
    listed = json.loads((done.path / "backup.json").read_text())
    assert {one["path"] for one in listed["files"]} == {
        ".bmad/memory/shared/agent-knowledge.json", ".bmad/memory/sessions/s1/manifest.json", "memory/two.jsonl",
        "docs/brainstorm-2026-06-07/.memlog.md", *(f".bmad/memory/sessions/s1/{name}" for name in PER_KIND_EXAMPLE),
    }  # fmt: skip
    for one in listed["files"]:
        content = (done.path / "files" / one["path"]).read_bytes()
        assert content == (project / one["path"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == one["sha256"]
    assert done.path.stat().st_mode & 0o077 == 0
    assert not (done.path.parent / ".smp").exists()


def test_a_backup_is_never_overwritten(project: Path, memory: Memory) -> None:
    first = back_up(memory, recognise(project))
    (project / "memory/two.jsonl").write_text("other\n")
    second = back_up(memory, recognise(project))
    assert (second.is_new, second.files, second.bytes) == (False, first.files, first.bytes)
    assert (first.path / "files/memory/two.jsonl").read_text() != "other\n"


def test_what_an_earlier_backup_lacks_is_in_a_further_one(project: Path, memory: Memory) -> None:
    """Files that have grown since, and those that were not read the first time."""
    first = back_up(memory, recognise(project, "jsonl-per-kind"))
    second = back_up(memory, recognise(project))
    assert (second.is_new, second.files, second.path.name, second.earlier) == (True, 2, f"{first.path.name}-2", [first.path])
    with (project / "memory/two.jsonl").open("a") as file:
        file.write("\n{}\n")
    assert not_backed_up(memory, recognise(project)) == ["memory/two.jsonl"]
    third = back_up(memory, recognise(project))
    assert (third.files, third.path.name) == (1, f"{first.path.name}-3")
    assert (third.path / "files/memory/two.jsonl").read_bytes() == (project / "memory/two.jsonl").read_bytes()
    assert not_backed_up(memory, recognise(project)) == []
    assert not back_up(memory, recognise(project)).is_new


def test_old_files_may_go_only_when_nothing_needs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not while something cannot be read, is missing here, or was written to since the backup."""
    root, archive = tmp_path / "root/sessions", tmp_path / "from/archive/old.tar.gz"
    write_kinds(tmp_path / "from")
    archive.parent.mkdir()
    archive.write_bytes(b"no archive")
    said = run(root, "import", tmp_path / "from", "--migrate", code=1).stdout
    assert "Keep the old files (1 thing that could not be read)" in said
    assert "remove them" not in said
    assert "nothing is lost" not in run(root, "import", tmp_path / "from", "--verify", code=1).stdout
    archive.unlink()
    assert "remove them when you like" in run(root, "import", tmp_path / "from", "--migrate").stdout

    def grow(*_: object) -> int:
        with (tmp_path / "from/sessions/s1/decisions.jsonl").open("a") as file:
            file.write("\n")
        return 1

    monkeypatch.setattr("smp_daemon.cli.importing.set_priorities", grow)
    said = run(root, "import", tmp_path / "from", "--migrate").stdout
    assert "Keep the old files (1 file written to since the backup, sessions/s1/decisions.jsonl among them)" in said
    path = root / "active/s1/findings.yaml"
    path.write_text(path.read_text().replace("version: 1", "version: 9", 1))
    assert "Keep the old files" in run(root, "import", tmp_path / "from", "--migrate", code=1).stdout


def test_what_was_not_taken_in_keeps_the_old_files(tmp_path: Path) -> None:
    """Of a session that is deleted here, whatever came there since is nowhere else."""
    root, source = tmp_path / "root/sessions", tmp_path / "theirs"
    source.mkdir()
    line = '{"id": "%s", "type": "decision", "ts": "2026-01-11T14:30:00Z", "data": {"decision": "Use %s"}}\n'
    (source / "s9.jsonl").write_text(line % ("a", "OAuth"))
    assert "remove them when you like" in run(root, "import", source, "--migrate").stdout
    run(root, "delete", "s9", "--reason", "r")
    (source / "s9.jsonl").write_text(line % ("a", "OAuth") + line % ("b", "Redis"))
    assert "Keep the old files (s9 not taken in)" in run(root, "import", source, "--migrate").stdout


def test_a_backup_that_was_cut_off_is_gone_on_with(project: Path, memory: Memory) -> None:
    """Whatever a killed run has left is no backup; what of it is right is kept."""
    whole = back_up(memory, recognise(project)).path
    part = whole.parent / f".{whole.name}.part"
    whole.rename(part)
    (part / "backup.json").unlink()
    (part / "files/memory/two.jsonl").write_text('{"id"')
    assert back_up(memory, recognise(project)).is_new
    assert (whole / "files/memory/two.jsonl").read_bytes() == (project / "memory/two.jsonl").read_bytes()
    assert not part.exists()


def test_a_backup_that_was_changed_is_not_believed(project: Path, memory: Memory) -> None:
    whole = back_up(memory, recognise(project)).path
    (whole / "files/memory/two.jsonl").write_text("changed")
    with pytest.raises(CorruptionDetected, match=r"two\.jsonl"):
        back_up(memory, recognise(project))
    (whole / "files/memory/two.jsonl").unlink()
    with pytest.raises(Invalid, match="move it away"):
        back_up(memory, recognise(project))


def test_the_backup_is_not_imported(project: Path, memory: Memory) -> None:
    """The logs in it have the same names; whoever wants them back names the backup itself."""
    memory = Memory(project / ".bmad/sessions")
    back_up(memory, recognise(project))
    assert not [file for found in recognise(project) for file in found.files() if "backup-pre-smp" in file]
    shutil.rmtree(project / "memory")
    elsewhere = Memory(project.parent / "elsewhere")
    assert "two" in elsewhere.import_(directory_of(memory, project) / "files").sessions


# The comparison.


@pytest.mark.parametrize("layout", WRITERS)
def test_what_was_just_imported_is_whole(layout: str, memory: Memory, tmp_path: Path) -> None:
    source = source_of(layout, tmp_path / "from")
    before = memory.verify_import(source)
    assert not before.is_whole
    assert before.total("missing") == before.total("source") > 0
    assert not memory.root.exists()
    memory.import_(source)
    files = contents(memory.root)
    done = memory.verify_import(source)
    assert (done.missing, done.changed, done.notes) == ([], [], [])
    assert done.total("found") == done.total("source") == before.total("source")
    assert all(one.source_sha256 == one.tree_sha256 for one in done.sessions.values())
    assert contents(memory.root) == files


def lose_a_decision(session: Session) -> None:
    path = session.scope.tree.root / "active/s1/decisions.yaml"
    lines = path.read_text().splitlines(keepends=True)
    start = next(number for number, line in enumerate(lines) if "mem_abc123xyz" in line)
    path.write_text("".join(lines[:start]))


def change_a_decision(session: Session) -> None:
    path = session.scope.tree.root / "active/s1/decisions.yaml"
    path.write_text(path.read_text().replace("Authorization Code flow", "Implicit flow"))


def lose_the_session(session: Session) -> None:
    shutil.rmtree(session.scope.tree.root / "active/s1")


def change_a_time(session: Session) -> None:
    path = session.scope.tree.root / "active/s1/conversation.md"
    path.write_text(path.read_text().replace("10:00:00", "11:00:00"))


def change_a_reference(session: Session) -> None:
    path = session.scope.tree.root / "active/s1/decisions.yaml"
    path.write_text(path.read_text().replace("turn-2", "turn-1"))


@pytest.mark.parametrize(("damage", "told"), [
    (lose_a_decision, "s1: mem_abc123xyz is not here"),
    (change_a_decision, "note: s1: mem_abc123xyz was changed in its file since it came: its text"),
    (lose_the_session, "s1: there is no such session here"),
    (change_a_time, "note: s1: turn-1 (there mem_001) was changed in its file since it came: its time"),
    (change_a_reference, "s1: mem_abc123xyz refers to something else here"),
])  # fmt: skip
def test_whatever_is_lost_or_changed_is_named(damage: Callable[[Session], None], told: str, memory: Memory, tmp_path: Path) -> None:
    """A file may be edited, so a memory that says something else than when it came is only a note."""
    write_lines(tmp_path / "from/s1/memory.jsonl", [with_checksum({**line, "session_id": "s1"}) for line in CHECKED_EXAMPLE])
    memory.import_(tmp_path / "from")
    damage(memory.session("s1"))
    code = 0 if told.startswith("note") else 1
    done = run(memory.root, "import", tmp_path / "from", "--verify", code=code)
    assert told in done.stderr
    said = json.loads(run(memory.root, "import", tmp_path / "from", "--verify", "--json", code=code).stdout)["verified"]
    assert said["is_whole"] == (code == 0)
    assert told.removeprefix("note: ") in said["missing"] + said["changed"] + said["notes"]


def test_what_happened_here_since_is_no_loss(memory: Memory, tmp_path: Path) -> None:
    """What was deleted, purged, changed, added or archived through SMP is counted, and nothing is missing."""
    write_checks(tmp_path / "from")
    memory.import_(tmp_path / "from")
    session = memory.session("s1")
    session.update("mem_abc123xyz", confidence="low")
    session.delete("turn-1", reason="asked to")
    session.record_decision("Mine", made_by="me")
    done = memory.verify_import(tmp_path / "from")
    assert done.is_whole, (done.missing, done.changed)
    counts = done.sessions["s1"]
    assert (counts.source, counts.found, counts.deleted, counts.updated, counts.extra) == (3, 2, 2, 1, 1)
    memory.archive_session("s1", "done")
    assert memory.verify_import(tmp_path / "from").is_whole
    memory.purge_now("s1", ["turn-1"])
    assert memory.verify_import(tmp_path / "from").is_whole
    memory.delete_session("s1", reason="asked to")
    assert memory.verify_import(tmp_path / "from").is_whole


def test_a_line_that_cannot_be_read_is_in_quarantine_and_not_lost(memory: Memory, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "s1.jsonl", SINGLE_EXAMPLE)
    path.write_text(path.read_text() + "nonsense\nmore nonsense\n")
    memory.import_(path)
    done = memory.verify_import(path)
    assert (done.is_whole, done.quarantined, len(done.notes)) == (True, 2, 2)
    shutil.rmtree(memory.root / "quarantine/s1")  # by somebody who has looked at it
    done = memory.verify_import(path)
    assert (done.is_whole, done.quarantined, done.removed) == (True, 0, 2)
    said = run(memory.root, "import", path, "--verify").stdout
    assert "2 lines that cannot be read and are not in quarantine; nothing else is lost" in said


def test_an_export_is_compared_as_well(memory: Memory, session: Session, tmp_path: Path) -> None:
    """With states, artifacts, relationships, what compaction took out, the archive and the profile."""
    decision, finding = session.record_decision("x", made_by="a"), session.record_finding("y", discovered_by="b", severity="low")
    session.relate(decision.id, finding.id, "resolves")
    session.save_agent_state("veritas", {"mood": "calm"})
    session.save_artifact("report", "# Report\n")
    memory.everywhere.save_profile(name="Ann")
    memory.everywhere.record_preference("Tea")
    memory.create_session(id="packed").add_turn("user", "Long ago")
    memory.archive_session("packed", "done")
    memory.export(tmp_path / "x.yaml")
    other = Memory(tmp_path / "other")
    assert len(other.verify_import(tmp_path / "x.yaml").missing) > 5
    other.import_(tmp_path / "x.yaml")
    assert other.verify_import(tmp_path / "x.yaml").is_whole
    (other.root / "active/s1/artifacts/report.md").write_text("# Other\n")
    (other.root / "active/s1/agent-states/veritas.yaml").unlink()
    told = other.verify_import(tmp_path / "x.yaml").missing
    assert told == ["s1: the state of veritas is not here", "s1: artifact report is not here, or not the same"]


def test_nothing_of_a_source_stays_unnoticed(memory: Memory, tmp_path: Path) -> None:
    """Each memory that is taken out of an import is missed by the comparison: it looks at every one of them."""
    for write in (write_single, write_kinds, write_checks, write_log):
        shutil.rmtree(tmp_path / "from", ignore_errors=True)
        write(tmp_path / "from")
        given = [one.entry for found in recognise(tmp_path / "from") for part in found.parts for one in part()]
        memories: list[Any] = [entry for entry in given if entry and entry["entry"] == "memory" and "imported" in entry["record"]]
        for left_out in memories:
            other = Memory(tmp_path / "other")
            other.import_(tmp_path / "from", transform=lambda entry, out=left_out: None if entry == out else entry)  # type: ignore[misc]
            assert len(other.verify_import(tmp_path / "from").missing) == 1, left_out
            shutil.rmtree(tmp_path / "other")


def test_a_purge_says_that_the_backup_still_holds_it(memory: Memory, tmp_path: Path) -> None:
    """And nothing of how an import keeps its books is taken for words of somebody."""
    path = tmp_path / "talk.md"
    path.write_text("User: my secret garden is large\n\nAssistant: so it is, and blooming\n")
    run(memory.root, "import", path, "--migrate")
    session = memory.session("talk")
    session.delete("turn-1", reason="asked to")
    notes = memory.purge_now("talk", ["turn-1"]).notes
    assert [note for note in notes if "backup-pre-smp holds what was imported" in note] == notes
