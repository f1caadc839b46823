"""`indexes/*.yaml` and the counts in `metadata.yaml` are there, whoever indexed first."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from daemons import running, smp, wait_until

from smp_client import Memory, Session


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "sessions")


@pytest.fixture
def session(memory: Memory) -> Session:
    """A session that a client has indexed."""
    session = memory.create_session(id="s1", user="ada")
    session.record_decision("Use SAML", made_by="architect", tags=["auth"])
    session.add_turn("veritas", "We need SAML")
    memory.search("SAML")
    return session


def loaded(session: Session, name: str) -> Any:
    path = session.memory.root / "active/s1/indexes" / name
    return yaml.safe_load(path.read_text()) if path.exists() else None


def is_written(session: Session) -> bool:
    if any(loaded(session, f"{name}.yaml") is None for name in ("topics", "timeline", "agents")):
        return False
    storage: Any = session.metadata()["storage"]
    people: Any = session.metadata()["participants"]
    counts = {one["agent_id"]: one["message_count"] for one in people["agents"]}
    topics = loaded(session, "topics.yaml")["topic_index"]["topics"]
    return storage["total_bytes"] > 0 and counts.get("veritas") == 1 and "auth" in topics


def remove(session: Session) -> None:
    shutil.rmtree(session.memory.root / "active/s1/indexes")


def test_a_daemon_writes_them_for_a_session_that_a_client_has_indexed(
    session: Session, tmp_path: Path
) -> None:
    with running(session.memory.root, log=tmp_path / "log"):
        wait_until(lambda: is_written(session), "they are written")
        remove(session)
        wait_until(lambda: is_written(session), "they are back after rm -r")
        (session.memory.root / "active/s1/indexes/topics.yaml").unlink()
        wait_until(lambda: is_written(session), "one of them is back after rm")


def test_without_a_daemon_whoever_asks_writes_them(memory: Memory, session: Session) -> None:
    assert not is_written(session)
    assert memory.rebuild_index("s1") == "here"
    assert is_written(session)
    remove(session)
    assert smp("reindex", "--root", memory.root, "s1").returncode == 0
    assert is_written(session)
    remove(session)
    assert smp("reindex", "--root", memory.root).returncode == 0
    assert is_written(session)


def test_check_and_doctor_notice_that_they_are_stale(memory: Memory, session: Session) -> None:
    memory.rebuild_index("s1")
    session.record_finding("Broken", discovered_by="ada", severity="high", tags=["sso"])
    assert session.validate() == []  # a daemon may be about to write them
    long_ago = time.time() - 3600
    for path in (memory.root / "active/s1").glob("*.*"):
        os.utime(path, (long_ago, long_ago))
    said = smp("check", "--root", memory.root).stdout
    assert "s1/indexes/topics.yaml: it does not say what the memories say" in said
    assert "smp reindex s1" in smp("doctor", "--root", memory.root).stdout
    memory.rebuild_index("s1")
    assert session.validate() == []
