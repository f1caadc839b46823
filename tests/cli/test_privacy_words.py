"""What `smp delete`, `restore`, `purge`, `import` and `show --all-about` say to one who slipped, and what they exit with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from commands import on_a_terminal

from smp_client import Memory, Session, SMPError
from smp_client.disk.audit import account
from smp_client.disk.audit import read as read_audit
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


def test_a_purge_and_a_restore_are_by_somebody(session: Session, memory: Memory) -> None:
    said("delete", "first-1", "DEC-001", "--reason", "r")
    said("restore", "first-1", "DEC-001", "--by", "rita")
    said("purge", "first-1", "DEC-001", "--now", "--by", "paul")
    said("delete", "first-1", "--reason", "r")
    said("restore", "first-1")
    assert [(line["action"], line["by"]) for line in read_audit(memory.tree) if line["action"] in ("restore", "purge")] == [
        ("restore", "rita"), ("purge", "paul"), ("restore", account())]  # fmt: skip


def test_in_a_pipe_every_id_is_printed(session: Session) -> None:
    every = ", ".join(f"FIND-00{number}" for number in range(1, 8))
    arguments = ("delete", "first-1", "--type", "finding", "--reason", "r")
    assert every in said(*arguments, "--dry-run")
    said(*arguments)
    ids = [part for number in range(1, 8) for part in (f"FIND-00{number}",)]
    assert every in said("purge", "first-1", *ids, "--now")


def test_on_a_terminal_a_long_list_is_cut(session: Session) -> None:
    shown = on_a_terminal("delete", "first-1", "--type", "finding", "--reason", "r", "--dry-run", "--yes", columns=200)
    assert "FIND-005 and 2 more" in shown


# Slips.


