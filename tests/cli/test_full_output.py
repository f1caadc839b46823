"""A full output costs one plain sentence and an exit code: no traceback, and no list that is cut off in silence."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

import pytest
from daemons import SMP

from smp_client import Memory, Session

LIMIT_BYTES = 4096
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
ENVIRONMENTS = [BUFFERED, {**BUFFERED, "PYTHONUNBUFFERED": "1"}]


def run(arguments: list[str], output: Path, root: Path, env: dict[str, str], *, limited: bool = False) -> tuple[int, list[str]]:
    """The exit code, and the lines on stderr."""

    def limit() -> None:
        if limited:  # a write that crosses the limit is cut there, as on a disk that is just full
            resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))

    with output.open("wb") as stdout:
        done = subprocess.run([*SMP, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True, check=False,
                              env={**env, "SMP_ROOT": str(root)}, preexec_fn=limit)  # fmt: skip
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize("env", ENVIRONMENTS, ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("arguments", ["sessions", "sessions --json", "status", "add s1 turn hello"])
def test_a_full_output_is_one_sentence(session: Session, arguments: str, env: dict[str, str]) -> None:
    code, said = run(arguments.split(), Path("/dev/full"), session.scope.tree.root, env)
    assert code == 1
    assert len(said) == 1, said
    assert said[0].startswith("smp: the output cannot be written: No space left on device.")


@pytest.mark.parametrize("env", ENVIRONMENTS, ids=["buffered", "unbuffered"])
def test_an_output_that_is_cut_off_is_not_taken_for_whole(
    memory: Memory, session: Session, tmp_path: Path, env: dict[str, str]
) -> None:
    """Without a buffer Python took a write of a part for one of all: the rest was missing, and the command exited with 0."""
    session.add_turn("user", "word " * 20 * LIMIT_BYTES)
    code, said = run(["show", "s1", "turn-1"], tmp_path / "out", memory.root, env, limited=True)
    assert (tmp_path / "out").stat().st_size == LIMIT_BYTES
    assert code == 1
    assert len(said) == 1, said
    assert said[0].startswith("smp: the output cannot be written: File too large.")


def test_an_error_that_is_not_of_the_output_is_said_as_before(memory: Memory, session: Session, tmp_path: Path) -> None:
    code, said = run(["show", "s1", "DEC-009"], tmp_path / "out", memory.root, BUFFERED)
    assert code == 1
    assert "DEC-009" in said[0]
    assert not any("output cannot be written" in line for line in said)
