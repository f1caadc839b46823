"""The README and the pages of docs/ as scripts: each runs from top to bottom in an empty directory.

    ```sh            is run, and must succeed
    ```console       has `$ command` lines, each with its output behind it; `…` stands for
                     anything in its line, and as a line of its own for any lines
    ```console daemon  is the same while a daemon runs
    ```python        is run; all of a page share their names; a ```text block right behind it
                     is its output
    ```yaml NAME     is written to the file NAME
    ```bash, ```text are only read: they need a machine of their own, or are pictures

Times, scores, sizes, paths and ids of sessions made on the way may differ.
`python tests/pages.py FILE…` writes the outputs as they are now into the files.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

FENCE = re.compile(r"^```(\w*) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
DAY = date(2026, 1, 11)  # the day on which the examples take place
VARIES = [
    (r"session-\d{4}-\d\d-\d\d-\w+", "SESSION"),
    (r"\d{8}T\d{6}-\w+", "BATCH"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?Z)?", "TIME"),
    (r"\d{4}-\d\d-\d\d", "DATE"),
    (r"\b\d+(\.\d+)? (B|KB|MB|bytes)\b", "SIZE"),
    (r"\bpid \d+", "PID"),
    (r"\b\d+\.\d+\b", "NUMBER"),
    (r"[ \t]+", " "),
    (r" ?\n", "\n"),
]


@dataclass(frozen=True)
class Output:
    """One output of a page: where it stands, what the page says and what was really printed."""

    start: int
    end: int
    shown: str
    real: str

    def agrees(self) -> bool:
        pattern = re.escape(constant(self.shown))
        pattern = re.sub(r"^…\\\n", r"(?:.*\\n)*?", pattern, flags=re.MULTILINE).replace("…", ".*")
        return re.fullmatch(pattern, constant(self.real)) is not None


def constant(text: str) -> str:
    """Return the text without what differs from run to run."""
    for pattern, name in VARIES:
        text = re.sub(pattern, name, text)
    return text


def outputs(text: str, directory: Path) -> Iterator[Output]:
    """Run the page in a directory and yield each of its outputs."""
    names: dict[str, Any] = {"__name__": "page"}
    environment = _environment(directory)
    blocks = [*FENCE.finditer(text)]
    for block, following in pairwise([*blocks, None]):
        language, name, body = block.groups() if block else ("", "", "")
        start = block.start(3) if block else 0
        if language == "sh":
            _shell(body, directory, environment, check=True)
        elif language == "console":
            with _daemon(directory, environment) if name == "daemon" else contextlib.nullcontext():
                for command in COMMAND.finditer(body):
                    real = _shell(command[1], directory, environment, check=False)
                    yield Output(start + command.start(2), start + command.end(2), command[2], real)
        elif language == "python":
            printed = _python(body, names, directory)
            between = text[block.end() : following.start()] if following else ""
            if following and following[1] == "text" and between.isspace():
                yield Output(following.start(3), following.end(3), following[3], printed)
            else:
                assert not printed, f"the page does not show this output: {printed}"
        elif language == "yaml" and name:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(body)


def _environment(directory: Path) -> dict[str, str]:
    """Return an environment in which `smp` is this one, without settings or a tree of its own."""
    tools = directory.parent / f"{directory.name}-tools"
    tools.mkdir()
    (tools / "smp").write_text(f'#!/bin/sh\nexec {sys.executable} -m smp_daemon "$@"\n')
    (tools / "smp").chmod(0o755)
    path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SMP_")}
    return kept | {"PATH": path, "HOME": str(tools), "XDG_CONFIG_HOME": str(tools)}


@contextlib.contextmanager
def _daemon(directory: Path, environment: dict[str, str]) -> Iterator[None]:
    """Run a daemon until the block ends; it is ready when it says so."""
    command = [sys.executable, "-m", "smp_daemon", "run"]
    how: Any = {"cwd": directory, "env": environment, "stderr": subprocess.PIPE, "text": True}
    daemon = subprocess.Popen(command, **how)
    try:
        assert daemon.stderr is not None
        assert any('"event": "ready"' in line for line in daemon.stderr), "the daemon ended"
        yield
    finally:
        daemon.terminate()
        daemon.communicate()


def _shell(script: str, directory: Path, environment: dict[str, str], *, check: bool) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=directory, env=environment, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert not check or done.returncode == 0, f"{script}\n{done.stdout}"
    return done.stdout.replace(str(directory), "…")


def _python(code: str, names: dict[str, Any], directory: Path) -> str:
    printed = io.StringIO()
    root = os.environ.pop("SMP_ROOT", None)
    try:
        with contextlib.chdir(directory), contextlib.redirect_stdout(printed):
            exec(compile(code, "page", "exec"), names)
    finally:
        if root is not None:
            os.environ["SMP_ROOT"] = root
    return printed.getvalue().replace(str(directory), "…")


def _on_the_day(text: str) -> str:
    """Move times to the day of the examples."""

    def moved(found: re.Match[str]) -> str:
        return str(DAY + (date.fromisoformat(found[0]) - datetime.now(UTC).date()))

    text = re.sub(r"session-\d{4}-\d\d-\d\d-\w+", f"session-{DAY}-abc123", text)
    text = re.sub(r"\d{8}T\d{6}-\w+", "20260111T144000-5f3a9c", text)
    text = re.sub(r"([T ])\d\d:\d\d:\d\d(?:\.\d+)?Z", r"\g<1>14:40:00Z", text)
    text = re.sub(r"([T ])\d\d:\d\d(?!:)", r"\g<1>14:40", text)
    return re.sub(r"\b\d{4}-\d\d-\d\d(?=\b|T)", moved, text)


def write(page: Path) -> None:
    """Write the outputs of a page into it where they are not as it says."""
    text = page.read_text()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name).resolve() / "page"
        directory.mkdir()
        for output in sorted(outputs(text, directory), key=lambda one: -one.start):
            if not output.agrees():
                text = text[: output.start] + _on_the_day(output.real) + text[output.end :]
    page.write_text(text)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        write(Path(name))
