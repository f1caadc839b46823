from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings
from once import copied

from smp_client import Memory, Session

# What CI says of a change is to be about that change: there the same examples each time. Everywhere else each run tries others.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

# Without compiled modules each of the hundreds of processes that the tests start would compile them all again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# The memory of whoever runs the tests is not theirs.
os.environ["XDG_DATA_HOME"] = "/nonexistent/data"


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was archived or deleted has left its place soon, also in a process that is forked: nobody writes to it meanwhile."""
    monkeypatch.setattr("smp_client.change.latecomers.GRACE_S", 0.05)
    monkeypatch.setattr("smp_client.disk.rewrite.GRACE_S", 0.05)
    monkeypatch.setenv("SMP_TESTS_GRACE_S", "0.05")


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "sessions")


def with_session(root: Path) -> None:
    Memory(root).create_session(id="s1", user="user-123", project="E-Commerce", topic="authentication", tags=["oauth"])


@pytest.fixture
def session(memory: Memory) -> Session:
    if memory.root.exists() or memory.options != Memory(memory.root).options:
        return memory.create_session(id="s1", user="user-123", project="E-Commerce", topic="authentication", tags=["oauth"])
    copied(with_session, memory.root)
    return memory.session("s1")
