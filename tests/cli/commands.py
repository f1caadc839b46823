"""`smp` as people, scripts and shells call it: as a process, on a terminal, or completed."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shlex
import struct
import termios
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from daemons import smp, started

from smp_client import Memory

HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x1b[2J\x9b1m \u202egnp.exe\rover\nnext\ttab\x7f"
DRIVING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def run(root: Path, line: str, *more: object, code: int = 0, **options: Any) -> str:
    """Return the output of a command; of one that is to fail, its errors."""
    done = smp(*shlex.split(line), *more, "--root", root, **options)
    assert done.returncode == code, (line, done.stdout, done.stderr)
    return done.stderr if code else done.stdout


def run_json(root: Path, line: str, *more: object, code: int = 0, **options: Any) -> Any:
    done = smp(*shlex.split(line), "--json", "--root", root, *more, **options)
    assert done.returncode == code, (line, done.stdout, done.stderr)
    return json.loads(done.stdout)


def on_a_terminal(
    *arguments: object, columns: int, forked: bool = True, fails: bool = False, **variables: str
) -> str:
    """Return the output of the command on a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", **variables}
    environment.pop("COLUMNS", None)
    process = started(arguments, [theirs, theirs, theirs], environment, forked=forked)
    os.close(theirs)
    shown = _read(ours)
    assert bool(process.wait()) == fails, shown
    return shown.replace("\r\n", "\n")


def answered(answer: str, root: Path, line: str) -> tuple[int, str, str]:
    """Return the exit code of a command that a person answers, its questions, and its output."""
    ours, theirs = pty.openpty()
    reading, writing = os.pipe()
    environment = {**os.environ, "TERM": "xterm"}
    words = [*shlex.split(line), "--root", root]
    process = started(words, [theirs, writing, theirs], environment)
    os.close(theirs)
    os.close(writing)
    os.write(ours, answer.encode())
    shown = _read(ours)
    with os.fdopen(reading, "rb") as pipe:
        printed = pipe.read().decode()
    return process.wait(), shown, printed


def _read(terminal: int) -> str:
    pieces: list[bytes] = []
    with suppress(OSError):  # so Linux says that the other end was closed
        while piece := os.read(terminal, 65536):
            pieces.append(piece)
    os.close(terminal)
    return b"".join(pieces).decode()


def completed(typed: str, root: Path) -> list[str]:
    """Return the words that the shell would offer for the last one."""
    environment = {**os.environ, "_SMP_COMPLETE": "bash_complete", "SMP_ROOT": str(root),
                   "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}  # fmt: skip
    done = smp(env=environment)
    assert not done.stderr
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def days_ago(days: float) -> Callable[[], datetime]:
    then = datetime.now(UTC) - timedelta(days=days)
    return lambda: then


def actions(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return each session and what is done to it."""
    return list(dict.fromkeys((action["session"], action["type"]) for action in found["actions"]))


def content(root: Path) -> dict[str, bytes]:
    """Return all files but SMP's own."""
    files = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if not name.startswith(".smp/")}


def stocked(root: Path) -> None:
    """Make a tree of two sessions and three preferences that hold everywhere."""
    memory = Memory(root)
    old = memory.create_session(id="old-1", project="Shop")
    old.record_decision("Use OAuth 2.0", made_by="architect")
    old.record_finding("The login has no rate limit", discovered_by="reviewer")
    session = memory.create_session(id="s1", project="Shop")
    place = {"file": "auth.py", "line": 1}
    session.record_decision("Use OAuth 2.1", made_by="architect", location=place)
    session.record_decision("Keep tokens in a cookie", made_by="architect")
    session.record_finding("The tokens never expire", discovered_by="reviewer")
    session.record_finding("The log has tokens in it", discovered_by="reviewer")
    session.add_turn("user", "Hello")
    for text in ("Tabs", "Spaces", "Whatever the file has"):
        memory.everywhere.record_preference(text, confidence="explicit")
    memory.close()
