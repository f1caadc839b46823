from __future__ import annotations

from pathlib import Path

import pytest

from smp_client import Memory, Session


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "sessions")


@pytest.fixture
def session(memory: Memory) -> Session:
    return memory.create_session(id="s1", user="user-123", project="E-Commerce", topic="authentication", tags=["oauth"])
