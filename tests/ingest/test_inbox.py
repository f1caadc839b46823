"""Drops of any program: a running daemon takes them in, and nothing is lost in silence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import Daemon, running, smp, status, wait_until

from smp_client import Session
from smp_client.disk import journal
from smp_client.disk.quarantine import waiting
from smp_client.model.deadline import interruptible
from smp_daemon.ingest import inbox

SECRET = "ghp_" + "40Ab3dE5gH7jK9mN1pQ3sT5vW7yZ9bD1fG3h"


@pytest.fixture
def daemon(session: Session, tmp_path: Path) -> Iterator[Daemon]:
    with running(session.memory.root, log=tmp_path / "log") as started:
        yield started


def inbox_of(session: Session) -> Path:
    return session.memory.root / session.scope.directory / "inbox"


def drop(session: Session, name: str, content: str | dict[str, object]) -> None:
    aside = inbox_of(session) / f".{name}"
    aside.write_text(content if isinstance(content, str) else json.dumps(content))
    aside.rename(inbox_of(session) / name)


def taken(session: Session) -> list[inbox.Drop]:
    names = waiting(session.scope.tree, session.scope.directory)
    return list(inbox.take_in(session, names))


def wait_until_taken(session: Session) -> None:
    def is_empty() -> bool:
        return not {path.name for path in inbox_of(session).iterdir()} - {"rejected"}

    wait_until(is_empty, "the inbox is empty")


def why_of(session: Session, name: str) -> str:
    note = inbox_of(session) / f"rejected/{name}.why.md"
    wait_until(note.exists, f"{name} is rejected")
    return note.read_text()


def test_a_drop_may_change_or_resolve_a_memory(session: Session, daemon: Daemon) -> None:
    session.record_decision("Use OAuth", made_by="architect", confidence="low", topic="login")
    session.record_finding("No MFA", discovered_by="veritas")
    drop(session, "a.yaml", "update: DEC-001\nconfidence: high\ntopic: null\nwhy: it is known\n")
    drop(session, "b.json", {"resolve": "FIND-001", "by": "dev", "text": "MFA is on", "n": "abc"})
    wait_until_taken(session)
    decision, finding = session.get("DEC-001").data, session.get("FIND-001").data
    assert (decision["confidence"], decision["rationale"]) == ("high", "it is known")
    assert "topic" not in decision
    assert decision["decision"] == "Use OAuth"
    resolution = {"status": "resolved", "resolved_by": "dev", "action_taken": "MFA is on", "n": "abc"}
    assert finding["resolution"].items() >= resolution.items()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"update": "DEC-009", "confidence": "high"}, "DEC-009"),
        ({"update": "DEC-001", "confidence": "certain"}, "'confidence' must be one of"),
        ({"update": "DEC-001", "when": "2026-01-11"}, "'timestamp' of a decision cannot"),
        ({"update": "DEC-001", "memory_id": "x"}, "cannot set a field 'memory_id'"),
        ({"update": "../DEC-001", "confidence": "high"}, "memory id '../DEC-001'"),
        ({"update": ["DEC-001"], "confidence": "high"}, "memory id"),
        ({"update": "DEC-001", "resolve": "FIND-001"}, "cannot set a field 'resolve'"),
        ({"resolve": "DEC-001", "by": "a", "text": "b"}, "only a finding can be resolved"),
        ({"resolve": "FIND-001", "by": "a"}, "'action_taken'"),
        ({"decision": "of no type", "made_by": "a"}, "'type' must be one of"),
    ],
)
def test_a_change_that_cannot_be_made_is_rejected_and_says_why(
    session: Session, content: dict[str, object], says: str
) -> None:
    session.record_decision("Use OAuth", made_by="architect")
    session.record_finding("No MFA", discovered_by="veritas")
    before = [session.get(memory_id).data for memory_id in ("DEC-001", "FIND-001")]
    drop(session, "a.json", content)
    assert [found.outcome for found in taken(session)] == ["rejected"]
    assert says in why_of(session, "a.json")
    assert [session.get(memory_id).data for memory_id in ("DEC-001", "FIND-001")] == before


def test_json_is_taken_with_every_character_and_what_could_mean_two_things_is_not(
    session: Session, daemon: Daemon
) -> None:
    text = 'An "emoji" 😀, a slash /, a\ttab,\nтекст and a back\\slash'
    head = {"type": "learning", "learned_by": "a"}
    fields = {**head, "learning": text, "count": 3, "share": 0.5, "nothing": None}
    drop(session, "ascii.json", json.dumps(fields, indent="\t").replace("/", "\\/"))
    drop(session, "utf8.json", "\ufeff" + json.dumps(fields, ensure_ascii=False))
    start = '{"type": "learning", "learned_by": "b", "learning": "a"'
    bad = {
        "twice.json": start + ', "learning": "c"}',
        "deep.json": start + ', "x": ' + "[" * 100_000 + "]" * 100_000 + "}",
        "large.json": json.dumps({**head, "learning": "a" * 2_000_000}),
        "huge.json": json.dumps({**head, "learning": "a" * 9_000_000}),
        "number.json": start + ', "x": NaN}',
        "half.json": start + ', "x": "\\ud83d"}',
        "cut.json": start,
        "list.json": "[]",
    }
    for name, content in bad.items():
        drop(session, name, content)
    wait_until_taken(session)
    found = session.records("learning")
    assert [record.text for record in found] == [text, text]
    assert (found[0].data["count"], found[0].data["share"]) == (3, 0.5)
    assert "nothing" not in found[0].data
    assert all(why_of(session, name) for name in bad)


def test_other_names_of_fields_are_understood_in_drops(session: Session) -> None:
    other: dict[str, object] = {"kind": "decision", "text": "Use OAuth", "author": "architect",
                                "date": "2026-01-11", "reason": "Known"}
    drop(session, "a.json", other)
    assert [found.outcome for found in taken(session)] == ["taken"]
    for record in session.records("decision"):
        own = {"decision": "Use OAuth", "made_by": "architect", "rationale": "Known",
               "timestamp": "2026-01-11T00:00:00Z"}
        assert own.items() <= record.data.items()
        assert not other.keys() & record.data.keys()


def test_a_bad_drop_among_many_costs_only_itself(session: Session) -> None:
    """They go in together, and where one of them cannot be written, each by itself."""
    for number in range(20):
        drop(session, f"{number:02}.yaml", f"type: decision\ndecision: Number {number}\nby: a\n")
    drop(session, "05-bad.yaml", "type: decision\ndecision: By nobody\n")
    session.record_finding("No MFA", discovered_by="veritas")
    drop(session, "06-change.yaml", "update: FIND-001\nseverity: low\n")
    link = inbox_of(session).parent / "learnings.yaml"
    link.unlink()
    link.symlink_to("/dev/null")
    drop(session, "07-learning.yaml", "type: learning\nlearning: Cannot be written\nby: a\n")
    outcomes = {found.name: found.outcome for found in taken(session)}
    others = {name: outcome for name, outcome in outcomes.items() if outcome != "taken"}
    assert others == {"05-bad.yaml": "rejected", "07-learning.yaml": "waiting"}
    texts = {record.text for record in session.records("decision")}
    assert texts == {f"Number {number}" for number in range(20)}
    assert session.get("FIND-001").data["severity"] == "low"
    assert len(list((inbox_of(session) / "rejected").iterdir())) == 2


def test_drops_that_are_recorded_and_not_removed_yet_are_not_taken_twice(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.yaml", "b.yaml"):
        drop(session, name, f"type: decision\ndecision: {name}\nby: a\n")
    carry_out = journal.carry_out

    def fail(scope: object, step: dict[str, object], *more: object) -> object:
        if "remove" in step:
            raise OSError(28, "No space left on device")
        return carry_out(scope, step, *more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(journal, "carry_out", fail)
        for _ in range(2):
            assert {found.outcome for found in taken(session)} == {"waiting"}
    assert {found.outcome for found in taken(session)} == {"gone"}
    assert sorted(record.text for record in session.records("decision")) == ["a.yaml", "b.yaml"]


def test_a_secret_in_the_name_of_a_drop_stands_in_no_log_note_or_status(
    session: Session, daemon: Daemon
) -> None:
    drop(session, f"{SECRET}.yaml", "type: decision\ntext: x\nby: y\n")
    drop(session, f"{SECRET}.txt", "x")
    note = why_of(session, f"{SECRET}.txt")
    wait_until_taken(session)
    wait_until(lambda: daemon.said("drop rejected"), "the log says so")
    wait_until(lambda: daemon.said("drop taken"), "the log says that the other is taken in")
    assert SECRET not in note
    assert "must be a file that ends with" in note
    assert SECRET not in daemon.log.read_text()
    assert SECRET not in json.dumps(status(session.memory.root))


def test_status_and_check_name_what_was_rejected(session: Session, daemon: Daemon) -> None:
    root = session.memory.root
    assert status(root)["problems"] == []
    drop(session, "bad.yaml", "type: nonsense\n")
    why_of(session, "bad.yaml")
    found = status(root)
    assert (found["health"], found["roots"][0]["rejected_drops"]) == ("degraded", 1)
    assert "Rejected drops: 1. smp check names them." in found["problems"]
    checked = smp("check", "--root", root)
    assert checked.returncode == 1
    assert "s1/inbox/rejected/bad.yaml: a drop that was rejected." in checked.stdout
    for path in (inbox_of(session) / "rejected").iterdir():
        path.unlink()
    assert status(root)["problems"] == []
    assert smp("check", "--root", root).returncode == 0


def test_a_drop_that_has_to_wait_is_in_status_while_a_daemon_runs(
    session: Session, daemon: Daemon
) -> None:
    root = session.memory.root
    path = root / "active/s1/decisions.yaml"
    path.unlink()
    path.symlink_to("/dev/null")
    drop(session, "a.yaml", "type: decision\ndecision: One\nby: a\n")
    waits = "Drops wait in the inbox of s1"
    wait_until(lambda: waits in " ".join(status(root)["problems"]), "status says it")
    path.unlink()
    wait_until_taken(session)
    wait_until(lambda: status(root)["health"] == "ok", "all is well again")
    assert status(root)["roots"][0]["waiting_drops"] == 0


def test_sync_ends_with_the_drops_that_have_to_wait(session: Session, daemon: Daemon) -> None:
    """It says where and why, long before its time is over, and the others are taken in."""
    root = session.memory.root
    path = root / "active/s1/decisions.yaml"
    path.unlink()
    path.symlink_to("/dev/null")
    other = session.memory.create_session(id="s2")
    drop(session, "a.yaml", "type: decision\ndecision: One\nby: a\n")
    drop(other, "a.yaml", "type: decision\ndecision: Two\nby: a\n")
    done = smp("sync", "--root", root)
    assert done.returncode == 1
    assert "Drops are not taken in: 1 in the inbox of s1 (" in done.stderr
    assert "decisions.yaml" in done.stderr
    assert [record.text for record in other.records("decision")] == ["Two"]
    path.unlink()
    assert smp("sync", "--root", root).returncode == 0
    assert [record.text for record in session.records("decision")] == ["One"]


def test_sync_does_not_wait_for_a_drop_that_somebody_still_writes(
    session: Session, daemon: Daemon
) -> None:
    with (inbox_of(session) / "a.yaml").open("w") as file:
        file.write("type: decision\ndecision: One\n")
        file.flush()
        assert smp("sync", "--root", session.memory.root).returncode == 0
        file.write("by: a\n")
    wait_until_taken(session)
    assert [record.text for record in session.records("decision")] == ["One"]


def test_a_drop_that_is_too_large_is_rejected_unread(session: Session) -> None:
    drop(session, "a.yaml", "type: decision\nby: x\ntext: t\na: [" + "a," * 2_000_000 + "]\n")
    steps: list[bool] = []
    with interruptible(lambda: steps.append(True)):
        assert [found.outcome for found in taken(session)] == ["rejected"]
    assert len(steps) < 100
    assert "a drop may have 3,145,728 bytes, not 4,000,0" in why_of(session, "a.yaml")


def test_slow_drops_of_one_session_do_not_keep_another_waiting(
    session: Session, daemon: Daemon
) -> None:
    """Each of them takes longer than a turn."""
    count = 8
    slow = "type: decision\nby: x\ntext: t\na: [" + "a," * 800_000 + "]\nid: [}\n"
    for number in range(count):
        drop(session, f"{number}.yaml", slow)
    wait_until(lambda: daemon.said("drop rejected"), "the first has had its turn")
    other = session.memory.create_session(id="s2")
    drop(other, "a.yaml", "type: decision\ndecision: Two\nby: a\n")
    wait_until(lambda: daemon.said("drop taken"), "the other session has its turn")
    assert len(daemon.said("drop rejected")) < count
