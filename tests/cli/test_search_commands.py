"""`smp search`, `show`, `topics`, `timeline` and `context`, as people, scripts and agents call them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from commands import HOSTILE, completed, on_a_terminal
from daemons import SMP, running, smp

from smp_client import Memory
from smp_client.model.layout import INDEX_FILE
from smp_daemon.cli import smp as main_command
from smp_daemon.cli.output import one_line, width

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
DRIVING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
LONG = "word " * 60 + "then a rare gadget " + "more " * 60


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sessions and what holds everywhere, written by the library; no daemon, and no index yet."""
    memory = Memory(tmp_path_factory.mktemp("read") / "sessions")
    auth = memory.create_session(
        id="auth-review",
        user="user-1",
        project="E-Commerce",
        topic="authentication",
        tags=["oauth"],
    )
    auth.add_turn("user", "Let's review the token lifetime.", timestamp="2026-01-11T14:30:00Z")
    auth.add_turn("veritas", LONG, timestamp="2026-01-11T15:10:00Z", memory_refs=["FIND-001"])
    auth.record_decision("Use OAuth 2.0 with JWT", made_by="architect", rationale="Standard,\nand SSO later", confidence="high",
                         tags=["security.authentication"], timestamp="2026-01-11T15:20:00Z")  # fmt: skip
    auth.record_finding("No MFA requirement", discovered_by="veritas", severity="critical", tags=["mfa", "security"],
                        timestamp="2026-01-11T15:30:00Z")  # fmt: skip
    auth.record_finding(
        "Session timeout not defined",
        discovered_by="veritas",
        severity="minor",
        timestamp="2026-01-11T15:40:00Z",
    )
    auth.resolve_finding("FIND-002", resolved_by="user", action_taken="30 minutes")
    auth.record_preference(
        "MFA for admins",
        topic="mfa_requirements",
        confidence="explicit",
        timestamp="2026-01-12T09:00:00Z",
    )
    auth.relate(
        "DEC-001", "FIND-001", "addresses", created_by="architect", timestamp="2026-01-12T09:00:00Z"
    )
    auth.save_artifact("report-1", "# Report\n\nAll reviewed.\n", tags=["security"])
    auth.save_agent_state("veritas", {"current_context": {"focus_area": "lockout"}})
    other = memory.create_session(id="billing")
    other.record_decision("Invoices as PDF", made_by="architect", tags=["invoices"])
    other.add_turn("user", f"hostile {HOSTILE}", timestamp="2026-01-11T15:00:00Z")
    memory.everywhere.record_preference("Short answers", topic="style", confidence="explicit")
    assert not (memory.root / INDEX_FILE).exists()
    return memory.root


def ask(root: Path, command: str, *arguments: object, **options: Any) -> str:
    done = smp(command, "--root", root, *arguments, **options)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def ask_json(root: Path, command: str, *arguments: object) -> Any:
    return json.loads(ask(root, command, "--json", *arguments))


def ids(root: Path, *arguments: object) -> list[str]:
    return [f"{found['session']}/{found['id']}" for found in ask_json(root, "search", *arguments)]


def refused(root: Path, command: str, *arguments: object, code: int = 1) -> str:
    done = smp(command, "--root", root, *arguments)
    assert (done.returncode, done.stdout) == (code, ""), done.stdout
    return done.stderr


def test_search_gives_what_scripts_need(root: Path) -> None:
    """The fields of the design, best first, from every session; the same with an index and without one."""
    Path(root / INDEX_FILE).unlink(missing_ok=True)
    found = ask_json(root, "search", "oauth", "decision")
    assert (root / INDEX_FILE).exists()
    assert found == ask_json(root, "search", "oauth decision")
    names = [
        "id",
        "session",
        "type",
        "timestamp",
        "by",
        "score",
        "priority",
        "text",
        "rationale",
        "tags",
        "marks",
        "file",
    ]
    assert list(found[0]) == names
    assert found[0] | {"score": 0, "priority": 0} == {
        "id": "DEC-001", "session": "auth-review", "type": "decision", "timestamp": "2026-01-11T15:20:00Z", "score": 0,
        "priority": 0, "text": "Use OAuth 2.0 with JWT", "tags": ["security.authentication"], "marks": [],
        "by": "architect", "rationale": "Standard,\nand SSO later", "file": str(root / "active/auth-review/decisions.yaml"),
    }  # fmt: skip
    assert 0 < found[0]["priority"] < 1
    assert [each["score"] for each in found] == sorted(
        (each["score"] for each in found), reverse=True
    )
    (explained,) = ask_json(root, "search", "oauth", "--explain", "--limit", 1)
    assert set(explained["explanation"]) == {
        "score",
        "match",
        "priority",
        "importance",
        "use",
        "state",
        "holds",
    }
    assert ask_json(root, "search", "nowheretobefound") == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (['"timeout not defined"'], ["auth-review/FIND-002"]),
        (["mfa", "--type", "preference"], ["auth-review/PREF-001"]),
        (["--type", "decision", "--type", "artifact", "--session", "auth"], ["auth-review/DEC-001", "auth-review/report-1"]),
        (["--type", "state"], ["auth-review/veritas"]),
        (["--session", "global"], ["global/GPREF-001"]),
        (["--tag", "security", "--type", "decision"], ["auth-review/DEC-001"]),
        (["--tag", "security", "--tag", "mfa", "--all-tags"], ["auth-review/FIND-001"]),
        (["--tag", "security", "--without-tag", "mfa", "--sort", "oldest"], ["auth-review/DEC-001", "auth-review/report-1"]),
        (["--agent", "architect", "--until", "2026-01-11"], ["auth-review/DEC-001"]),
        (["--since", "2026-01-11T15:35:00Z", "--until", "2026-01-11"], ["auth-review/FIND-002"]),
        (["--since", "last 7 days", "--type", "decision"], ["billing/DEC-001"]),
        (["--confidence", "high"], ["auth-review/DEC-001"]),
        (["--min-priority", "0.9", "--type", "decision"], ["billing/DEC-001"]),
        (["--only-alive", "--type", "turn"], []),
        (["oauth", "--min-relevance", "0.5"], ["auth-review/DEC-001"]),
        (["--sort", "oldest", "--limit", "1", "--offset", "1"], ["billing/turn-1"]),
        (["--type", "decision", "--", "-invoices"], ["auth-review/DEC-001"]),
        (["oauth", "--type", "decision", "--", "-jwt"], []),
    ],
    ids=lambda value: " ".join(value),
)  # fmt: skip
def test_search_is_narrowed(root: Path, arguments: list[str], expected: list[str]) -> None:
    done = CliRunner().invoke(main_command, ["search", "--json", "--root", str(root), *arguments])
    assert not done.exception, done.stderr
    assert sorted(
        f"{found['session']}/{found['id']}" for found in json.loads(done.stdout)
    ) == sorted(expected)


def test_no_result_is_said_beside_the_output(root: Path) -> None:
    done = smp("search", "--root", root, "nowheretobefound")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "No memory matches.\n")
    done = smp("timeline", "--root", root, "--since", "2020-01-01", "--until", "2020-01-02")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "Nothing happened then.\n")
    done = smp("topics", "--root", root, "global/")
    assert "session id 'global/' must be" in done.stderr


def test_results_are_a_plain_table_in_a_pipe(root: Path) -> None:
    """One line for each, whole; the session only where it was not said."""
    lines = ask(root, "search", "gadget", "mfa").splitlines()
    assert lines[0].split() == ["SCORE", "ID", "SESSION", "TYPE", "WHEN", "TEXT"]
    (turn,) = [line for line in lines if " turn-2 " in line]
    assert turn.endswith(f"auth-review  turn        2026-01-11 15:10  {LONG.strip()}")
    explained = ask(root, "search", "mfa", "--session", "auth-review", "--explain").splitlines()
    parts = ["MATCH", "PRIORITY", "IMPORTANCE", "USE", "STATE", "HOLDS"]
    assert explained[0].split() == ["SCORE", "ID", "TYPE", "WHEN", *parts, "TEXT"]
    assert re.search(
        r"REL-001 .*  DEC-001 addresses FIND-001$",
        ask(root, "search", "--type", "relationship"),
        re.MULTILINE,
    )


def test_no_memory_drives_the_terminal_that_it_is_shown_on(root: Path) -> None:
    """Colours are the command's own, lines fit, and of a long text the part is shown that matches."""
    shown = on_a_terminal("search", "--root", root, "gadget", "hostile", columns=100)
    assert "\x1b[36mturn-2\x1b[0m" in shown
    bare = COLOUR.sub("", shown)
    assert all(width(line) <= 100 for line in bare.splitlines())
    assert re.search(r"^ *[\d.]+  turn-2 .*  …a rare gadget more more", bare, re.MULTILINE)
    timeline = on_a_terminal("timeline", "--root", root, columns=70)
    for command in (
        ["show", "billing"],
        ["show", "billing", "turn-1"],
        ["show", "billing", "turn-1", "--raw"],
        ["topics"],
    ):
        shown += on_a_terminal(*command, "--root", root, columns=70)
    assert one_line(HOSTILE)[:40] in shown
    assert "\x1b[36mDEC-001\x1b[0m" in timeline
    assert all(width(line) <= 70 for line in COLOUR.sub("", timeline).splitlines())
    assert not DRIVING.search(COLOUR.sub("", shown + timeline))
    assert "\x1b" not in on_a_terminal("timeline", "--root", root, columns=30, NO_COLOR="1")
    as_json = on_a_terminal("search", "--root", root, "hostile", "--json", columns=80)
    assert not DRIVING.search(as_json)
    assert json.loads(as_json)[0]["text"].startswith("hostile \x1b]0;owned")


def test_a_session_is_shown_in_short(root: Path) -> None:
    shown = ask(root, "show", "auth")
    for line in (
        r"auth-review  active", r"project +E-Commerce", r"topic +authentication", r"tags +oauth", r"user +user-1",
        r"active +2026-01-11 14:30 to 20.*", r"size +\d.* KB of 10.0 MB, 0.0% full",
        r"memories +turn 2, finding 2, state 1, artifact 1, decision 1, preference 1, relationship 1",
        r"participants +veritas 4, architect 2, user 1", r"topics +security 4, .*", r"DEC-001 +0\.\d\d  Use OAuth 2.0 with JWT",
        r"FIND-001 +0\.\d\d  critical: No MFA requirement", r"PREF-001 +0\.\d\d  MFA for admins",
    ):  # fmt: skip
        assert re.search(f"^{line}$", shown, re.MULTILINE), (line, shown)
    assert "FIND-002" not in shown  # it is resolved
    found = ask_json(root, "show", "auth-review")
    assert list(found) == [
        "id", "state", "metadata", "profile", "size", "problem", "memories", "participants", "first_activity", "last_activity",
        "topics", "decisions", "open_findings", "preferences",
    ]  # fmt: skip
    assert found["metadata"]["context"]["project_name"] == "E-Commerce"
    assert found["size"]["quota_bytes"] == 10 * 1024**2
    assert [each["id"] for each in found["open_findings"]] == ["FIND-001"]
    assert found["topics"][0]["name"] == "security"
    everywhere = ask(root, "show", "global")
    assert re.search(r"^GPREF-001 +0\.\d\d  Short answers$", everywhere, re.MULTILINE)


def test_a_session_with_a_slip_in_its_metadata_is_shown_all_the_same(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "s")
    memory.create_session(id="s1").record_decision("D", made_by="a")
    memory.everywhere.save_profile(name="Ada", style={"tone": "dry"})
    (memory.root / "active/s1/metadata.yaml").write_text("session: [")
    shown = ask(memory.root, "show", "s1")
    assert shown.startswith("s1  unreadable\nproblem       metadata.yaml, line 2: ")
    assert "DEC-001" in shown
    assert ask_json(memory.root, "show", "s1")["metadata"] is None
    assert "PROFILE\nname: Ada\nstyle:\n  tone: dry\n" in ask(memory.root, "show", "global")


def test_a_memory_is_shown_whole(root: Path) -> None:
    """With its priority now against the stored one, where it stands, and what it is related to."""
    shown = ask(root, "show", "auth-review", "DEC-001")
    file = root / "active/auth-review/decisions.yaml"
    assert shown.startswith("DEC-001  decision in auth-review\n")
    assert re.search(r"^priority +0\.\d\d now, 0\.95 as last written$", shown, re.MULTILINE)
    assert re.search(rf"^where +{re.escape(str(file))}, lines 3 to (\d+)$", shown, re.MULTILINE)
    assert re.search(
        r"^related +DEC-001 addresses FIND-001: No MFA requirement$", shown, re.MULTILINE
    )
    assert 'id: DEC-001\ntimestamp: "2026-01-11T15:20:00Z"\nmade_by: architect\n' in shown
    assert "rationale: |-\n  Standard,\n  and SSO later\n" in shown
    found = ask_json(root, "show", "auth-review", "FIND-002")
    first, last = found["lines"]
    lines = (root / "active/auth-review/findings.yaml").read_text().splitlines()
    assert "id: FIND-002" in lines[first - 1]
    assert "decay:" in "\n".join(lines[first - 1 : last])
    assert last == len(lines)
    assert found["data"]["resolution"]["action_taken"] == "30 minutes"
    assert found["stored_priority"] == 0.9
    assert {
        "id": "FIND-001",
        "type": "finding",
        "text": "No MFA requirement",
        "path": ["DEC-001 addresses FIND-001"],
    } in (ask_json(root, "show", "auth-review", "DEC-001")["related"])
    artifact = ask(root, "show", "report-1")
    assert f"{root}/active/auth-review/artifacts/report-1.md, lines 1 to" in artifact
    assert "content: |\n  # Report\n\n  All reviewed.\n" in artifact
    assert "focus_area: lockout" in ask(root, "show", "auth-review", "veritas")


def test_raw_is_every_byte_of_the_record(root: Path) -> None:
    """Also of one that holds what a terminal would obey, and of a file that is one memory."""
    for session, memory_id, file in [
        ("auth-review", "FIND-001", "findings.yaml"), ("billing", "turn-1", "conversation.md"),
        ("auth-review", "report-1", "artifacts/report-1.md"), ("auth-review", "veritas", "agent-states/veritas.yaml"),
    ]:  # fmt: skip
        done = subprocess.run(
            [*SMP, "show", "--root", str(root), session, memory_id, "--raw"],
            capture_output=True,
            check=True,
        )
        whole = (root / "active" / session / file).read_bytes()
        assert done.stdout in whole
        assert whole == done.stdout or memory_id.encode().lstrip(b"turn-") in done.stdout
        assert b"FIND-002" not in done.stdout
    assert done.stdout == whole


def test_a_memory_is_found_by_its_id_alone(root: Path) -> None:
    """Where one session has it; else it is said which do, and what was perhaps meant."""
    assert ask(root, "show", "PREF-001").startswith("PREF-001  preference in auth-review\n")
    assert ask(root, "show", "GPREF-001").startswith("GPREF-001  preference in global\n")
    assert "auth-review" in refused(root, "show", "DEC-001", code=2)
    assert "There is no memory 'DEC-01' in auth-review." in refused(
        root, "show", "auth-review", "DEC-01"
    )
    assert "There is no memory '../x' in billing." in refused(root, "show", "billing", "../x")
    assert "There is no session 'zzz' under" in refused(root, "show", "zzz")
    assert ask(root, "show", "latest").split()[0] in ("auth-review", "billing")


def test_an_id_from_elsewhere_drives_no_terminal(tmp_path: Path) -> None:
    """It is listed, written out, and never suggested, which would put it into an error as it is."""
    memory = Memory(tmp_path / "s")
    memory.create_session(id="s1").record_decision("Ours", made_by="a")
    file = memory.root / "active/s1/decisions.yaml"
    file.write_text(file.read_text() + '  - {id: "DEC-\\e[31m01", decision: Theirs, made_by: a}\n')
    assert "DEC-\\x1b[31m01" in ask(memory.root, "search", "theirs")
    assert DRIVING.search(refused(memory.root, "show", "DEC-\x1b[31m02", code=2)) is None


def test_reading_counts_unless_it_is_not_to(root: Path) -> None:
    def readings() -> str:
        log = root / "active/billing/access.log"
        return log.read_text() if log.exists() else ""

    before = readings()
    for command in (["search", "invoices"],
                    ["show", "billing", "DEC-001", "--no-count"], ["show", "billing"],
                    ["topics", "billing"], ["timeline", "billing"]):  # fmt: skip
        ask(root, command[0], *command[1:])
    assert refused(root, "show", "billing", "DEC-002")
    assert readings() == before
    ask(root, "show", "billing", "DEC-001")
    assert readings().removeprefix(before).count(" DEC-001") == 1


def test_topics_of_one_session_or_all(root: Path) -> None:
    lines = ask(root, "topics", "auth").splitlines()
    assert lines[0].split() == ["TOPIC", "MENTIONS", "WEIGHT", "FIRST", "LAST", "SUBTOPICS"]
    assert lines[1].split()[:2] == ["security", "4"]
    assert "security.authentication" in lines[1]
    found = ask_json(root, "topics")
    assert {"security", "invoices", "style"} <= {topic["name"] for topic in found}
    assert set(found[0]) == {
        "name",
        "weight",
        "mentions",
        "first_mentioned",
        "last_mentioned",
        "related",
        "subtopics",
    }


def test_a_timeline_is_in_order_and_can_be_narrowed(root: Path) -> None:
    lines = ask(root, "timeline", "--until", "2026-01-12").splitlines()
    assert lines[0].split() == ["WHEN", "SESSION", "ID", "TYPE", "WHO", "TEXT"]
    assert [tuple(line.split()[2:4]) for line in lines[1:5]] == [
        ("auth-review", "turn-1"), ("billing", "turn-1"), ("auth-review", "turn-2"), ("auth-review", "DEC-001"),
    ]  # fmt: skip
    assert any(line.endswith("architect  DEC-001 addresses FIND-001") for line in lines)
    found = ask_json(
        root,
        "timeline",
        "auth",
        "--type",
        "finding",
        "--type",
        "relationship",
        "--since",
        "2026-01-11T15:30:00Z",
    )
    assert [event["id"] for event in found] == ["FIND-001", "FIND-002", "REL-001"]
    assert found[0] == {
        "id": "FIND-001", "session": "auth-review", "type": "finding", "timestamp": "2026-01-11T15:30:00Z", "actor": "veritas",
        "text": "No MFA requirement", "topics": ["mfa", "security"], "severity": "critical", "marks": [],
    }  # fmt: skip


def test_what_has_no_time_is_named_beside_a_timeline(tmp_path: Path) -> None:
    """On stderr, also beside JSON; only of the types that were asked for."""
    memory = Memory(tmp_path)
    session = memory.create_session(id="s1")
    session.record_decision("At some time", made_by="ann")
    (tmp_path / "active/s1/findings.yaml").write_text(
        "findings:\n  - {id: FIND-001, finding: At no time, discovered_by: ann}\n"
    )
    assert [one[1:] for one in session.timeline().without_time] == [("s1", "FIND-001")]
    for arguments, told in (
        ((), "s1/FIND-001"),
        (("s1",), "FIND-001"),
        (("s1", "--json", "--since", "today"), "FIND-001"),
    ):
        done = CliRunner().invoke(main_command, ["timeline", *arguments, "--root", str(tmp_path)])
        assert "At some time" in done.stdout
        assert done.stderr == f"Without a time, and not listed: {told}.\n"
    only = CliRunner().invoke(
        main_command, ["timeline", "--type", "decision", "--root", str(tmp_path)]
    )
    assert only.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["search", "x", "--type", "bad"], 2, "Invalid value for '--type': There are turn, decision,"),
        (["search", "x", "--type", "turn", "--since", "soon"], 2, "smp: since: 'soon' is not an ISO time"),
        (["search", "x", "--session", "zzz"], 1, "smp: There is no session 'zzz' under"),
        (["search", "x", "--min-priority", "2"], 2, "Error: Invalid value for '--min-priority': 2.0 is not in the range 0<=x<=1."),
        (["search", "x", "--sort", "best"], 2, "Error: Invalid value for '--sort': 'best' is not one of"),
        (["search", "x", "--limit", "0"], 2, "Error: Invalid value for '--limit': 0 is not in the range x>=1."),
        (["search", "oauth", "-jwt"], 2, "No such option '-j'"),
        (["search", "--sesion", "x"], 2, "'--session'"),
        (["show"], 2, "Error: Missing argument 'SESSION'."),
        (["show", "auth-review", "--raw"], 2, "Error: --raw is about memories: give their ids too."),
        (["show", "PREF-001", "--raw", "--json"], 2, "Error: Give either --raw or --json."),
        (["timeline", "--until", "soon"], 2, "smp: 'soon' is not an ISO time"),
        (["context", "--all", "--project", "Shop"], 2, "Error: Give either --project or --all."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_what_is_wrong_is_said_in_a_sentence(
    root: Path, arguments: list[str], code: int, problem: str
) -> None:
    if not problem.startswith("smp:"):  # said by click itself: no need to start a process for each
        done = CliRunner().invoke(main_command, [*arguments, "--root", str(root)])
        assert (done.exit_code, done.stdout) == (2, "")
        said = done.stderr
    else:
        said = refused(root, arguments[0], *arguments[1:], code=code)
    assert problem in said.splitlines()[-1]
    assert "Traceback" not in said


def test_a_tree_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    for command, *arguments in (
        ["search", "--session", "global"],
        ["show", "global"],
        ["timeline"],
        ["context", "--session", "s"],
    ):
        assert "There is no memory at" in refused(tmp_path / "nowhere", command, *arguments)
    assert not (tmp_path / "nowhere").exists()


READING = (
    "search oauth", "sessions", "timeline", "topics", "show latest", "show --all-about x", "context --session latest",
    "check", "sync",
    "reindex", "check --repair", "decay", "compact --all", "archive --due", "export --all", "export --all -o {}/out",
    "restore --list", "purge", "delete --all --text x --reason y", "anonymize latest", "add latest turn T",
)  # fmt: skip
MAKING = (
    "new",
    "init",
    "add global pattern P --by a",
    *(f"import {{}}/log.md {how}" for how in ("", "--dry-run", "--migrate")),
)


def test_a_directory_that_is_no_tree_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    """Above all the project itself: nothing is found or written there, and its tree is named."""
    project, nothing = tmp_path / "project", tmp_path / "nothing"
    (tmp_path / "log.md").write_text(
        "User: Hello\n\nAssistant: Good day\n\nUser: What is new?\n\nAssistant: Nothing\n"
    )
    nothing.mkdir()
    Memory(project / ".bmad/sessions").create()
    before = sorted(tmp_path.rglob("*"))
    for root, commands, advice in (
        (project, (*READING, *MAKING), f"Name {project}/.bmad/sessions as the root."),
        (nothing, READING, "Make it with smp init, or name another root."),
    ):
        for command in commands:
            done = CliRunner().invoke(
                main_command, [*command.format(tmp_path).split(), "--root", str(root)]
            )
            assert str(done.exception) == f"There is no memory at {root}. {advice}", command
            assert sorted(tmp_path.rglob("*")) == before, command
    assert f"Name {project}/.bmad/sessions as the root." in refused(project, "run")
    assert sorted(tmp_path.rglob("*")) == before
    assert Memory(nothing).create_session(id="first").id == "first"


def test_a_daemon_makes_no_difference_to_what_is_found(tmp_path: Path) -> None:
    """A write is found by the very next question, with a daemon that may not have seen it yet."""
    memory = Memory(tmp_path / "s")
    session = memory.create_session(id="s1")
    with running(memory.root, log=tmp_path / "log"):
        for number in (1, 2):
            session.record_decision(f"Choice number{number}", made_by="a")
            assert ids(memory.root, f"number{number}") == [f"s1/DEC-{number:03d}"]
        session.record_decision("Choice number3", made_by="a")
        assert ask(memory.root, "show", "DEC-003").startswith("DEC-003  decision in s1\n")
    assert ids(memory.root, "number2") == ["s1/DEC-002"]


@pytest.mark.parametrize(
    "arguments", [["search"], ["show", "auth-review"], ["show", "report-1", "--raw"], ["timeline"]]
)
def test_a_closed_pipe_ends_it_quietly(root: Path, arguments: list[str]) -> None:
    """As in `smp search | head -1`, where nobody reads the rest."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*SMP, *arguments, "--root", str(root)], stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert done.stderr == b""


def test_the_shell_completes_sessions_and_memories(root: Path) -> None:
    ask(root, "search", "--limit", 1)  # makes the index
    assert completed("smp show auth", root) == ["auth-review"]
    assert completed("smp show auth-review FIND", root) == ["FIND-001", "FIND-002"]
    assert completed("smp topics g", root) == ["global"]
    assert completed("smp search x --session b", root) == ["billing"]


def test_context_is_what_the_library_gives(root: Path) -> None:
    """For the session or one of its agents, within its budget; nothing in it drives a terminal."""
    memory = Memory(root, count_access=False)
    session = memory.session("auth-review")
    text = ask(root, "context", "--session", "auth")
    assert text == session.context().removesuffix("\n") + "\n"
    assert "Use OAuth 2.0 with JWT" in text
    found = ask_json(
        root,
        "context",
        "--session",
        "auth-review",
        "--agent",
        "veritas",
        "--topic",
        "mfa",
        "--max-tokens",
        100,
    )
    context = session.agent("veritas").context(topic="mfa", max_tokens=100)
    assert found == {
        "session": "auth-review", "project": None, "agent": "veritas", "task": None, "topic": "mfa", "max_tokens": 100,
        "explain": False, "context": context, "included": [{"id": id, "why": why} for id, why in context.included],
        "left_out": [{"id": id, "why": why} for id, why in context.left_out],
    }  # fmt: skip
    assert 0 < len(found["context"]) < len(text)
    assert not DRIVING.search(ask(root, "context", "--session", "billing"))
    assert ask(root, "context", "--task", "mfa", "--explain") == memory.context(
        task="mfa", explain=True
    )
    assert ask(root, "context", "--session", "auth", "--all") == session.context(project="*")
    assert "agent '../x' must be" in refused(
        root, "context", "--session", "auth-review", "--agent", "../x", code=2
    )
