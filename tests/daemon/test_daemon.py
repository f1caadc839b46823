"""`smp run` as its user sees it: a process, its log, its signals."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from daemons import PATIENCE_S, no_hang

from smp_client import Memory, TransactionPending
from smp_client.disk import journal

SMP = [sys.executable, "-c", "from smp_daemon.cli import main; main()"]


# Sends the daemon a signal from inside every step of its main thread through a lock of Python's
# own, that is while it holds it.
SIGNALLED_INSIDE_LOCKS = """
import os, signal, sys, threading

def trace(frame, event, argument):
    if frame.f_code.co_filename != threading.__file__:
        return trace if event == "call" else None
    if event == "line" and callable(signal.getsignal(signal.SIGHUP)):
        os.kill(os.getpid(), signal.SIGHUP)
    return trace

from smp_daemon.cli import main
sys.settrace(trace)
main()
"""


@contextmanager
def running(
    root: Path, command: Sequence[str] = SMP
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A daemon that has said it is ready, and what it said."""
    process = subprocess.Popen(
        [*command, "run", "--root", str(root)], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        line: dict[str, Any] = {}
        while line.get("event") != "ready":
            line = json.loads(process.stderr.readline())
        yield process, line
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_it_makes_the_tree_and_says_when_it_is_ready(tmp_path: Path) -> None:
    root = tmp_path / ".bmad/sessions"
    with running(root) as (process, said):
        assert said["root"] == str(root)
        assert said["pid"] == process.pid
        assert {"timestamp", "level", "component", "event"} <= said.keys()
        assert (root / "active").is_dir()
        assert Memory(root).create_session(id="s").state == "active"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path / "sessions") as (process, _):
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr is not None
        assert json.loads(process.stderr.readlines()[-1])["event"] == "stopped"


def test_a_signal_that_comes_while_a_lock_is_held_does_not_hang_it(tmp_path: Path) -> None:
    """Lock by lock: a handler that waits for one that the main thread holds would wait for ever."""
    with (
        no_hang(),
        running(tmp_path / "sessions", [sys.executable, "-c", SIGNALLED_INSIDE_LOCKS]) as (
            process,
            _,
        ),
    ):
        assert process.stderr is not None
        reloaded = (
            json.loads(line)["event"] == "configuration reloaded" for line in process.stderr
        )
        assert sum(itertools.islice(filter(None, reloaded), 3)) == 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def test_a_second_daemon_says_who_leads_and_the_next_takes_over_after_a_kill(
    tmp_path: Path,
) -> None:
    root = tmp_path / "sessions"
    with running(root) as (process, _):
        second = subprocess.run(
            [*SMP, "run", "--root", str(root)], capture_output=True, text=True, check=False
        )
        assert second.returncode == 4
        assert f"pid {process.pid}" in second.stderr
        assert second.stderr.count("\n") == 1
        process.kill()
        process.wait()
        with running(root) as (_, said):
            assert said["event"] == "ready"


def test_it_finishes_a_transaction_that_nobody_came_back_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory(tmp_path / "sessions")
    session = memory.create_session(id="s")

    def _fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "carry_out", _fail)
        with pytest.raises(TransactionPending), session.transaction() as tx:
            tx.record_decision("D", made_by="a")
    with running(memory.root):
        assert "DEC-001" in (memory.root / "active/s/decisions.yaml").read_text()
        assert list((memory.root / ".smp/journal").iterdir()) == []


def test_a_root_that_cannot_be_made_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    failed = subprocess.run(
        [*SMP, "run", "--root", str(tmp_path / "file/x")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert failed.returncode == 1
    assert failed.stderr.startswith("smp: Could not make")
    assert failed.stderr.endswith("Name a directory as the root.\n")
    assert failed.stderr.count("\n") == 1
