"""Drops of any program: a running daemon takes them in, and nothing is lost in silence."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import Daemon, running, smp, status, wait_until

from smp_client import Session
from smp_client.disk import journal, locks
from smp_client.disk.tree import Tree
from smp_daemon.ingest import inbox


@pytest.fixture
def daemon(session: Session, tmp_path: Path) -> Iterator[Daemon]:
    with running(session.scope.tree.root, log=tmp_path / "log") as started:
        yield started


def inbox_of(session: Session) -> Path:
    return session.scope.tree.root / session.scope.directory / "inbox"


def drop(session: Session, name: str, content: str | dict[str, object]) -> None:
    aside = inbox_of(session) / f".{name}"
    aside.write_text(content if isinstance(content, str) else json.dumps(content))
    aside.rename(inbox_of(session) / name)


def wait_until_taken(session: Session) -> None:
    wait_until(
        lambda: not [name for name in inbox_of(session).iterdir() if name.name != "rejected"],
        "the inbox is empty",
    )


def why_of(session: Session, name: str) -> str:
    note = inbox_of(session) / f"rejected/{name}.why.md"
    wait_until(note.exists, f"{name} is rejected")
    return note.read_text()


def test_a_drop_may_change_or_resolve_a_memory(session: Session, daemon: Daemon) -> None:
    session.record_decision("Use OAuth", made_by="architect", confidence="low", topic="login")
    session.record_finding("No MFA", discovered_by="veritas")
    drop(
        session, "a.yaml", "update: DEC-001\nconfidence: high\ntopic: null\nwhy: everybody has it\n"
    )
    drop(
        session,
        "b.json",
        {"resolve": "FIND-001", "by": "dev", "text": "MFA is on", "commit": "abc"},
    )
    wait_until_taken(session)
    decision, finding = session.get("DEC-001").data, session.get("FIND-001").data
    assert decision["confidence"] == "high"
    assert decision["rationale"] == "everybody has it"
    assert "topic" not in decision
    assert decision["decision"] == "Use OAuth"
    resolution = finding["resolution"]
    assert (resolution["status"], resolution["resolved_by"], resolution["action_taken"]) == (
        "resolved",
        "dev",
        "MFA is on",
    )
    assert resolution["commit"] == "abc"


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
)  # fmt: skip
def test_a_change_that_cannot_be_made_is_rejected_and_says_why(
    session: Session, content: dict[str, object], says: str
) -> None:
    session.record_decision("Use OAuth", made_by="architect")
    session.record_finding("No MFA", discovered_by="veritas")
    before = [session.get(memory_id).data for memory_id in ("DEC-001", "FIND-001")]
    drop(session, "a.json", content)
    assert [found.outcome for found in inbox.take_in(session, inbox.waiting(session))] == [
        "rejected"
    ]
    assert says in why_of(session, "a.json")
    assert [session.get(memory_id).data for memory_id in ("DEC-001", "FIND-001")] == before


def test_json_is_taken_with_every_character_and_what_could_mean_two_things_is_not(
    session: Session, daemon: Daemon
) -> None:
    text = 'An "emoji" 😀, a slash /, a\ttab,\nтекст and a back\\slash'
    fields = {
        "type": "learning",
        "learning": text,
        "learned_by": "a",
        "count": 3,
        "share": 0.5,
        "nothing": None,
    }
    drop(session, "ascii.json", json.dumps(fields, indent="\t").replace("/", "\\/"))
    drop(session, "utf8.json", "\ufeff" + json.dumps(fields, ensure_ascii=False))
    bad = {
        "twice.json": '{"type": "learning", "learning": "a", "learned_by": "b", "learning": "c"}',
        "deep.json": '{"type": "learning", "learning": "a", "learned_by": "b", "x": '
        + "[" * 100_000
        + "]" * 100_000
        + "}",
        "large.json": json.dumps(
            {"type": "learning", "learned_by": "b", "learning": "a" * 2_000_000}
        ),
        "huge.json": json.dumps(
            {"type": "learning", "learned_by": "b", "learning": "a" * 9_000_000}
        ),
        "number.json": '{"type": "learning", "learning": "a", "learned_by": "b", "x": NaN}',
        "half.json": '{"type": "learning", "learning": "\\ud83d", "learned_by": "b"}',
        "cut.json": '{"type": "learning", "learning": "a',
        "list.json": "[]",
    }
    for name, content in bad.items():
        drop(session, name, content)
    wait_until_taken(session)
    taken = session.records("learning")
    assert [record.text for record in taken] == [text, text]
    assert (taken[0].data["count"], taken[0].data["share"]) == (3, 0.5)
    assert "nothing" not in taken[0].data
    assert all(why_of(session, name) for name in bad)


OTHER_NAMES = {
    "kind": "decision",
    "text": "Use OAuth",
    "author": "architect",
    "date": "2026-01-11",
    "reason": "Known",
}


def test_other_names_of_fields_are_understood_in_drops_and_in_yaml(session: Session) -> None:
    drop(session, "a.json", OTHER_NAMES)
    assert [found.outcome for found in inbox.take_in(session, inbox.waiting(session))] == ["taken"]
    assert (
        smp(
            "add",
            session.id,
            "--yaml",
            "--root",
            session.scope.tree.root,
            input=json.dumps(OTHER_NAMES),
        ).stdout
        == "DEC-002\n"
    )
    for record in session.records("decision"):
        assert (record.text, record.data["made_by"], record.data["rationale"]) == (
            "Use OAuth",
            "architect",
            "Known",
        )
        assert record.data["timestamp"] == "2026-01-11T00:00:00Z"
        assert not OTHER_NAMES.keys() & record.data.keys()


def test_a_bad_drop_among_many_costs_only_itself(session: Session) -> None:
    """They go in together, and where one of them cannot be written, each by itself."""
    for number in range(20):
        drop(session, f"{number:02}.yaml", f"type: decision\ndecision: Number {number}\nby: a\n")
    drop(session, "05-bad.yaml", "type: decision\ndecision: By nobody\n")
    session.record_finding("No MFA", discovered_by="veritas")
    drop(session, "06-change.yaml", "update: FIND-001\nseverity: low\n")
    link = session.scope.tree.root / session.scope.directory / "learnings.yaml"
    link.unlink()
    link.symlink_to("/dev/null")
    drop(session, "07-learning.yaml", "type: learning\nlearning: Cannot be written\nby: a\n")
    outcomes = {
        found.name: found.outcome for found in inbox.take_in(session, inbox.waiting(session))
    }
    assert {name for name, outcome in outcomes.items() if outcome != "taken"} == {
        "05-bad.yaml",
        "07-learning.yaml",
    }
    assert outcomes["07-learning.yaml"] == "waiting"
    assert sorted(record.text for record in session.records("decision")) == sorted(
        f"Number {number}" for number in range(20)
    )
    assert session.get("FIND-001").data["severity"] == "low"
    assert len(list((inbox_of(session) / "rejected").iterdir())) == 2


def locks_counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows by the name of each file whose lock is asked for."""
    asked: list[str] = []
    acquire = locks._acquire

    def counted(tree: Tree, scope: str, file: str, timeout_s: float, doing: str) -> locks.Lock:
        asked.append(file)
        return acquire(tree, scope, file, timeout_s, doing)

    monkeypatch.setattr(locks, "_acquire", counted)
    return asked


def test_many_drops_are_one_transaction(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[int] = []
    record, locked = journal.record, locks_counted(monkeypatch)
    monkeypatch.setattr(
        journal,
        "record",
        lambda scope, steps: (recorded.append(len(steps)), record(scope, steps))[1],
    )
    for number in range(inbox.BATCH + 3):
        drop(session, f"{number:03}.yaml", f"type: decision\ndecision: Number {number}\nby: a\n")
    drops = list(inbox.take_in(session, inbox.waiting(session)))
    assert {found.outcome for found in drops} == {"taken"}
    assert recorded == [inbox.BATCH + 1, 4]
    assert locked.count("decisions.yaml") == 4  # for the numbers and for the commit, of each batch
    ids = [record.id for record in session.records("decision")]
    assert (
        ids
        == [found.memory_id for found in drops]
        == [f"DEC-{number + 1:03}" for number in range(inbox.BATCH + 3)]
    )


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
            assert {found.outcome for found in inbox.take_in(session, inbox.waiting(session))} == {
                "waiting"
            }
    assert {found.outcome for found in inbox.take_in(session, inbox.waiting(session))} == {"gone"}
    assert sorted(record.text for record in session.records("decision")) == ["a.yaml", "b.yaml"]


def test_status_and_check_name_what_was_rejected(session: Session, daemon: Daemon) -> None:
    root = session.scope.tree.root
    assert status(root)["problems"] == []
    drop(session, "bad.yaml", "type: nonsense\n")
    why_of(session, "bad.yaml")
    found = status(root)
    assert found["health"] == "degraded"
    assert found["roots"][0]["rejected_drops"] == 1
    assert "1 drop was rejected; smp check says which, and why." in found["problems"]
    checked = smp("check", "--root", root)
    assert checked.returncode == 1
    assert (
        "s1/inbox/rejected/bad.yaml: a drop that was rejected: 'type' must be one of"
        in checked.stdout
    )
    for path in (inbox_of(session) / "rejected").iterdir():
        path.unlink()
    assert status(root)["problems"] == []
    assert smp("check", "--root", root).returncode == 0


def test_a_drop_that_has_to_wait_is_in_status_and_check_while_a_daemon_runs(
    session: Session, daemon: Daemon
) -> None:
    root = session.scope.tree.root
    path = root / "active/s1/decisions.yaml"
    path.unlink()
    path.symlink_to("/dev/null")
    drop(session, "a.yaml", "type: decision\ndecision: One\nby: a\n")
    os.utime(inbox_of(session) / "a.yaml", (0, 0))
    wait_until(
        lambda: any(
            "Drops wait in the inbox of s1" in problem for problem in status(root)["problems"]
        ),
        "status says it",
    )
    assert (
        "s1/inbox/a.yaml: a drop that was not taken in yet. smp status says why it waits."
        in smp("check", "--root", root).stdout
    )
    path.unlink()
    wait_until_taken(session)
    wait_until(
        lambda: status(root)["roots"][0]["waiting_drops"] == 0 and status(root)["health"] == "ok",
        "all is well again",
    )
