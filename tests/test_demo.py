"""`smp demo`, run as a process of its own."""

from __future__ import annotations

import os
import re
from pathlib import Path

from daemons import smp

from smp_client import Memory


def test_the_demo_shows_commands_with_their_real_output(tmp_path: Path) -> None:
    root = tmp_path / "new/.bmad/sessions"
    done = smp("demo", "--root", root)
    assert done.returncode == 0, done.stderr
    assert f"export SMP_ROOT={root}" in done.stdout
    parts = dict(re.findall(r"^\$ smp (.*)\n((?:(?!\$ |# |\n).*\n)*)", done.stdout, re.M))
    shown = {"sessions", "search", "context", "delete", "restore"}
    assert {line.split()[0] for line in parts} == {"new", "add", "supersede", *shown}
    (search,) = (said for line, said in parts.items() if "database" in line)
    assert "[superseded by storage/DEC-001]" in search
    context = done.stdout.partition("$ smp context")[2].partition("$ smp delete")[0]
    assert "SQLite" not in context
    listed = smp("sessions", "--root", root).stdout
    names = [{line.split()[0] for line in text.splitlines()}
             for text in (listed, parts["sessions"])]  # fmt: skip
    assert names[0] == names[1] == {"ID", "storage", "kickoff"}
    assert smp("check", "--root", root).returncode == 0


def test_the_demo_touches_nothing_that_exists(tmp_path: Path) -> None:
    """Neither a directory that is named, nor the tree of the working directory."""
    memory = Memory(tmp_path / "own/.bmad/sessions")
    memory.create_session(id="mine")
    before = files_of(memory.root)
    refused = smp("demo", "--root", memory.root)
    assert (refused.returncode, "Name a new directory" in refused.stderr) == (2, True)
    done = smp("demo", cwd=tmp_path / "own", env=os.environ | {"TMPDIR": str(tmp_path)})
    (made,) = tmp_path.glob("smp-demo-*")
    assert f"The tree is {made}/.bmad/sessions" in done.stdout
    assert files_of(memory.root) == before


def files_of(top: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in top.rglob("*") if path.is_file()}
