"""`smp doctor`, `smp stats`, `smp completion` and `smp --version`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import run, run_json
from daemons import running, smp

from smp_client import Memory, __version__


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with two projects, and no settings or service of whoever runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    memory = Memory(tmp_path / "sessions")
    shop = memory.create_session(id="shop-1", project="Shop")
    shop.record_decision("Use OAuth", made_by="ann", timestamp="2026-01-11T14:30:00Z")
    shop.record_decision("Use tabs", made_by="bob", timestamp="2026-02-11T14:30:00Z")
    shop.add_turn("user", "Hello", timestamp="2026-02-12T14:30:00Z")
    other = memory.create_session(id="old-1", project="Ferry")
    other.record_finding(
        "Slow", discovered_by="ann", severity="low", timestamp="2026-02-13T14:30:00Z"
    )
    memory.archive_session("old-1")
    memory.create_session(id="empty-1").record_learning("x" * 30, learned_by="ann")
    memory.close()
    return tmp_path / "sessions"


def found(root: Path, *arguments: str, code: int = 0) -> list[tuple[str, str]]:
    told = run_json(root, "doctor", *arguments, code=code)
    assert told["ok"] == (code == 0)
    return [(one["area"], one["problem"]) for one in told["found"]]


def test_doctor_finds_nothing_wrong_with_a_sound_tree_and_its_daemon(
    root: Path, tmp_path: Path
) -> None:
    with running(root, log=tmp_path / "log"):
        assert found(root) == []
        assert run(root, "doctor") == "Nothing is wrong.\n"


def test_doctor_names_everything_that_is_wrong_with_the_next_step(root: Path) -> None:
    run(root, "reindex")
    with (root / "active/shop-1/decisions.yaml").open("ab") as file:
        file.write(b"  - id: [\n")
    wrong = found(root, code=1)
    assert (wrong[0][0], wrong[0][1][:35]) == ("daemon", "No daemon is running for this root.")
    assert any(area == "files" and "decisions.yaml" in problem for area, problem in wrong)
    shown = smp("doctor", "--root", root).stdout
    assert shown.startswith("daemon          No daemon is running")
    assert "files           " in shown


def test_doctor_says_where_there_is_no_tree_and_makes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for arguments in ((), ("--fix",)):
        ((area, problem),) = found(tmp_path / "nowhere", *arguments, code=1)
        assert (area, "smp init makes one" in problem) == ("daemon", True)
    assert not (tmp_path / "nowhere").exists()


def test_doctor_reads_the_settings(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "smp.yaml").write_text("quota_bytes: many\n")
    monkeypatch.setenv("SMP_CONFIG", str(tmp_path / "smp.yaml"))
    ((area, problem),) = found(root, code=1)
    assert area == "settings"
    assert "smp.yaml: quota_bytes: " in problem


def test_stats_count_memories_by_kind_project_agent_and_month(root: Path) -> None:
    told = run_json(root, "stats")
    months = told["by"]["month"]
    assert (told["memories"], told["sessions"]) == (5, 3)
    assert months.pop(max(months)) == 1  # the one that was written without a time
    assert told["by"] == {
        "kind": {"decision": 2, "finding": 1, "learning": 1, "turn": 1},
        "project": {"Shop": 3, "-": 1, "Ferry": 1},
        "agent": {"ann": 3, "bob": 1, "user": 1}, "month": {"2026-01": 1, "2026-02": 3},
    }  # fmt: skip
    lines = run(root, "stats").splitlines()
    assert lines[0] == "5 memories in 3 sessions"
    assert [line.split() for line in lines[2:4]] == [["KIND", "MEMORIES", "SHARE"], ["decision", "2", "█" * 24]]


def test_the_script_of_bash_completes(root: Path, tmp_path: Path) -> None:
    program = tmp_path / "smp"
    program.write_text(f"#!{sys.executable}\nfrom smp_daemon.cli import main\nmain()\n")
    program.chmod(0o755)
    typed = 'COMP_WORDS=(smp show sh); COMP_CWORD=2; _smp_completion smp; echo "${COMPREPLY[@]}"'
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SMP_ROOT": str(root)}
    script = f"{smp('completion', 'bash').stdout}\n{typed}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True,
                          env=environment)  # fmt: skip
    assert done.stdout.strip() == "shop-1"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_prints_the_script_of_a_shell(shell: str) -> None:
    assert f"_SMP_COMPLETE={shell}_complete" in smp("completion", shell).stdout


def test_the_version_is_printed() -> None:
    assert smp("--version").stdout == f"smp, version {__version__}\n"


def test_status_without_an_index_counts_the_sessions_that_are_there(root: Path) -> None:
    (root / ".smp/index.db").unlink(missing_ok=True)
    found = smp("status", "--root", root)
    assert "sessions: none" not in found.stdout
    assert "2 not indexed" in found.stdout
    assert "smp sync" in found.stdout
    assert run_json(root, "status", code=2)["roots"][0]["sessions"]["not indexed"] == 2
    run(root, "sync")
    assert "not indexed" not in smp("status", "--root", root).stdout


def test_a_wrong_call_of_status_is_unknown_to_monitoring(root: Path) -> None:
    """1 and 2 would say that the daemon is degraded or down."""
    assert smp("status", "--root", root, "--depp").returncode == 3
    assert smp("status", "--root", root, "extra").returncode == 3
    assert smp("status", "--root", root / "nowhere").returncode == 3
    assert smp("sessions", "--root", root, "--depp").returncode == 2


def test_words_of_other_tools_are_understood(tmp_path: Path) -> None:
    """`ls`, `get` and `rm` are what people try first."""
    session = Memory(tmp_path).create_session(id="s1")
    session.record_decision("Use OAuth", made_by="a")
    assert run(tmp_path, "ls") == run(tmp_path, "sessions")
    once = "DEC-001 --no-count"
    assert run(tmp_path, f"get {once}") == run(tmp_path, f"show {once}")
    run(tmp_path, "rm s1 DEC-001 --reason gone")
    assert session.records("decision") == []
    assert smp("help", "search").stdout == smp("search", "--help").stdout
    assert smp("help").stdout == smp("--help").stdout
    assert smp("version").stdout == smp("--version").stdout
