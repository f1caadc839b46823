"""`smp delete`, `smp restore` and `smp purge --now`, as people and scripts use them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from commands import HOSTILE, answered, completed, content, days_ago, run, run_json
from daemons import smp
from once import copied

from smp_client import Memory
from smp_client.disk.audit import read as read_audit

pytestmark = pytest.mark.usefixtures("short_grace")
SECRET = "Jane Doe of Elm Street 5"


def stocked(root: Path) -> None:
    memory = Memory(root)
    first = memory.create_session(id="first-1")
    first.add_turn("user", f"Write to {SECRET}")
    first.add_turn("vera", "Done")
    first.record_decision("Use OAuth", made_by="vera", tags=["security"], memory_refs=["turn-1"])
    first.record_decision(f"Ask {SECRET}", made_by="bert", tags=["security.people"])
    first.record_finding("No lock", discovered_by="vera", severity="high", references=["DEC-002"])
    first.save_agent_state("vera", {"focus": SECRET})
    first.save_agent_state("vera", {"focus": "doors"})
    first.save_artifact("report", f"About {SECRET}")
    packed = memory.create_session(id="packed-1")
    packed.add_turn("user", f"{SECRET} again")
    packed.record_decision("Use tabs", made_by="bert")
    memory.archive_session("packed-1")
    memory.everywhere.record_pattern(f"{SECRET} likes tabs", learned_by="vera")
    memory.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The same person in a session, in another that is archived, and in what holds everywhere."""
    return copied(stocked, tmp_path / "sessions")


def about(found: dict[str, Any]) -> list[tuple[str, str, str, list[str]]]:
    return [(action["session"], action["type"], action["place"], action["about"]) for action in found["actions"]]


def places(root: Path) -> Iterable[str]:
    """Where the secret stands as bytes, in what is not packed and not SMP's own."""
    return [name for name, found in content(root).items() if SECRET.encode() in found]


# Deleting.


def test_a_plan_and_what_is_done_then_are_the_same(root: Path) -> None:
    before = content(root)
    arguments = ["delete", "first", "--topic", "security", "--agent", "bert", "--reason", "r"]
    plan = run_json(root, *arguments, "--dry-run")
    assert content(root) == before
    assert (plan["dry_run"], plan["actions"][0]["batch"]) == (True, None)
    done = run_json(root, *arguments)
    assert about(done) == about(plan) == [("first-1", "delete_memories", "active", ["DEC-002"])]
    assert done["actions"][0]["batch"] == Memory(root).deleted("first-1")[0].batch
    assert (done["problems"], done["actions"][0]["reason"]) == ([], "r")


@pytest.mark.parametrize(("conditions", "expected"), [
    (["--agent", "vera"], ["turn-2", "DEC-001", "FIND-001", "vera", "STATE-001"]),
    (["--type", "turn"], ["turn-1", "turn-2"]),
    (["--type", "artifact", "--type", "state"], ["vera", "report", "STATE-001"]),
    (["--tag", "security"], ["DEC-001", "DEC-002"]),
    (["--text", "JANE doe"], ["turn-1", "DEC-002", "report", "STATE-001"]),
    (["--since", "today", "--type", "finding"], ["FIND-001"]),
    (["--until", "2020-01-01"], []),
    (["vera", "DEC-001"], ["vera", "DEC-001", "STATE-001"]),
])  # fmt: skip
def test_each_condition_is_an_option(root: Path, conditions: list[str], expected: list[str]) -> None:
    found = run_json(root, "delete", "first-1", *conditions, "--reason", "r", "--dry-run")
    assert sorted(one for action in found["actions"] for one in action["about"]) == sorted(expected)


def test_all_reaches_every_session_and_what_holds_everywhere(root: Path) -> None:
    """Wherever they are; and one batch brings all of it back."""
    assert len(list(places(root))) == 6
    done = run(root, "delete", "--all", "--text", SECRET, "--reason", "she asked for it")
    assert [line.split()[0] for line in done.stdout.splitlines()[1:4]] == ["global", "first-1", "packed-1"]
    batch = Memory(root).deleted("global")[0].batch
    assert f"For 30 days smp restore --batch {batch} brings it back." in done.stdout
    assert f"smp show --all-about '{SECRET}' finds other places." in done.stdout
    assert list(places(root)) == []
    assert run_json(root, "search", "Jane") == []
    assert run_json(root, "delete", "--all", "--text", SECRET, "--reason", "r")["actions"] == []
    listed = run_json(root, "restore", "--list")["restorable"]
    assert [(one["session"], one["id"], one["place"], one["batch"], one["action"]) for one in listed] == [
        ("first-1", "turn-1", "active", batch, "deleted"), ("first-1", "DEC-002", "active", batch, "deleted"),
        ("first-1", "report", "active", batch, "deleted"), ("first-1", "STATE-001", "active", batch, "deleted"),
        ("global", "PAT-001", "active", batch, "deleted"), ("packed-1", "turn-1", "archived", batch, "deleted"),
    ]  # fmt: skip
    assert {one["text"] for one in listed if SECRET in one["text"]} == {one["text"] for one in listed}
    assert about(run_json(root, "restore", "--batch", batch, "--dry-run")) == about(run_json(root, "restore", "--batch", batch))
    assert {record.session for record in Memory(root).search("Jane")} == {"first-1", "global", "packed-1"}


def test_an_archived_session_and_global_are_named_like_any_other(root: Path) -> None:
    found = run_json(root, "delete", "pack", "turn-1", "--reason", "r")
    assert about(found) == [("packed-1", "delete_memories", "archived", ["turn-1"])]
    assert about(run_json(root, "restore", "packed", "turn-1")) == [
        ("packed-1", "restore_memories", "archived", ["turn-1"])]  # fmt: skip
    assert about(run_json(root, "delete", "global", "PAT-001", "--reason", "r")) == [
        ("global", "delete_memories", "active", ["PAT-001"])]  # fmt: skip
    assert about(run_json(root, "restore", "global", "PAT-001")) == [
        ("global", "restore_memories", None, ["PAT-001"])]  # fmt: skip


def test_nothing_that_fits_is_said_and_is_no_error(root: Path) -> None:
    for flags in ([], ["--dry-run"]):
        done = run(root, "delete", "first-1", "--text", "nobody says this", "--reason", "r", *flags)
        assert done.stdout == "Nothing fits: nothing was deleted.\n"
    assert "There is no memory 'DEC-009'" in smp("delete", "first-1", "DEC-009", "--reason", "r", "--root", root).stderr


WRONG = [
    (["delete", "--reason", "r"], "Give a session, or --all; not both."),
    (["delete", "first-1", "--all", "--text", "x", "--reason", "r"], "Give a session, or --all; not both."),
    (["delete", "--all", "--reason", "r"], "--all needs a condition"),
    (["delete", "first-1", "DEC-001", "--text", "x", "--reason", "r"], "Give ids, or conditions"),
    (["delete", "global", "--reason", "r"], "Of global, give ids"),
    (["delete", "first-1", "--text", "Jane"], "Missing option '--reason'"),
    (["delete", "first-1", "--type", "thing", "--reason", "r"], "There are turn, decision,"),
    (["restore", "first-1", "DEC-001", "--batch", "b"], "Give only one of ids, --batch and --list."),
    (["restore", "--batch", "b", "--list"], "Give only one of ids, --batch and --list."),
    (["restore"], "Say what: SESSION, SESSION ID, or --batch"),
    (["purge", "first-1", "DEC-001"], "go with --now"),
    (["purge", "first-1", "--force"], "go with --now"),
    (["purge", "--batch", "b"], "go with --now"),
    (["purge", "--now"], "--now destroys what is named"),
    (["purge", "--now", "first-1", "--force"], "--force is for overdue memories"),
    (["purge", "--now", "first-1", "DEC-001", "--batch", "b"], "Give ids or --batch, not both."),
    (["purge", "--now", "global"], "Of global, give ids"),
]


@pytest.mark.parametrize(("arguments", "sentence"), WRONG, ids=[" ".join(arguments) for arguments, _ in WRONG])
def test_a_wrong_call_changes_nothing_and_says_what_is_right(root: Path, arguments: list[str], sentence: str) -> None:
    before = content(root)
    assert sentence in run(root, *arguments, code=2).stderr
    assert content(root) == before


@pytest.mark.parametrize(("arguments", "code"), [
    (["delete", "first-1", "--text", "", "--reason", "r"], 2), (["delete", "--all", "--agent", " ", "--reason", "r"], 2),
    (["delete", "first-1", "--since", "whenever", "--reason", "r"], 2), (["restore", "--batch", "no-such"], 1),
    (["delete", "first-1", "metadata", "--reason", "r"], 2), (["restore", "first-1", "DEC-001"], 1),
    (["purge", "--batch", "no-such", "--now"], 1), (["purge", "first-1", "DEC-009", "--now"], 1),
    (["purge", "no-such", "--now"], 1),
])  # fmt: skip
def test_what_cannot_be_done_is_one_sentence_and_changes_nothing(root: Path, arguments: list[str], code: int) -> None:
    before = content(root)
    done = smp(*arguments, "--root", root)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("smp: ")
    assert done.stderr.count("\n") == 1
    assert content(root) == before


def test_what_cannot_be_read_is_told_and_the_rest_is_deleted(root: Path) -> None:
    (root / "active/first-1/findings.yaml").write_bytes(b"version: 999\nfindings: []\n")
    found = run_json(root, "delete", "--all", "--text", SECRET, "--reason", "r", code=1)
    assert {action["session"] for action in found["actions"]} == {"global", "first-1", "packed-1"}
    assert any("findings.yaml cannot be read" in problem for problem in found["problems"])


def test_on_a_terminal_the_question_says_how_many_of_what_and_where(root: Path) -> None:
    before = content(root)
    arguments = ["delete", "--all", "--text", SECRET, "--reason", "r", "--root", root]
    code, shown, printed = answered("n\n", *arguments)
    assert (code, printed) == (1, "")
    assert "Delete 1 pattern, 2 turns, 1 decision, 1 artifact, 1 agent state of global, first-1, packed-1" in shown
    assert "(PAT-001, turn-1, DEC-002, report, STATE-001 and 1 more)? For 30 days smp restore brings it back." in shown
    assert "Nothing was deleted." in shown
    assert content(root) == before
    Memory(root).session("first-1").save_agent_state("bert", {"focus": "a"})
    Memory(root).session("first-1").save_agent_state("bert", {"focus": "b"})
    assert "Delete 4 agent states of first-1 (" in answered(
        "n\n", "delete", "first-1", "--type", "state", "--reason", "r", "--root", root)[1]  # fmt: skip
    code, shown, _ = answered("y\n", "delete", "first-1", "DEC-001", "--reason", "r", "--root", root)
    assert code == 0
    assert "Delete 1 decision of first-1 (DEC-001)?" in shown
    assert answered("", "delete", "first-1", "--text", "nobody says this", "--reason", "r", "--root", root)[:2] == (0, "")


def test_reasons_and_names_do_not_drive_the_terminal(root: Path) -> None:
    done = run(root, "delete", "first-1", "DEC-001", "--reason", HOSTILE, "--by", HOSTILE)
    listed = run(root, "restore", "--list")
    assert "\x1b" not in done.output + listed.output


# Restoring.


def test_what_is_overdue_and_not_purged_can_still_be_restored(root: Path) -> None:
    Memory(root, clock=days_ago(60)).session("first-1").delete("DEC-001", reason="r")
    (one,) = run_json(root, "restore", "--list")["restorable"]
    assert one["is_overdue"]
    run(root, "restore", "first-1", "DEC-001")
    assert Memory(root).session("first-1").get("DEC-001").text == "Use OAuth"


def test_an_agent_comes_back_with_its_history(root: Path) -> None:
    before = content(root)
    run(root, "delete", "first-1", "vera", "--reason", "r")
    assert not (root / "active/first-1/agent-states/vera.yaml").exists()
    run(root, "restore", "first-1", "vera")
    history = "active/first-1/agent-states/history/vera.yaml"
    assert content(root)["active/first-1/agent-states/vera.yaml"] == before["active/first-1/agent-states/vera.yaml"]
    assert content(root)[history].replace(b"last_id: 1\n", b"") == before[history]


def test_the_list_of_one_session_is_of_that_one(root: Path) -> None:
    run(root, "delete", "--all", "--text", SECRET, "--reason", "r")
    for name, ids in (("packed", ["turn-1"]), ("global", ["PAT-001"])):
        assert [one["id"] for one in run_json(root, "restore", "--list", name)["restorable"]] == ids


# Erasing.


def test_erasing_needs_no_other_command(root: Path) -> None:
    """What is not deleted yet is deleted first; a plan changes nothing. Where the same is said elsewhere, that is told."""
    Memory(root).session("first-1").add_turn("user", f"Ask {SECRET}")
    before = content(root)
    arguments = ["purge", "first-1", "DEC-002", "report", "--now"]
    plan = run_json(root, *arguments, "--dry-run")
    assert [action["about"] for action in plan["actions"]] == [["DEC-002", "report"]]
    assert content(root) == before
    done = run_json(root, *arguments)
    assert [action["type"] for action in done["actions"]] == ["purge_memories"]
    assert (done["problems"], done["notes"]) == ([], ["The same words still stand in active/first-1/conversation.md."])
    assert run_json(root, "restore", "--list")["restorable"] == []
    actions = [(line["action"], line["count"]) for line in read_audit(Memory(root).tree)]
    assert actions[-2:] == [("delete", 2), ("purge", 2)]


def test_a_batch_and_a_session_are_erased_at_once(root: Path) -> None:
    run(root, "delete", "--all", "--text", SECRET, "--reason", "r")
    batch = Memory(root).deleted("global")[0].batch
    done = run_json(root, "purge", "--batch", batch, "--now")
    assert [action["session"] for action in done["actions"]] == ["first-1", "global", "packed-1"]
    assert run_json(root, "restore", "--list")["restorable"] == []
    run(root, "delete", "packed-1", "--reason", "r")
    for name in ("packed-1", "first-1"):
        assert [action["type"] for action in run_json(root, "purge", name, "--now")["actions"]] == ["purge_session"]
    assert run_json(root, "sessions", "--all") == []


def test_on_a_terminal_erasing_is_asked_for(root: Path) -> None:
    before = content(root)
    code, shown, printed = answered("n\n", "purge", "first", "DEC-001", "--now", "--root", root)
    assert (code, printed) == (1, "")
    assert "Destroy 1 decision of first-1 (DEC-001) for good? Nothing brings it back. [y/N]" in shown
    assert "Nothing was destroyed." in shown
    code, shown, _ = answered("n\n", "purge", "packed", "--now", "--root", root)
    assert code == 1
    assert "Destroy 1 session of packed-1 (" in shown
    assert content(root) == before
    code, _, printed = answered("y\n", "purge", "first", "DEC-001", "--now", "--json", "--root", root)
    assert (code, json.loads(printed)["actions"][0]["about"]) == (0, ["DEC-001"])


# The shell.


def test_the_shell_completes_batches_ids_and_places(root: Path) -> None:
    batch = run_json(root, "delete", "first-1", "DEC-001", "--reason", "r")["actions"][0]["batch"]
    run(root, "search", "lock")
    assert completed("smp restore --batch ", root) == [batch]
    assert completed("smp purge --batch ", root) == [batch]
    assert completed("smp delete g", root) == ["global"]
    assert completed("smp delete first-1 --type st", root) == ["state"]
    assert completed("smp delete first-1 --tag sec", root) == ["security", "security.people"]
    assert completed("smp restore g", root) == ["global"]
    assert completed("smp purge p", root) == ["packed-1"]
    assert completed("smp purge first-1 D", root) == ["DEC-002"]


def test_the_audit_log_names_the_account_unless_somebody_else_is_named(memory: Memory) -> None:
    """As the system knows it, and not as a variable says."""
    import os
    import pwd

    session = memory.create_session(id="accounted")
    for text in ("One", "Two", "Three"):
        session.record_decision(text, made_by="a")
    hostile = {**os.environ, "LOGNAME": "somebody-else", "USER": "somebody-else"}
    for memory_id, by in (("DEC-001", ()), ("DEC-002", ("--by", "auditor")), ("DEC-003", ("--by", "user"))):
        done = smp("delete", "accounted", memory_id, "--reason", "test", *by, "--root", memory.root, env=hostile)
        assert done.returncode == 0, done.stderr
    assert [line["by"] for line in read_audit(memory.tree)] == [pwd.getpwuid(os.geteuid()).pw_name, "auditor", "user"]
