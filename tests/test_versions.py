"""Format versions: an older file answers like a new one, is brought up when it is next written, and a newer one is left alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from daemons import Daemon, settings_file, smp, wait_until

from smp_client import CorruptionDetected, Invalid, Memory, NewerFormat, Session, SMPError
from smp_client.check import check
from smp_client.formats import format_of
from smp_client.layout import FORMAT_VERSION
from smp_client.migration import Found, migrate, migrated, planned
from smp_client.records import DECISION, TURN
from smp_client.versions import number_in, version_in
from smp_client.yaml_indexes import render

GOLDEN = Path(__file__).parent / "golden" / "version-0"
NOW = datetime(2026, 1, 12, 12, tzinfo=UTC)
FILES = sorted(str(path.relative_to(GOLDEN / "before")) for path in (GOLDEN / "before").rglob("*") if path.is_file())
OF_THE_SESSION = [file.removeprefix("active/old/") for file in FILES if file.startswith("active/old/")]


def made(root: Path, which: str) -> Memory:
    """A memory with the session that an SMP of version 0 left behind, or with its twin of version 1."""
    shutil.copytree(GOLDEN / which, root)
    memory = Memory(root, clock=lambda: NOW, count_access=False)
    memory.create()
    return memory


@pytest.fixture
def old(tmp_path: Path) -> Memory:
    return made(tmp_path / "old", "before")


@pytest.fixture
def new(tmp_path: Path) -> Memory:
    return made(tmp_path / "new", "after")


def contents(root: Path) -> dict[str, bytes]:
    """Every file but SMP's own."""
    found = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return {name: content for name, content in found.items() if not name.startswith((".smp/", "audit.log"))}


def name_of(file: str) -> str:
    return file.removeprefix("active/old/").removeprefix("global/")


# Reading.


def answers(memory: Memory) -> dict[str, Any]:
    session = memory.session("old")
    found: dict[str, Any] = {kind.name: [record.data for record in session.records(kind.name)] for kind in session.kinds}
    ids = [data["id"] for records in found.values() for data in records]
    return found | {
        "got": [session.get(memory_id, count_access=False) for memory_id in [*ids, "veritas", "report-1"]],
        "found": [session._find(memory_id) for memory_id in ids],
        "metadata": session.metadata(),
        "state": (session.state, session.agent_state("veritas"), session.agent_state_history("veritas")),
        "artifact": session.artifact("report-1"),
        "turns": (session.turns(), session.turns(last=1)),
        "search": [(one.id, one.session) for one in memory.search("oauth mfa estimates", count_access=False)],
        "topics": (session.topics(), session.timeline(), session.by_agent("veritas"), session.by_topic("mfa")),
        "between": session.by_time(datetime(2026, 1, 11, 14, 40, tzinfo=UTC), datetime(2026, 1, 11, 15, tzinfo=UTC)),
        "related": [one.id for one in session.related("FIND-001")],
        "context": (session.context(), session.agent("veritas").context()),
        "everywhere": (memory.everywhere.records("preference"), memory.everywhere.records("pattern"), memory.everywhere.profile()),
        "indexes": session._asker().ask(lambda view: render(view.index, "old")),
        "quota": session.quota_bytes(),
    }


def test_an_older_file_answers_every_question_like_its_twin_and_keeps_its_bytes(old: Memory, new: Memory) -> None:
    """Whatever is asked, the library gives the values of the present version; asking changes no byte."""
    assert [answers(old)[name] for name in answers(new)] == list(answers(new).values())
    assert answers(old)["turns"][1][0].data["speaker"] == "architect"
    assert answers(old)["decision"][0]["decay"]["access_count"] == 4
    assert check(old) == []
    assert contents(old.root) == contents(GOLDEN / "before")


def test_what_is_appended_to_an_older_file_is_read_in_its_version(old: Memory) -> None:
    """A program of the old version, without a lock: its record is taken into the index by its own bytes alone."""
    session = old.session("old")
    session.search("oauth", count_access=False)
    path = old.root / "active/old/learnings.yaml"
    appended = b"  - id: LEARN-002\n    created: 2026-01-11 15:40:00\n    by: user\n    text: Ask twice\n"
    path.write_bytes(path.read_bytes() + appended)
    assert session.get("LEARN-002").data["learned_by"] == "user"
    assert [one.id for one in session.search("twice")] == ["LEARN-002"]


def test_a_record_of_the_old_form_in_a_new_file_is_not_guessed_at(new: Memory) -> None:
    """The version of the file says what its records mean: unknown fields are kept, and stay what they are."""
    path = new.root / "active/old/learnings.yaml"
    path.write_bytes(path.read_bytes() + b"  - id: LEARN-002\n    by: user\n    text: Ask twice\n")
    assert new.session("old").get("LEARN-002").data == {"id": "LEARN-002", "by": "user", "text": "Ask twice"}
    new.session("old").record_learning("Ask thrice", learned_by="user")
    assert b"    text: Ask twice\n" in path.read_bytes()


def test_a_version_in_a_text_is_not_the_version_of_the_file(tmp_path: Path) -> None:
    """Only the head of a file says it: not what somebody said, a field of a record, or a file of somebody else. (A turn with a line
    `version: 2` could not be got, as long as the first lines of the file were looked through for one.)"""
    session = Memory(tmp_path).create_session(id="s")
    session.add_turn("user", "version: 2\n**Format-Version:** 2\n")
    session.record_decision("as it is", made_by="me", version=2, library={"version": 2})
    session.save_artifact("plan", "version: 2\n")
    (tmp_path / "active/s/artifacts/plain.md").write_text("version: 2\n---\nversion: 2\n")
    for file, memory_id in ((TURN, "turn-1"), (DECISION, "DEC-001")):
        content = (tmp_path / "active/s" / file.file).read_bytes()
        assert format_of(file).find(content, memory_id) == format_of(file).parse(content).records[0]
    session.update("DEC-001", confidence="low")
    session.add_turn("user", "and so on")
    assert session.artifact("plan").text == "version: 2\n"
    assert session.artifact("plain").text.startswith("version: 2")
    assert check(Memory(tmp_path)) == []


STYLES = [
    b"version: 2\ndecisions: []\n", b"\xef\xbb\xbfversion: 2\ndecisions:\n", b'{"version": 2, "decisions": []}',
    b"'version': \"2\"  # later\ndecisions:\n", b"decisions:\n- {id: A}\nversion: 2\n",
    b"# much\n" * 1000 + b"version: 2\ndecisions:\n",
]  # fmt: skip


@pytest.mark.parametrize("content", STYLES)
def test_the_version_is_seen_in_every_style(tmp_path: Path, content: bytes) -> None:
    """Written by hand, by another program, or far down: who reads all of it and who only looks say the same."""
    assert version_in("decisions.yaml", content) == 2
    session = Memory(tmp_path).create_session(id="s")
    (tmp_path / "active/s/decisions.yaml").write_bytes(content)
    for refused in (lambda: session.records("decision"), lambda: session.record_decision("x", made_by="me")):
        with pytest.raises(NewerFormat):
            refused()
    assert (tmp_path / "active/s/decisions.yaml").read_bytes() == content


# Writing.

WRITES: dict[str, tuple[list[str], Callable[[Session], object]]] = {
    "append": (["decisions.yaml"], lambda session: session.record_decision("one more", made_by="me")),
    "append to a flow list": (["preferences.yaml"], lambda session: session.record_preference("one more", confidence="explicit")),
    "turn": (["conversation.md"], lambda session: session.add_turn("user", "one more")),
    "update": (["findings.yaml"], lambda session: session.resolve_finding("FIND-001", resolved_by="me", action_taken="none")),
    "pin": (["conversation.md"], lambda session: session.pin("turn-2")),
    "metadata": (["metadata.yaml"], lambda session: session.update_metadata(context={"project_phase": "design"})),
    "state": (["agent-states/veritas.yaml", "agent-states/history/veritas.yaml"],
              lambda session: session.save_agent_state("veritas", {"current_context": {"task": "rest"}})),
    "artifact": (["artifacts/report-1.md"], lambda session: session.save_artifact("report-1", "# Another\n")),
}  # fmt: skip


def test_each_file_is_brought_up_as_it_should_be() -> None:
    """The files of version 1 beside those of version 0 are what people have looked at. Comments stay, an unchanged record keeps its
    bytes, and what is of the present version is not touched."""
    for file in FILES:
        after = migrated(name_of(file), (GOLDEN / "before" / file).read_bytes())
        assert after.decode() == (GOLDEN / "after" / file).read_text(), file
        assert migrated(name_of(file), after) == after
        assert version_in(name_of(file), after) == FORMAT_VERSION


@pytest.mark.parametrize("write", WRITES)
def test_a_write_brings_its_file_up_first_and_leaves_the_others(old: Memory, new: Memory, write: str) -> None:
    """The same write into the twin gives the same: no record of the new form ever stands below the old version."""
    files, do = WRITES[write]
    do(old.session("old"))
    do(new.session("old"))
    after, twin = contents(old.root / "active/old"), contents(new.root / "active/old")
    before = contents(GOLDEN / "before/active/old")
    for file in files:
        # A state is filed in the order in which it was read.
        assert after[file] == twin[file] or yaml.safe_load(after[file]) == yaml.safe_load(twin[file])
    assert {file: content for file, content in after.items() if file not in files} == {
        file: content for file, content in before.items() if file not in files}  # fmt: skip


def test_a_transaction_brings_up_what_it_writes(old: Memory, new: Memory) -> None:
    """That the file is another one than it has read, because it was brought up meanwhile, is no conflict."""
    for memory in (old, new):
        with memory.session("old").transaction() as tx:
            tx.record_finding("one more", discovered_by="veritas")
            tx.update("DEC-002", confidence="low")
            tx.save_agent_state("veritas", {"mood": "calm"})
            tx.save_artifact("report-1", "# Another\n")
    assert [answers(old)[name] for name in answers(new)] == list(answers(new).values())
    assert {one.file for one in planned(old.session("old").scope)} == {
        "metadata.yaml", "conversation.md", "preferences.yaml", "learnings.yaml", "relationships.yaml"}  # fmt: skip


def delete_and_undelete(memory: Memory) -> None:
    memory.delete_session("old", reason="privacy")
    memory.undelete_session("old")


PASSES: dict[str, Callable[[Memory], object]] = {
    # What shows no decay yet is first brought up, and shows it after the next pass.
    "decay": lambda memory: [memory.session("old").decay() for _ in range(2)],
    "compact": lambda memory: memory.session("old").compact(reduction_pct=50),
    "delete": lambda memory: memory.delete("old", ["DEC-001", "turn-1"], reason="privacy"),
    "archive": lambda memory: (memory.archive_session("old"), memory.restore_session("old")),
    "delete_session": delete_and_undelete,
    "deactivate": lambda memory: memory.session("old").deactivate(),
    "anonymize": lambda memory: memory.anonymize("old"),
}  # fmt: skip


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_over_an_old_session_ends_where_it_does_with_its_twin(old: Memory, new: Memory, name: str) -> None:
    """Every pass works on files of the present version, so that none of them need know of another."""
    for memory in (old, new):
        memory.options = Memory(memory.root, clock=lambda: NOW + timedelta(days=200), count_access=False).options
        PASSES[name](memory)
    said, twin = answers(old), answers(new)
    assert {key: said[key] for key in said if key != "metadata"} == {key: twin[key] for key in twin if key != "metadata"}
    assert name == "deactivate" or planned(old.session("old").scope) == []


def test_what_was_deleted_from_an_old_session_comes_back(old: Memory, new: Memory) -> None:
    """A copy is of the version that its file had then; bytes of one version are not put into a file of another."""
    ids = ["DEC-001", "PREF-001", "turn-1", "veritas", "report-1"]
    session = old.session("old")
    session.delete(ids, reason="privacy")
    assert "DEC-001" not in [record.id for record in session.records("decision")]
    old.restore("old", ids)
    said, twin = answers(old), answers(new)
    assert {name: said[name] for name in ("decision", "conversation_turn", "state", "artifact", "got")} == {
        name: twin[name] for name in ("decision", "conversation_turn", "state", "artifact", "got")}  # fmt: skip


def test_a_dry_run_changes_no_byte(old: Memory) -> None:
    """Saying what would be done is reading."""
    session = old.session("old")
    session.decay(dry_run=True)
    session.compact(reduction_pct=50, dry_run=True)
    session.repair(dry_run=True)
    old.archive_session("old", dry_run=True)
    old.delete_session("old", reason="r", dry_run=True)
    old.age_sessions(dry_run=True)
    old.delete("old", ["DEC-001"], reason="r", dry_run=True)
    old.anonymize("old", dry_run=True)
    migrate(session.scope, dry_run=True)
    assert contents(old.root) == contents(GOLDEN / "before")


def test_an_export_of_old_files_is_of_the_present_version(old: Memory, new: Memory, tmp_path: Path) -> None:
    """Who takes it in need not know of an older one."""
    for memory in (old, new):
        memory.export(tmp_path / f"{memory.root.name}.jsonl")
    lines = [(tmp_path / f"{name}.jsonl").read_text().splitlines()[1:] for name in ("old", "new")]
    assert lines[0] == lines[1]
    assert contents(old.root) == contents(GOLDEN / "before")


def test_an_old_record_that_cannot_be_read_keeps_its_file_in_its_version(old: Memory) -> None:
    """Below a new version its old words would mean nothing. The others are read; mended, it says what it said."""
    path = old.root / "active/old/findings.yaml"
    further = b"- id: FIND-002\n  text: 'never closed\n- id: FIND-003\n  by: veritas\n  text: after it\n"
    path.write_bytes(before := path.read_bytes() + further)
    session = old.session("old")
    line = before.count(b"\n", 0, before.index(b"- id: FIND-002")) + 1
    with pytest.raises(CorruptionDetected, match=r"findings\.yaml has format version 0 and cannot be brought up to 1: line"):
        session.record_finding("one more", discovered_by="veritas")
    for dry_run in (True, False):
        outcome = migrate(session.scope, dry_run=dry_run)
        assert [problem for problem in outcome.problems if "findings.yaml" in problem]
        assert "findings.yaml" not in [action.about[0] for action in outcome.actions]
    assert path.read_bytes() == before
    assert [record.text for record in session.records("finding")] == ["No MFA requirement", "after it"]
    assert [(problem.file, problem.line >= line) for problem in session.problems()] == [("findings.yaml", True)]
    path.write_bytes(before.replace(b"'never closed", b"closed now"))
    session.record_finding("one more", discovered_by="veritas")
    assert [record.text for record in session.records("finding")] == ["No MFA requirement", "closed now", "after it", "one more"]


@pytest.mark.parametrize(("records", "is_brought_up"), [
    (b"\n- id: DEC-001\n  text: b\n- id: DEC-002 # smp\n  te", True),  # a write that was cut off, and is set aside by the next
    (b"\n- id: DEC-001\n  text: b\n- text: without an id\n", False),
    (b" [{id: DEC-001, # why\n text: b}, # and so\n]\n", True),
])  # fmt: skip
def test_nothing_that_a_person_wrote_is_lost_on_the_way_up(records: bytes, is_brought_up: bool) -> None:
    content = b"version: 0\ndecisions:" + records
    if not is_brought_up:
        with pytest.raises(CorruptionDetected, match="must have an id"):
            migrated("decisions.yaml", content)
        return
    after = migrated("decisions.yaml", content)
    assert after.startswith(b"version: 1\n")
    assert [comment in after for comment in (b"# why", b"# and so") if comment in content] in ([], [True, True])
    assert [one.value["decision"] for one in format_of(DECISION).parse(after).records] == ["b"]


def test_an_old_file_that_is_no_list_at_all_is_refused(old: Memory) -> None:
    """Nothing is written below a version that its records would not have; and the rest of the session goes on."""
    path = old.root / "active/old/findings.yaml"
    path.write_bytes(broken := b"version: 0\nfindings: {what: [}\n")
    session = old.session("old")
    with pytest.raises(CorruptionDetected, match="version 0"):
        session.record_finding("one more", discovered_by="veritas")
    session.decay()
    assert path.read_bytes() == broken
    assert planned(session.scope) == [Found("findings.yaml", 0)]
    assert [problem for problem in migrate(session.scope).problems if "findings.yaml" in problem]


# smp migrate.


def test_smp_migrate_brings_everything_up_and_says_what(old: Memory) -> None:
    """Every file with the version that it had; a second run has nothing to do; a dry run does nothing."""
    arguments = ("migrate", "--all", "--root", old.root, "--json")
    would = json.loads(smp(*arguments, "--dry-run").stdout)
    assert contents(old.root) == contents(GOLDEN / "before")
    done = json.loads(smp(*arguments).stdout)
    assert contents(old.root) == contents(GOLDEN / "after")
    named = {(action["session"], *action["about"]) for action in done["actions"]}
    assert named == {("global" if file.startswith("global/") else "old", name_of(file)) for file in FILES}
    assert {(action["session"], *action["about"]) for action in would["actions"]} == named
    assert "version 0" in done["actions"][0]["reason"]
    assert {"session": "old", "file": "artifacts/report-1.md", "from": 0, "to": 1} in done["files"]
    again = smp(*arguments[:-1])
    assert (again.returncode, again.stdout) == (0, "Every file is of this version.\n")
    assert smp("migrate", "--root", old.root).returncode == 2


def test_smp_migrate_of_one_session_leaves_the_rest(old: Memory) -> None:
    """And names what it must leave alone: that is no success."""
    path = old.root / "active/old/findings.yaml"
    path.write_bytes(later := path.read_bytes().replace(b"version: 0", b"version: 7"))
    done = smp("migrate", "old", "--root", old.root)
    assert done.returncode == 1
    assert "active/old/findings.yaml has format version 7" in done.stderr
    assert path.read_bytes() == later
    assert planned(old.session("old").scope) == [Found("findings.yaml", 7)]
    assert {one.file for one in planned(old.everywhere.scope)} == {name_of(file) for file in FILES if file.startswith("global/")}


def test_what_was_archived_in_the_old_version_is_brought_up_when_it_is_back(old: Memory, new: Memory) -> None:
    """An archive keeps the bytes that it was made of. (Made here of a session that no pass has brought up.)"""
    from smp_client.maintain import archive, leaving, summary_file

    session = old.session("old")
    said = summary_file.content(session)
    leaving.leave(session.scope, "archived", archive._copy(old, "old", "active/old", said, "long ago"))
    archive._note(old.tree, "old", archive.IN_ARCHIVE, None)
    leaving.finish(old, "old")
    assert smp("migrate", "--all", "--root", old.root).returncode == 0
    old.restore_session("old")
    back = old.session("old")
    assert (old.root / "active/old/decisions.yaml").read_bytes() == (GOLDEN / "before/active/old/decisions.yaml").read_bytes()
    assert back.metadata()["context"] == new.session("old").metadata()["context"]
    migrate(back.scope)
    after, twin = contents(old.root / "active/old"), contents(GOLDEN / "after/active/old")
    assert {file: after[file] for file in twin if file != "metadata.yaml"} == {
        file: twin[file] for file in twin if file != "metadata.yaml"}  # fmt: skip


# A newer version.


def make_newer(memory: Memory, file: str) -> bytes:
    path = memory.root / "active/old" / file
    content = path.read_bytes()
    place = number_in(file, content)
    assert place is not None
    path.write_bytes(later := content[: place[0]] + b"2" + content[place[1] :])
    return later


EVERYTHING: list[Callable[[Memory], object]] = [
    *(lambda memory, do=do: do(memory.session("old")) for _, do in WRITES.values()),
    *PASSES.values(),
    lambda memory: memory.session("old").repair(),
    lambda memory: memory.session("old").bring_back(),
    lambda memory: memory.age_sessions(),
    lambda memory: memory.delete("old", ["REL-001"], reason="r"),
    lambda memory: memory.purge_now("old", ["LEARN-001"]),
    lambda memory: migrate(memory.session("old").scope),
    answers,
]  # fmt: skip


@pytest.mark.parametrize("file", OF_THE_SESSION)
def test_a_newer_file_is_left_alone_by_everything(new: Memory, file: str) -> None:
    """Read, written, passed over or put away: it is refused with its name and version, or not looked at, and its bytes and its
    place stay. What is in other sessions is as usual. (Saving an artifact over one of a later version replaced it.)"""
    later = make_newer(new, file)
    path = new.root / "active/old" / file
    refused: list[str] = []
    failed: list[str] = []
    new.options = Memory(new.root, clock=lambda: NOW + timedelta(days=200), count_access=False).options
    for do in EVERYTHING:
        try:
            do(new)
        except NewerFormat as error:
            refused.append(str(error))
        except SMPError as error:
            failed.append(f"{type(error).__name__}: {error}")
        assert path.read_bytes() == later
    assert len(refused) > 2
    assert [said for said in refused if file not in said or "version 2" not in said or "upgrade" not in said] == []
    assert [said for said in failed if not said.startswith("MemoryNotFound")] == []
    assert [one.file for one in check(new) if "version 2" in one.problem] in ([file], [])
    assert new.create_session(id="other").record_decision("goes on", made_by="me").id == "DEC-001"
    assert [session.id for session in new.sessions(state="active")][-1:] == ["other"]


def test_a_note_that_a_later_version_left_is_not_believed(new: Memory) -> None:
    """The last writer's note says that the file is the same: but it was the writer of another version who knew it."""
    session = new.session("old")
    session.record_decision("one", made_by="me")
    later = make_newer(new, "decisions.yaml")
    status = (new.root / "active/old/decisions.yaml").stat()
    lock = new.root / ".smp/locks/old/decisions.yaml.lock"
    held = json.loads(lock.read_text())
    held["note"] |= {"version": 2, "size": status.st_size,
                     "file": [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]}  # fmt: skip
    lock.write_text(json.dumps(held))
    with pytest.raises(NewerFormat):
        session.record_decision("two", made_by="me")
    assert (new.root / "active/old/decisions.yaml").read_bytes() == later


def test_a_root_of_a_later_version_is_refused_as_a_whole(new: Memory) -> None:
    """Nothing is read, written or made there; status does not say that it is well."""
    (new.root / ".smp/root.json").write_text('{"version": 2}\n')
    before = contents(new.root)
    for refused in (lambda: new.session("old"), lambda: new.create_session(id="x"), new.create, lambda: new.search("oauth")):
        with pytest.raises(NewerFormat, match=r"root\.json"):
            refused()
    asked = smp("status", "--root", new.root)
    assert asked.returncode == 3
    assert "version 2" in asked.stdout
    assert smp("run", "--root", new.root).returncode == 1
    assert contents(new.root) == before


def test_an_artifact_cannot_be_saved_with_a_version_of_its_own(new: Memory) -> None:
    """Nobody could read it afterwards."""
    with pytest.raises(Invalid, match="version"):
        new.session("old").save_artifact("plan", "text", version=2)


def test_a_daemon_answers_for_old_files_and_goes_on_beside_newer_ones(old: Memory, tmp_path: Path) -> None:
    """It says which file it had to leave alone, indexes the others as if they were new, and takes in drops."""
    later = make_newer(old, "findings.yaml")
    daemon = Daemon([old.root], tmp_path / "log", settings_file(tmp_path))
    try:
        daemon.wait_ready()
        drop = old.root / "active/old/inbox/one.yaml"
        drop.parent.mkdir(exist_ok=True)
        drop.write_text("type: decision\nmade_by: me\ntext: taken in\n")
        wait_until(lambda: not drop.exists(), "the drop is taken in")
        session = old.session("old")
        assert [record.id for record in session.search("taken in", types=["decision"])][:1] == ["DEC-008"]
        wait_until(lambda: (old.root / "active/old/indexes/topics.yaml").exists(), "the indexes are made")
        assert "1 file holds something that cannot be read" in smp("status", "--root", old.root).stdout
        assert version_in("decisions.yaml", (old.root / "active/old/decisions.yaml").read_bytes()) == FORMAT_VERSION
        assert (old.root / "active/old/findings.yaml").read_bytes() == later
        assert any("findings.yaml" in json.dumps(line) for line in daemon.lines())
    finally:
        daemon.stop()
