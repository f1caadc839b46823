"""`smp delete`, `restore`, `purge` and `anonymize`, as people, scripts and shells use them."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path

import pytest
from commands import answered, content, run, run_json
from daemons import smp
from once import copied

from smp_client import Memory

pytestmark = pytest.mark.usefixtures("short_grace")
SECRET = "Jane Doe"


def stocked(root: Path) -> None:
    memory = Memory(root)
    first = memory.create_session(id="first-1", topic="billing")
    first.add_turn("user", f"{SECRET} asked")
    first.add_turn("vera", "Noted")
    first.record_decision("Use OAuth", made_by="vera", tags=["security"])
    first.record_decision(f"Ask {SECRET} first", made_by="bert", tags=["security.people"])
    first.record_finding("No lock", discovered_by="vera", severity="low")
    first.save_artifact("report", f"by {SECRET}")
    for focus in (SECRET, "billing"):
        first.save_agent_state("vera", {"focus": focus})
    memory.everywhere.record_pattern(f"{SECRET} likes tabs", learned_by="vera")
    memory.create_session(id="packed-1").add_turn("user", f"{SECRET} again")
    memory.archive_session("packed-1", "done")
    memory.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return copied(stocked, tmp_path / "sessions")


def places(root: Path) -> list[str]:
    """Return the files, packed ones left out, in which the secret stands."""
    return [name for name, found in content(root).items() if SECRET.encode() in found]


CONDITIONS = """
--agent vera                     | turn-2 DEC-001 FIND-001 vera STATE-001
--type artifact --type state     | vera report STATE-001
--text 'JANE doe'                | turn-1 DEC-002 report STATE-001
--since today --type finding     | FIND-001
vera DEC-001                     | vera DEC-001 STATE-001
"""


@pytest.mark.parametrize("line", CONDITIONS.strip().splitlines())
def test_memories_are_described_by_conditions(root: Path, line: str) -> None:
    options, _, expected = line.partition("|")
    found = run_json(root, f"delete first-1 {options} --reason r --dry-run")
    ids = [one for action in found["actions"] for one in action["about"]]
    assert sorted(ids) == sorted(expected.split())


def test_all_reaches_every_session_and_one_batch_brings_it_back(root: Path) -> None:
    said = run(root, f"delete --all --text '{SECRET}' --reason 'she asked for it'")
    rows = [line.split()[0] for line in said.splitlines()[1:4]]
    assert rows == ["global", "first-1", "packed-1"]
    listed = run_json(root, "restore --list")
    (batch,) = {one["batch"] for one in listed}
    assert f"For 30 days smp restore --batch {batch} brings it back." in said
    assert f"smp show --all-about '{SECRET}' finds other places." in said
    assert (places(root), run_json(root, "search Jane")) == ([], [])
    again = run(root, f"delete --all --text '{SECRET}' --reason r")
    assert again == "Nothing fits: nothing was deleted.\n"
    assert [one["id"] for one in listed] == [
        "turn-1", "DEC-002", "report", "STATE-001", "PAT-001", "turn-1"]  # fmt: skip
    assert all(SECRET in one["text"] for one in listed)
    assert len(run_json(root, "restore packed --list")) == 1
    planned, done = (run_json(root, f"restore --batch {batch} {more}") for more in ("--dry-run", ""))
    assert planned["actions"] == done["actions"]
    found = {one["session"] for one in run_json(root, "search Jane")}
    assert found == {"first-1", "global", "packed-1"}


def test_a_condition_that_no_memory_fulfils_is_named(root: Path) -> None:
    said = smp("delete", "--all", "--tag", "secuirty", "--agent", "zz", "--topic", "secuirty",
               "--reason", "r", "--root", root)  # fmt: skip
    assert said.returncode == 0
    assert "note: No memory is from 'zz'." in said.stderr
    assert "No memory has the tag 'secuirty'" in said.stderr
    assert "note: No memory is about 'secuirty'" in said.stderr
    assert said.stdout == "Nothing fits: nothing was deleted.\n"


def test_a_file_that_cannot_be_read_is_named_and_the_rest_is_deleted(root: Path) -> None:
    (root / "active/first-1/findings.yaml").write_bytes(b"version: 999\nfindings: []\n")
    found = run_json(root, f"delete --all --text '{SECRET}' --reason r", code=1)
    assert {action["session"] for action in found["actions"]} == {"global", "first-1", "packed-1"}
    assert any("findings.yaml cannot be read" in problem for problem in found["problems"])


def test_a_person_is_asked_before_memories_are_deleted(root: Path) -> None:
    """Only a yes deletes; --yes and a plan are not asked, and a script never is."""
    before = content(root)
    line = f"delete --all --text '{SECRET}' --reason r --json"
    for answer in ("n\n", "\n", "\x04"):
        code, shown, printed = answered(answer, root, line)
        assert (code, printed) == (1, "")
        assert "Delete PAT-001, turn-1, DEC-002, report, STATE-001 of global, first-1," in shown
        assert "? For 30 days" in shown
        assert content(root) == before
    assert answered("", root, f"{line} --dry-run")[:2] == (0, "")
    assert answered("", root, "delete first-1 --text nobody --reason r")[:2] == (0, "")
    code, _, printed = answered("y\n", root, line)
    assert (code, len(json.loads(printed)["actions"])) == (0, 3)
    assert answered("", root, "delete first-1 DEC-001 --reason r --yes")[:2] == (0, "")
    assert answered("y\n", root, "delete first-1 --reason r")[0] == 0


def test_a_person_is_asked_before_memories_are_destroyed(root: Path) -> None:
    before = content(root)
    for line, question in (
        ("purge first DEC-001 --now", "Destroy DEC-001 of first-1 for good?"),
        ("purge packed --now", "Destroy packed-1 for good?"),
        (f"anonymize first-1 --name '{SECRET}' --now", "Nothing brings the originals back"),
    ):
        code, shown, printed = answered("n\n", root, line)
        assert (code, printed, content(root)) == (1, "", before)
        assert question in shown
    assert answered("y\n", root, "purge first DEC-001 --now")[0] == 0
    assert "Use OAuth" not in str(content(root))


def test_a_purge_needs_no_other_command(root: Path) -> None:
    """Memories that are in use are deleted first. Other places of the same words are named."""
    Memory(root).session("first-1").add_turn("user", f"Ask {SECRET} first")
    before = content(root)
    line = "purge first-1 DEC-002 report --now"
    plan = run_json(root, f"{line} --dry-run")
    assert [action["about"] for action in plan["actions"]] == [["DEC-002", "report"]]
    assert content(root) == before
    done = run_json(root, line)
    assert [action["type"] for action in done["actions"]] == ["purge_memories"]
    assert done["notes"] == ["The same words still stand in active/first-1/conversation.md."]
    assert run_json(root, "restore --list") == []


def test_a_batch_and_a_session_are_destroyed_at_once(root: Path) -> None:
    run(root, f"delete --all --text '{SECRET}' --reason r")
    batch = run_json(root, "restore --list")[0]["batch"]
    done = run_json(root, f"purge --batch {batch} --now")
    assert [action["session"] for action in done["actions"]] == ["first-1", "global", "packed-1"]
    run(root, "delete packed-1 --whole --reason r")
    for name in ("packed-1", "first-1"):
        (action,) = run_json(root, f"purge {name} --now --whole")["actions"]
        assert action["type"] == "purge_session"
    assert run_json(root, "sessions --all") == []


@pytest.mark.parametrize("line", ["delete first-1 $ID --reason r", "purge first-1 $ID --now"])
@pytest.mark.parametrize("yes", ["", "--yes"])
def test_a_script_with_an_empty_id_does_not_mean_the_whole_session(
    root: Path, line: str, yes: str
) -> None:
    before = content(root)
    said = run(root, f"{line.replace('$ID', '')} {yes}", code=2)
    assert "the whole session: say --whole, or name memories by their ids" in said
    assert run(root, f"{line.replace('$ID', chr(39) * 2)} {yes}", code=2)
    assert content(root) == before
    assert run(root, f"{line.replace('$ID', 'DEC-001')} --whole", code=2)
    assert run(root, f"{line.replace('$ID', '')} --whole {yes}")
    assert [one["id"] for one in run_json(root, "sessions")] == []


def test_reasons_and_criteria_are_in_the_audit_log(root: Path) -> None:
    """A text that was sought is what somebody wants to be gone, so only its length is there."""
    said = "delete first-1 --tag security --since 2020-01-01 --reason private"
    run(root, f"{said} --reason-for 'DEC-002=names a person'")
    listed = {one["id"]: one["reason"] for one in run_json(root, "restore --list")}
    assert listed == {"DEC-001": "private", "DEC-002": "names a person"}
    run(root, "restore first-1 DEC-001 --reason 'needed after all'")
    run(root, f"delete first-1 --text '{SECRET}' --type turn --reason r")
    run(root, "delete packed-1 --whole --reason done")
    run(root, "restore packed-1 --reason 'not done'")
    run(root, "purge --older-than 'last 1 seconds'")
    lines = [json.loads(line) for line in (root / "audit.log").read_text().splitlines()]
    assert [(line["action"], line["reason"]) for line in lines[:5]] == [
        ("delete", "private"), ("restore", "needed after all"), ("delete", "r"),
        ("delete", "done"), ("restore", "not done")]  # fmt: skip
    assert lines[0]["criteria"] == {"since": "2020-01-01", "tags": ["security"]}
    assert lines[2]["criteria"] == {"types": ["turn"], "text": "8 characters"}
    assert SECRET not in (root / "audit.log").read_text()
    wrong = run(root, "delete first-1 DEC-001 --reason r --reason-for DEC-9=x", code=2)
    assert "reasons name DEC-9, which is not deleted here" in wrong
    assert "must be ID=WHY" in run(root, "delete first-1 DEC-001 --reason r --reason-for x", code=2)


def test_the_audit_log_names_the_account_unless_somebody_else_is_named(root: Path) -> None:
    """As the system knows it, and not as a variable says."""
    hostile = {**os.environ, "LOGNAME": "somebody-else", "USER": "somebody-else"}
    run(root, "delete first-1 DEC-001 --reason test", env=hostile)
    run(root, "restore first-1 DEC-001 --by rita")
    run(root, "purge first-1 DEC-001 --now --by paul")
    lines = [json.loads(line) for line in (root / "audit.log").read_text().splitlines()]
    found = [(line["action"], line["by"]) for line in lines]
    account = pwd.getpwuid(os.geteuid()).pw_name
    names = [("delete", account), ("restore", "rita"), ("delete", "paul"), ("purge", "paul")]
    assert found == names
