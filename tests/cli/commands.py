"""`smp` as people, scripts and shells call it: in this process, in another one, or on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import termios
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from daemons import smp, started

from smp_client import Memory
from smp_client.index.database import Index
from smp_client.index.take_in import rebuild
from smp_client.model.layout import INDEX_FILE
from smp_daemon.cli import smp as main_command

HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x1b[2J\x9b1m \u202egnp.exe\rover\nnext\ttab\x7f"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
DRIVING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def on_a_terminal(*arguments: object, columns: int, forked: bool = True, fails: bool = False, **variables: str) -> str:
    """What the command prints on a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm", **variables}
    environment.pop("COLUMNS", None)
    process = started(arguments, [theirs, theirs, theirs], environment, forked=forked)
    os.close(theirs)
    pieces: list[bytes] = []
    try:
        while piece := os.read(ours, 65536):
            pieces.append(piece)
    except OSError:
        pass  # how Linux says that the other end was closed
    os.close(ours)
    assert bool(process.wait()) == fails, b"".join(pieces)
    return b"".join(pieces).decode().replace("\r\n", "\n")


def completed(typed: str, root: Path) -> list[str]:
    """What the shell would offer for the last word."""
    words = typed.split(" ")
    environment = {**os.environ, "_SMP_COMPLETE": "bash_complete", "SMP_ROOT": str(root),
                   "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}  # fmt: skip
    done = smp(env=environment)
    assert not done.stderr
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def index_of(memory: Memory) -> None:
    index = Index.open(memory.root / INDEX_FILE)
    rebuild(memory, index)
    index.close()


def days_ago(days: float) -> Callable[[], datetime]:
    then = datetime.now(UTC) - timedelta(days=days)
    return lambda: then


def run(root: Path, *arguments: object, code: int = 0, **options: Any) -> Result:
    done = CliRunner().invoke(main_command, [*map(str, arguments), "--root", str(root)], **options)
    assert done.exit_code == code, (done.output, done.exception)
    return done


def run_json(root: Path, *arguments: object, code: int = 0) -> Any:
    return json.loads(run(root, *arguments, "--json", code=code).stdout)


def actions(found: dict[str, Any]) -> list[tuple[str, str]]:
    """What is done to which session, each once; old versions of files, which are kept for some seconds, are none of ours."""
    named = ((action["session"], action["type"]) for action in found["actions"])
    return list(dict.fromkeys(name for name in named if name[1] not in ("fold_versions", "tidied")))


def content(root: Path) -> dict[str, bytes]:
    """All that is not SMP's own."""
    paths = (path for path in root.rglob("*") if path.is_file())
    return {name: path.read_bytes() for path in paths if not (name := str(path.relative_to(root))).startswith(".smp/")}


def answered(answer: str, *arguments: object, forked: bool = True) -> tuple[int, str, str]:
    """The exit code of a command that a person on a terminal gives this answer, what it prints there, and what into a pipe."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    reading, writing = os.pipe()
    process = started(arguments, [theirs, writing, theirs], environment, forked=forked)
    os.close(theirs)
    os.close(writing)
    os.write(ours, answer.encode())
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:
        pass  # how Linux says that the other end was closed
    os.close(ours)
    with open(reading, "rb") as pipe:
        printed = pipe.read().decode()
    return process.wait(), shown.decode(), printed
