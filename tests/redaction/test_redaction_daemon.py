"""Secrets that come in while a daemon looks on: dropped, or written past the library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon, running, settings_file, smp, status, wait_until
from test_redaction import ACCESS_KEY, PASSWORD, REDACTED, SAYS, SHOWN, TOKEN, places_of

from smp_client import Memory, Session
from smp_client.index.status import ADVICE

AT = '"2026-01-11T14:30:00Z"'


@pytest.fixture
def unlocked(memory: Memory) -> Session:
    """A session; somebody has written a secret into each kind of its files with a shell."""
    session = memory.create_session(id="s1")
    session.record_decision("Nothing secret", made_by="architect", tags=["oauth"])
    session.save_agent_state("veritas", {"notes": "none"})
    session.save_artifact("report", "# Report\n")
    write_unlocked(memory.root)
    return session


def write_unlocked(root: Path) -> None:
    directory = root / "active/s1"
    write_unlocked_decision(root)
    finding = (
        "  - id: FIND-x\n    finding: see evidence\n"
        f"    evidence: {{password: {PASSWORD}}}\n    tags: [{ACCESS_KEY}]\n"
    )
    _append(directory / "findings.yaml", finding)
    turn = f"\n## Turn 7 - 2026-01-11 14:30:00\n**Speaker:** shell\n\n{SAYS}\n\n---\n"
    _append(directory / "conversation.md", turn)
    _append(directory / "agent-states/veritas.yaml", f"  context: {SAYS}\n")
    _append(directory / "artifacts/report.md", f"{SAYS}\n")
    (directory / "artifacts/note.md").write_text(f"{SAYS}\n")
    metadata, topic = directory / "metadata.yaml", f"  context:\n    primary_topic: {SAYS}\n"
    metadata.write_text(metadata.read_text().replace("  context:\n", topic))
    (root / "global").mkdir(exist_ok=True)
    patterns = f"version: 1\npatterns:\n  - id: PAT-x\n    pattern: {SAYS}\n"
    (root / "global/learned-patterns.yaml").write_text(patterns)


def write_unlocked_decision(root: Path) -> None:
    decision = f"  - id: DEC-x\n    timestamp: {AT}\n    made_by: shell\n    decision: {SAYS}\n"
    _append(root / "active/s1/decisions.yaml", decision)


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


PLACES = {
    ("s1", "decisions.yaml"), ("s1", "findings.yaml"), ("s1", "conversation.md"),
    ("s1", "agent-states/veritas.yaml"), ("s1", "artifacts/report.md"), ("s1", "artifacts/note.md"),
    ("s1", "metadata.yaml"), ("global", "learned-patterns.yaml"),
}  # fmt: skip


@contextmanager
def watched(memory: Memory, tmp_path: Path, **redaction: Any) -> Iterator[Daemon]:
    """A daemon that looks on, with these settings of redaction."""
    config = settings_file(tmp_path, redaction=redaction)
    with running(memory.root, log=tmp_path / "log", config=config) as daemon:
        yield daemon


def secrets(root: Path) -> int:
    found: int = status(root)["roots"][0]["secrets"]
    return found


def is_clean(root: Path) -> bool:
    return not any(places_of(root, secret) for secret in (TOKEN, PASSWORD, ACCESS_KEY))


def test_an_unlocked_secret_is_reported_until_it_is_gone(memory: Memory, tmp_path: Path) -> None:
    """Once in the log, without a byte of it; in the status until somebody has taken it out."""
    session = memory.create_session(id="s1")
    with watched(memory, tmp_path) as daemon:
        write_unlocked_decision(memory.root)
        wait_until(lambda: secrets(memory.root) == 1, "it is in the status")
        (line,) = daemon.said("secret")
        assert (line["session_id"], line["file"]) == ("s1", "decisions.yaml")
        assert (line["memory_id"], line["kinds"]) == ("DEC-x", REDACTED)
        said = status(memory.root)
        assert said["health"] == "degraded"
        assert any("DEC-x in s1" in one and "github token" in one for one in said["problems"])
        session.add_turn("user", "more")
        assert smp("sync", "--root", memory.root).returncode == 0
        assert len(daemon.said("secret")) == 1
        session.delete(id="DEC-x", reason="a secret")
        wait_until(lambda: secrets(memory.root) == 0, "it is gone")
    written = (tmp_path / "log").read_text() + (memory.root / ".smp/status.json").read_text()
    assert TOKEN not in written


def test_a_client_that_was_faster_hides_nothing_from_the_daemon(
    memory: Memory, tmp_path: Path
) -> None:
    """A question brings the index up to date, so for the next daemon nothing has changed."""
    memory.create_session(id="s1")
    write_unlocked_decision(memory.root)
    assert len(memory.search("build uses")) == 1
    memory.close()
    with watched(memory, tmp_path) as daemon:
        wait_until(lambda: daemon.said("secret"), "it is reported")


def test_where_it_is_configured_so_unlocked_secrets_are_redacted(
    memory: Memory, unlocked: Session, tmp_path: Path
) -> None:
    """In every kind of file: nothing else of a memory is lost, no byte of the secret is left."""
    with watched(memory, tmp_path, unlocked_edits="redact") as daemon:
        is_done = lambda: secrets(memory.root) == 0 and is_clean(memory.root)  # noqa: E731
        wait_until(is_done, "nothing of it is left")
        assert smp("sync", "--root", memory.root).returncode == 0
        done = daemon.said("redacted")
        assert {(line["session_id"], line["file"]) for line in done} == PLACES
        assert len(done) == len(PLACES)
        assert status(memory.root)["health"] == "ok"
    assert_redacted(unlocked, memory)
    said = map(json.loads, (memory.root / "audit.log").read_text().splitlines())
    lines = [line for line in said if line["action"] == "redact"]
    assert len(lines) == len(PLACES)
    assert {line["by"] for line in lines} == {"daemon"}
    assert TOKEN not in (tmp_path / "log").read_text()


def assert_redacted(session: Session, memory: Memory) -> None:
    decision, finding, turn = (session.get(name) for name in ("DEC-x", "FIND-x", "turn-7"))
    assert (decision.text, decision.data["made_by"]) == (SHOWN, "shell")
    assert decision.data["redacted"] == REDACTED
    assert finding.data["evidence"] == {"password": "[redacted: password]"}
    assert finding.tags == ["redacted"]
    assert (turn.text, turn.data["speaker"], turn.data["redacted"]) == (SHOWN, "shell", REDACTED)
    state = session.agent_state("veritas")
    assert (state["notes"], state["context"], state["redacted"]) == ("none", SHOWN, REDACTED)
    assert session.artifact("report").text == f"# Report\n{SHOWN}\n"
    assert session.artifact("note").text == f"{SHOWN}\n"
    assert session.artifact("note").data["redacted"] == REDACTED
    context = session.metadata()["context"]
    assert isinstance(context, dict)
    assert context["primary_topic"] == SHOWN
    assert memory.everywhere.get("PAT-x").text == SHOWN
    assert session.get("DEC-001").text == "Nothing secret"
    assert session.problems() == []


def test_a_secret_key_in_one_memory_keeps_no_other_from_being_redacted(
    memory: Memory, tmp_path: Path
) -> None:
    """A key cannot be replaced, so its memory is reported and stays; others of its file go."""
    session = memory.create_session(id="s1")
    file = memory.root / "active/s1/decisions.yaml"
    plain = "  - id: DEC-{}\n    made_by: a\n    decision: " + SAYS + "\n"
    keyed = f"  - id: DEC-k\n    made_by: a\n    decision: keyed\n    extra: {{{ACCESS_KEY}: 1}}\n"
    _append(file, plain.format("x") + keyed + plain.format("y"))
    with watched(memory, tmp_path, unlocked_edits="redact") as daemon:
        wait_until(lambda: places_of(memory.root, TOKEN) == [], "what can go is gone")
        wait_until(lambda: daemon.said("secret"), "the other is reported")
        assert [line["memory_id"] for line in daemon.said("secret")] == ["DEC-k"]
        wait_until(lambda: daemon.said("redacted"), "it is said what was done")
        assert [line["memories"] for line in daemon.said("redacted")] == [["DEC-x", "DEC-y"]]
    assert [session.get(f"DEC-{name}").text for name in "xky"] == [SHOWN, "keyed", SHOWN]
    assert ACCESS_KEY.encode() in file.read_bytes()


def test_off_means_that_nobody_looks(memory: Memory, tmp_path: Path) -> None:
    memory.create_session(id="s1")
    write_unlocked_decision(memory.root)
    with watched(memory, tmp_path, unlocked_edits="off") as daemon:
        assert smp("sync", "--root", memory.root).returncode == 0
        assert secrets(memory.root) == 0
        assert daemon.said("secret") == []
        assert memory.session("s1").add_turn("user", SAYS).text == SHOWN


def test_a_drop_is_taken_in_without_its_secret(memory: Memory, tmp_path: Path) -> None:
    """With the daemon's configuration, which then holds for the library as well."""
    session = memory.create_session(id="s1")
    drops = {
        "a.yaml": f"type: decision\nmade_by: a\ndecision: {SAYS}\n",
        "c.yaml": "type: preference\nconfidence: explicit\npreference: p\n"
                  f"applies_to: {{password: {PASSWORD}}}\n",
        "d.yaml": f"type: learning\nlearned_by: a\nlearning: l\ntags: [{ACCESS_KEY}]\n",
        "e.md": f"---\ntype: turn\nspeaker: a\n---\n{SAYS} badge 77\n",
    }  # fmt: skip
    for name, content in drops.items():
        (memory.root / "active/s1/inbox" / name).write_text(content)
    with watched(memory, tmp_path, patterns={"badge": "badge ##"}) as daemon:
        wait_until(lambda: len(daemon.said("drop taken")) == len(drops), "all are taken in")
        kinds = [kind.prefix.lower() for kind in session.kinds]
        records = [record.data for kind in kinds for record in session.records(kind)]
        assert [bool(record["redacted"]) for record in records] == [True] * len(drops)
        assert session.add_turn("user", "badge 78").text == "[redacted: badge]"
    assert is_clean(memory.root)


@pytest.mark.parametrize("content", [
    f"type: {TOKEN}\n", f"type: finding\nfinding: f\ndiscovered_by: a\nseverity: {TOKEN}\n",
])  # fmt: skip
def test_the_secret_of_a_rejected_drop_stands_in_the_drop_alone(
    memory: Memory, tmp_path: Path, content: str
) -> None:
    memory.create_session(id="s1")
    (memory.root / "active/s1/inbox/bad.yaml").write_text(content)
    with watched(memory, tmp_path) as daemon:
        wait_until(lambda: daemon.said("drop rejected"), "it is rejected")
    assert places_of(memory.root, TOKEN) == ["active/s1/inbox/rejected/bad.yaml"]
    assert TOKEN not in (tmp_path / "log").read_text()


def test_what_only_a_pattern_finds_is_never_redacted_in_a_file(
    memory: Memory, tmp_path: Path
) -> None:
    """One that is too wide would empty every memory of yesterday; a secret by its shape goes."""
    session = memory.create_session(id="s1")
    session.record_decision("Use OAuth 2.0 with JWT", made_by="architect")
    session.add_turn("user", "write to anna.b@example.com")
    write_unlocked_decision(memory.root)
    wide = {"unlocked_edits": "redact", "patterns": {"wide": "OAuth *"}, "personal": ["email"]}
    with watched(memory, tmp_path, **wide) as daemon:
        wait_until(lambda: daemon.said("redacted"), "the token is gone")
        wait_until(lambda: not places_of(memory.root, TOKEN), "no byte of it is left")
        assert smp("sync", "--root", memory.root).returncode == 0
        assert secrets(memory.root) > 0
        found = [one for one in status(memory.root)["problems"] if "were not redacted" in one]
        assert [one.endswith(f"{ADVICE}.") for one in found] == [True]
    assert session.get("DEC-001").text == "Use OAuth 2.0 with JWT"
    assert session.turns()[0].text == "write to anna.b@example.com"
    assert session.get("DEC-x").text == SHOWN
