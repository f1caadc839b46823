"""What `smp delete`, `restore`, `purge`, `import` and `show --all-about` say to one who slipped, and what they exit with."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from test_cli_write import on_a_terminal

from smp_client import Memory, Session, SMPError
from smp_client.audit import account
from smp_client.audit import read as read_audit
from smp_daemon.cli import smp as command


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    monkeypatch.setenv("SMP_ROOT", str(tmp_path / "sessions"))
    return Memory(tmp_path / "sessions", count_access=False)


@pytest.fixture
def session(memory: Memory) -> Session:
    session = memory.create_session(id="first-1", topic="billing")
    session.add_turn("user", "Jane Roe asked")
    session.record_decision("Use OAuth", made_by="vera", tags=["security"])
    for number in range(7):
        session.record_finding(f"Finding {number}", discovered_by="bert", severity="low")
    return session


def ran(*arguments: object) -> Result:
    return CliRunner().invoke(command, [*map(str, arguments)])


def said(*arguments: object, code: int = 0) -> str:
    """On both, one behind the other, with the error that `main` prints."""
    done = ran(*arguments)
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, (SystemExit, SMPError))
    return done.output + (str(done.exception) if isinstance(done.exception, SMPError) else "")


def in_json(*arguments: object, code: int = 0) -> Any:
    done = ran(*arguments, "--json")
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


# Exit codes and notes.


def test_that_the_same_stands_elsewhere_is_a_note_and_no_failure(session: Session, memory: Memory) -> None:
    memory.everywhere.record_pattern("Use OAuth for everything", learned_by="vera")
    session.record_decision("Use OAuth for everything", made_by="vera")
    done = ran("purge", "--session", "first-1", "--id", "DEC-002", "--now")
    assert done.exit_code == 0, done.output
    assert "note: first-1: the same words still stand in global/learned-patterns.yaml." in done.stderr
    assert in_json("purge", "--session", "first-1", "--now")["notes"] == []


def test_a_purge_and_a_restore_are_by_somebody(session: Session, memory: Memory) -> None:
    said("delete", "first-1", "--id", "DEC-001", "--reason", "r")
    said("restore", "DEC-001", "--session", "first-1", "--by", "rita")
    said("purge", "--session", "first-1", "--id", "DEC-001", "--now", "--by", "paul")
    said("delete", "first-1", "--reason", "r")
    said("restore", "first-1")
    assert [(line["action"], line["by"]) for line in read_audit(memory.tree) if line["action"] in ("restore", "purge")] == [
        ("restore", "rita"), ("purge", "paul"), ("restore", account())]  # fmt: skip


def test_an_import_says_what_stays_away_and_how_it_comes_all_the_same(session: Session, memory: Memory, tmp_path: Path) -> None:
    file = tmp_path / "old.jsonl"
    said("export", "--all", "-o", file)
    said("purge", "--session", "first-1", "--id", "DEC-001", "--now")
    done = ran("import", file)
    assert done.exit_code == 0
    assert "DEC-001" in done.stdout
    assert "purged here, and not taken in; --purged takes it in" in done.stdout
    assert in_json("import", file, "--purged")["counts"]["added"] == 1
    assert session.get("DEC-001").text == "Use OAuth"
    last = read_audit(memory.tree)[-2:]
    assert [(line["action"], line["count"]) for line in last] == [("import", None), ("import", 1)]


def test_in_a_pipe_every_id_is_printed(session: Session) -> None:
    every = ", ".join(f"FIND-00{number}" for number in range(1, 8))
    arguments = ("delete", "first-1", "--type", "finding", "--reason", "r")
    assert every in said(*arguments, "--dry-run")
    said(*arguments)
    ids = [part for number in range(1, 8) for part in ("--id", f"FIND-00{number}")]
    assert every in said("purge", "--session", "first-1", *ids, "--now")


def test_on_a_terminal_a_long_list_is_cut(session: Session) -> None:
    shown = on_a_terminal("delete", "first-1", "--type", "finding", "--reason", "r", "--dry-run", "--yes", columns=200)
    assert "FIND-005 and 2 more" in shown


# Slips.


@pytest.mark.parametrize(("condition", "expected"), [
    (["--topic", "securty"], "Did you mean security?"), (["--tag", "securty"], "Did you mean security?"),
    (["--agent", "bart"], "Did you mean bert?"),
    (["--topic", "billing"], "'billing' is the topic of the session itself, in its metadata, and of no memory in it"),
    (["--text", "nobody said so"], "Nothing fits: nothing was deleted."),
])  # fmt: skip
def test_where_nothing_fits_it_is_said_what_may_be_meant(session: Session, condition: list[str], expected: str) -> None:
    shown = said("delete", "first-1", *condition, "--reason", "r")
    assert shown.startswith("Nothing fits: nothing was deleted.")
    assert expected in shown
    assert ("Did you mean" in shown) == ("Did you mean" in expected)
    if condition[0] != "--topic" or "billing" not in condition:
        assert expected in said("delete", "--all", *condition, "--reason", "r")


def test_an_unknown_kind_is_told_in_the_words_of_the_help(session: Session) -> None:
    shown = said("delete", "first-1", "--type", "decison", "--reason", "r", code=2)
    assert "'decison' is no kind of memory. Did you mean decision? There are turn, decision," in shown
    assert "conversation_turn" not in shown
    assert in_json("delete", "first-1", "--type", "conversation_turn", "--reason", "r", "--dry-run")["actions"]


def test_a_time_that_is_none_is_told_as_of_a_deletion(session: Session) -> None:
    shown = said("delete", "first-1", "--since", "the flood", "--reason", "r", code=1)
    assert "Nothing was deleted." in shown
    assert "question" not in shown


def test_what_can_be_restored_has_the_words_of_every_other_table(session: Session) -> None:
    session.add_turn("user", "a long story " * 40 + "and its end")
    said("delete", "first-1", "--id", "turn-1", "--reason", "r")
    said("delete", "first-1", "--id", session.turns()[-1].id, "--reason", "r")
    shown = said("restore", "--list")
    assert " turn  " in shown
    assert "and its end\n" in shown
    assert "conversation_turn" not in shown


@pytest.mark.parametrize("arguments", [
    ["delete", "first-1", "--id", "DEC-01", "--reason", "r"], ["purge", "--session", "first-1", "--id", "DEC-01", "--now"],
    ["anonymize", "first-1", "--id", "DEC-01"],
])  # fmt: skip
def test_an_id_with_a_slip_gets_near_ones_suggested(session: Session, arguments: list[str]) -> None:
    assert "There is no memory 'DEC-01' in first-1. Did you mean DEC-001?" in said(*arguments, code=1)


def test_an_id_in_the_place_of_a_session_is_explained(session: Session) -> None:
    shown = said("delete", "DEC-001", "--reason", "r", code=1)
    assert "'DEC-001' is a memory of first-1, not a session. smp delete first-1 DEC-001 --reason … deletes it." in shown
    assert "There is no session 'second'" in said("delete", "second", "--reason", "r", code=1)


def test_what_cannot_be_restored_is_told_with_why(session: Session, memory: Memory) -> None:
    """It was purged, alone or with its session, or it was never deleted."""
    assert "'DEC-001' of first-1 is not deleted: it is in its place." in said("restore", "DEC-001", "--session", "first-1", code=1)
    memory.purge_now("first-1", ["DEC-001"])
    shown = said("restore", "DEC-001", "--session", "first-1", code=1)
    assert "it was purged on " in shown
    assert "Nothing brings it back." in shown
    assert "no deleted memory 'DEC-009'" in said("restore", "DEC-009", "--session", "first-1", code=1)
    memory.purge_now("first-1")
    for arguments in (["restore", "first-1"], ["restore", "first-1", "DEC-001"], ["show", "first-1"]):
        assert "The session 'first-1' was purged on " in said(*arguments, code=1)


# Everything about a text.


def test_originals_of_anonymised_ones_are_told_as_such(session: Session, memory: Memory) -> None:
    batch = session.anonymize(names=["Jane Roe"]).batch
    shown = said("show", "--all-about", "Jane Roe")
    until = memory.deleted("first-1")[0].recovery_deadline[:10]
    assert f"anonymised, until {until}" in shown
    assert f"smp purge --batch {batch} --now destroys what stood there before it was anonymised." in shown
    assert "--id ID" not in shown
    (found,) = in_json("show", "--all-about", "Jane Roe")["occurrences"]
    assert (found["action"], found["batch"], found["place"]) == ("anonymize", batch, "deleted")
    said("purge", "--batch", batch, "--now")
    assert "stands nowhere" in said("show", "--all-about", "Jane Roe")


def test_a_deleted_session_is_erased_as_the_advice_says(session: Session, memory: Memory) -> None:
    memory.delete_session("first-1", reason="r")
    shown = said("show", "--all-about", "Jane Roe")
    assert "smp purge first-1 --now destroys the deleted session before that." in shown
    assert "--id ID" not in shown
    said("purge", "--session", "first-1", "--now")
    assert "stands nowhere" in said("show", "--all-about", "Jane Roe")


def test_nobody_is_told_to_edit_an_archive_by_hand(memory: Memory) -> None:
    memory.create_session(id="packed-1", topic="Jane Roe")
    assert "by hand" in said("show", "--all-about", "Jane Roe")
    memory.archive_session("packed-1")
    shown = said("show", "packed-1", "--all-about", "Jane Roe")
    assert "is to be taken out of its file by hand" not in shown
    assert "smp anonymize packed-1 replaces it, or smp unarchive packed-1 first" in shown


def test_the_columns_stand_below_their_titles_also_where_something_is_packed(memory: Memory) -> None:
    name = "session-2026-01-11-abc123"
    session = memory.create_session(id=name)
    session.record_decision("Ask Jane Roe", made_by="a")
    session.add_turn("user", "Jane Roe")
    session.delete("DEC-001", reason="r")
    lines = said("show", "--all-about", "Jane Roe").splitlines()
    (titles,) = [line for line in lines if line.startswith("WHERE")]
    (packed,) = [line for line in lines if line.startswith("deleted/")]
    (plain,) = [line for line in lines if line.startswith("active/")]
    assert packed[: titles.index("PACKED")].rstrip() == f"deleted/{name}/backup.tar.gz"
    assert packed[titles.index("PACKED") : titles.index("ID ")].rstrip() == "decisions.yaml/DEC-001:4"
    assert (packed[titles.index("TYPE") :].split()[0], plain[titles.index("TYPE") :].split()[0]) == ("decision", "turn")


@pytest.mark.parametrize(("text", "by_hand"), [
    ('said "jane"', None), ("caf\u00e9 \\ bar", None), ("jane's door", "'- jane''s door'"),
    ("jane\u2019s", '"\\u2019 jane\\u2019s"'),
    ("\u263a jane", '"\\u263A jane"'),
])  # fmt: skip
def test_the_line_is_right_where_the_file_quotes_the_text(memory: Memory, text: str, by_hand: str | None) -> None:
    """YAML escapes and doubles what it quotes, so the text does not stand there as it is."""
    session = memory.create_session(id="s1")
    session.record_decision("plain", made_by="a")
    session.record_decision("x", made_by="a", rationale=f"- {text}: # yes\t")
    file = memory.root / "active/s1/decisions.yaml"
    if by_hand:
        file.write_text(re.sub(r"rationale: .*", lambda _: f"rationale: {by_hand}", file.read_text()))
    content = file.read_text().splitlines()
    (line,) = [number for number, each in enumerate(content, 1) if "rationale" in each]
    assert text not in content[line - 1]
    (found,) = memory.all_about(text)
    assert (found.line, found.field) == (line, "rationale")


def test_the_head_of_a_file_is_called_so(memory: Memory) -> None:
    """What stands before the first turn is no turn, and has no id."""
    session = memory.create_session(id="s1")
    session.add_turn("Jane Roe", "Hello")
    conversation = memory.root / "active/s1/conversation.md"
    conversation.write_text(conversation.read_text().replace("# Conversation History\n", "# Conversation History\nWith Jane Roe\n"))
    session.anonymize(names=["Jane Roe"])
    found = [one for one in memory.all_about("With Jane Roe") if not one.problem]
    assert [(one.id, one.type) for one in found] == [("", "head")]
    shown = said("show", "--all-about", "With Jane Roe") + said("restore", "--list")
    assert shown.count("head of the file") == 2
    assert "smp.head-of-file" not in said("restore", "--list")
