from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from smp_client import Memory, Session

# What CI says of a change is to be about that change: there the same examples each time. Everywhere else each run tries others.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "sessions")


@pytest.fixture
def session(memory: Memory) -> Session:
    return memory.create_session(id="s1", user="user-123", project="E-Commerce", topic="authentication", tags=["oauth"])
