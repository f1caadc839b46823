"""`smp search`, `timeline`, `topics`, `stats` and `context`, as people, scripts and agents ask."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands import DRIVING, HOSTILE, run, run_json
from daemons import SMP, smp

from smp_client import Memory
from smp_client.model.layout import INDEX_FILE

LONG = "word " * 60 + "then a rare gadget " + "more " * 60


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sessions and a preference that holds everywhere; no daemon, and no index yet."""
    memory = Memory(tmp_path_factory.mktemp("read") / "sessions")
    auth = memory.create_session(id="auth-review", project="Shop", topic="authentication")

    def at(time: str) -> dict[str, Any]:
        return {"timestamp": f"2026-01-{time}:00Z"}

    auth.add_turn("user", "Let's review the token lifetime.", **at("11T14:30"))
    auth.add_turn("veritas", LONG, **at("11T15:10"))
    auth.record_decision("Use OAuth 2.0 with JWT", made_by="architect", confidence="high",
                         rationale="Standard,\nand SSO later", tags=["security.authentication"],
                         **at("11T15:20"))  # fmt: skip
    auth.record_finding("No MFA requirement", discovered_by="veritas", severity="critical",
                        tags=["mfa", "security"], **at("11T15:30"))  # fmt: skip
    auth.record_finding("Session timeout not defined", discovered_by="veritas", **at("11T15:40"))
    auth.record_preference("MFA for admins", topic="mfa", confidence="explicit", **at("12T09:00"))
    auth.relate("DEC-001", "FIND-001", "addresses", created_by="architect", **at("12T09:01"))
    auth.save_artifact("report-1", "# Report\n\nAll reviewed.\n", tags=["security"])
    auth.save_agent_state("veritas", {"current_context": {"focus_area": "lockout"}})
    other = memory.create_session(id="billing")
    other.record_decision("Invoices as PDF", made_by="architect", tags=["invoices"])
    other.add_turn("user", f"hostile {HOSTILE}", **at("11T15:00"))
    memory.everywhere.record_preference("Short answers", topic="style", confidence="explicit")
    assert not (memory.root / INDEX_FILE).exists()
    return memory.root


def test_search_gives_scripts_the_fields_of_the_design(root: Path) -> None:
    """Best first, from every session; with an index and without one."""
    (root / INDEX_FILE).unlink(missing_ok=True)
    found = run_json(root, "search oauth decision")
    assert (root / INDEX_FILE).exists()
    assert found == run_json(root, "search 'oauth decision'")
    assert found[0] | {"score": 0, "priority": 0} == {
        "id": "DEC-001", "session": "auth-review", "type": "decision", "score": 0, "priority": 0,
        "timestamp": "2026-01-11T15:20:00Z", "by": "architect", "text": "Use OAuth 2.0 with JWT",
        "rationale": "Standard,\nand SSO later", "tags": ["security.authentication"], "marks": [],
        "file": str(root / "active/auth-review/decisions.yaml"),
    }  # fmt: skip
    scores = [each["score"] for each in found]
    assert scores == sorted(scores, reverse=True)
    (explained,) = run_json(root, "search oauth --explain --limit 1")
    parts = {"score", "match", "priority", "importance", "use", "state", "holds"}
    assert set(explained["explanation"]) == parts


NARROWED = """
"timeout not defined"                            | FIND-002
--type decision --type artifact --session auth   | DEC-001 report-1
--session global                                 | GPREF-001
--tag security --type decision                   | DEC-001
--agent architect --until 2026-01-11             | DEC-001
--since 2026-01-11T15:35:00Z --until 2026-01-11  | FIND-002
--since 'last 7 days' --type decision            | billing/DEC-001
--sort oldest --limit 1                          | turn-1
--project Quay --type decision                   | billing/DEC-001
"""


@pytest.mark.parametrize("line", NARROWED.strip().splitlines())
def test_search_is_narrowed(root: Path, line: str) -> None:
    options, _, expected = line.partition("|")
    found = [f"{one['session']}/{one['id']}" for one in run_json(root, f"search {options}")]
    names = [name.removeprefix("auth-review/").removeprefix("global/") for name in found]
    assert sorted(names) == sorted(expected.split())


def test_no_result_is_said_beside_the_output(root: Path) -> None:
    done = smp("search", "nowheretobefound", "--root", root)
    assert (done.stdout, done.stderr) == ("", "No memory matches; searched by words.\n")
    done = smp("search", "--json", "--type", "decision", "--root", root, "--", "-invoices")
    assert ("OAuth" in done.stdout, "Invoices" in done.stdout) == (True, False)


def test_results_are_a_plain_table_in_a_pipe(root: Path) -> None:
    """One line for each; the session only where it was not said."""
    lines = run(root, "search gadget mfa").splitlines()
    assert lines[0].split() == ["SCORE", "ID", "SESSION", "TYPE", "WHEN", "TEXT"]
    (turn,) = [line for line in lines if " turn-2 " in line]
    assert "  auth-review  turn        2026-01-11 15:10  …word " in turn
    assert " gadget " in turn
    head = run(root, "search --type relationship --session auth-review --explain").splitlines()
    assert head[0].split()[4:] == ["MATCH", "PRIORITY", "IMPORTANCE", "USE", "STATE", "HOLDS", "TEXT"]
    assert head[1].endswith("  DEC-001 addresses FIND-001")


def test_reading_counts_and_a_list_of_hits_does_not(root: Path) -> None:
    log = root / "active/billing/access.log"

    def readings() -> str:
        return log.read_text() if log.exists() else ""

    before = readings()
    for line in ("search invoices", "show billing DEC-001 --no-count", "show billing", "timeline"):
        run(root, line)
        assert readings() == before, line
    run(root, "show billing DEC-001")
    assert readings() != before


def test_a_timeline_is_in_order_and_can_be_narrowed(root: Path) -> None:
    lines = run(root, "timeline --until 2026-01-12").splitlines()
    assert lines[0].split() == ["WHEN", "SESSION", "ID", "TYPE", "ACTOR", "TEXT"]
    rows = [line.split()[2:4] for line in lines[1:5]]
    assert rows == [["auth-review", "turn-1"], ["billing", "turn-1"], ["auth-review", "turn-2"],
                    ["auth-review", "DEC-001"]]  # fmt: skip
    assert lines[-1].endswith("architect  DEC-001 addresses FIND-001")
    found = run_json(root, "timeline auth --type finding --since 2026-01-11T15:35:00Z")
    assert [(event["id"], event["actor"], event["severity"]) for event in found] == [
        ("FIND-002", "veritas", "medium")]  # fmt: skip
    assert len(run(root, "timeline auth --limit 2").splitlines()) == 3


def test_topics_are_counted(root: Path) -> None:
    assert run(root, "topics").splitlines()[1].split()[:2] == ["security", "3"]
    assert [topic["name"] for topic in run_json(root, "topics billing")] == ["invoices"]


def test_a_closed_pipe_ends_it_quietly(root: Path) -> None:
    """As in `smp search | head -1`, where nobody reads the rest."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [*SMP, "search", "--root", str(root)]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert done.stderr == b""


def test_context_is_that_of_the_library(root: Path) -> None:
    memory = Memory(root, count_access=False)
    session = memory.session("auth-review")
    text = run(root, "context --session auth")
    assert text == session.context().removesuffix("\n") + "\n"
    assert "Use OAuth 2.0 with JWT" in text
    found = run_json(root, "context --session auth --agent veritas --topic mfa --max-tokens 100")
    context = session.agent("veritas").context(topic="mfa", max_tokens=100)
    assert (found["agent"], found["context"]) == ("veritas", context)
    assert found["left_out"] == list(context.left_out)
    assert not DRIVING.search(run(root, "context --session billing"))
    assert run(root, "context --task mfa") == memory.context(task="mfa")
    assert run(root, "context --session auth --all") == session.context(project="*")


def test_a_long_text_is_shown_around_its_match(tmp_path: Path) -> None:
    """A list stays a list; JSON has the whole text."""
    long = "words " * 200 + "the zebra crossing " + "more " * 200
    Memory(tmp_path).create_session(id="s1").add_turn("user", long)
    (line,) = run(tmp_path, "search zebras").splitlines()[1:]
    assert "zebra crossing" in line
    assert len(line) < 400
    (found,) = run_json(tmp_path, "search zebras")
    assert found["text"] == long


def test_a_search_says_how_many_more_there_are(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "sessions")
    session = memory.create_session(id="s1")
    for number in range(25):
        session.record_learning(f"gadget {number}", learned_by="ann", tags=["a", "b"][: number + 1])
    shown = smp("search", "gadget", "--root", memory.root)
    assert "5 more; --offset 20 shows the next, --limit N more at once." in shown.stderr
    rest = smp("search", "gadget", "--offset", "20", "--root", memory.root)
    assert len(rest.stdout.splitlines()) == 6
    assert "more" not in rest.stderr
    behind = smp("search", "gadget", "--offset", "30", "--root", memory.root)
    assert "There are only 25: --offset 30 leaves out all of them." in behind.stderr
    few = run_json(memory.root, "search --all-tags a --all-tags b --limit 30")
    assert len(few) == 24
    few = run_json(memory.root, "search --tag a --without-tag b --limit 30")
    assert [one["text"] for one in few] == ["gadget 0"]
    assert run_json(memory.root, "search --min-importance 0.95") == []
    assert run_json(memory.root, "search --confidence high") == []


def test_commands_name_the_project_and_the_tag_that_nothing_has(root: Path) -> None:
    context = smp("context", "--project", "Shpo", "--root", root)
    assert "No session is of the project 'Shpo' (did you mean 'Shop'?)." in context.stderr
    search = smp("search", "--tag", "secuirty", "--agent", "Architect", "--root", root)
    assert "did you mean 'security'?" in search.stderr
    assert "No memory is from 'Architect' (did you mean 'architect'?)." in search.stderr
    assert smp("search", "oauth", "--sort", "newst", "--root", root).returncode == 2
