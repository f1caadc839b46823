"""What the daemon's log says of files and of its own tidying: nothing in silence, and nothing again and again."""

from __future__ import annotations

import json
import os
from pathlib import Path

from daemons import running, settings_file, smp, wait_until

from smp_client import Memory, Session


def test_a_broken_file_is_said_once_for_each_change_of_it(memory: Memory, session: Session, tmp_path: Path) -> None:
    path = memory.root / "active/s1/decisions.yaml"
    whole = path.read_text()
    with running(memory.root, log=tmp_path / "log") as daemon:

        def after(content: str) -> int:
            """How often it was said, after the file has this content and others were written."""
            path.write_text(content)
            for number in range(3):
                session.record_finding(f"Finding {number}", discovered_by="a")
                assert smp("sync", "--root", memory.root).returncode == 0
            return len(daemon.said("unreadable"))

        assert after(whole + "  - id: [\n") == 1
        assert after(whole + "  - id: [\n  - id: {\n") == 2
        assert after(whole) == 2
        assert after(whole + "  - id: [\n") == 3


def test_what_is_indexed_is_said_at_level_debug(memory: Memory, session: Session, tmp_path: Path) -> None:
    for level, count in (("info", 0), ("debug", 1)):
        log = tmp_path / level
        with running(memory.root, log=log, config=settings_file(tmp_path, log={"level": level})) as daemon:
            session.record_decision(f"At level {level}", made_by="a")
            smp("sync", "--root", memory.root)
            assert min(len(daemon.said("indexed")), 1) == count


def test_tidying_says_what_it_did(memory: Memory, session: Session, tmp_path: Path) -> None:
    temporary = memory.root / ".smp/tmp/0123.-.1"
    temporary.parent.mkdir(parents=True, exist_ok=True)
    temporary.write_text("abandoned")
    os.utime(temporary, (0, 0))
    with running(memory.root, log=tmp_path / "log") as daemon:
        (said,) = wait_until(lambda: daemon.said("tidy"), "it has tidied")
        assert said["did"] == ["removed the abandoned temporary 0123.-.1"]


def test_status_shows_what_tidying_did(memory: Memory, session: Session) -> None:
    """As the last daemon left it; the next round of tidying, which finds nothing, replaces it."""
    did = {"tidied": 3, "failed": [], "did": ["finished a transaction (2 times)", "removed \x1b[31m it"]}
    job = {"last_success": "2026-01-11T14:30:00Z", "next_run": None, "last_error": None, "duration_ms": 1.5, "did": did}
    (memory.root / ".smp").mkdir(exist_ok=True)
    (memory.root / ".smp/status.json").write_text(json.dumps({"jobs": {"tidy": job}}))
    said = " ".join(smp("status", "--root", memory.root).stdout.split())
    assert "tidy: last 2026-01-11T14:30:00Z (finished a transaction (2 times), removed \\x1b[31m it in 1.5 ms)" in said
