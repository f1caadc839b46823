"""The daemon's log of files and of its own tidying: nothing in silence, nothing again and again."""

from __future__ import annotations

import os
from pathlib import Path

from daemons import running, settings_file, smp, wait_until

from smp_client import Memory, Session


def test_a_broken_file_is_logged_once_for_each_change_of_it(
    memory: Memory, session: Session, tmp_path: Path
) -> None:
    path = memory.root / "active/s1/decisions.yaml"
    whole = path.read_text()
    with running(memory.root, log=tmp_path / "log") as daemon:

        def after(content: str) -> int:
            """Return how often it was logged, after the file and others were written."""
            path.write_text(content)
            for number in range(3):
                session.record_finding(f"Finding {number}", discovered_by="a")
                assert smp("sync", "--root", memory.root).returncode == 0
            return len(daemon.said("unreadable"))

        assert after(whole + "  - id: [\n") == 1
        assert after(whole + "  - id: [\n  - id: {\n") == 2
        assert after(whole) == 2
        assert after(whole + "  - id: [\n") == 3


def test_tidying_is_logged_and_indexing_only_at_level_debug(
    memory: Memory, session: Session, tmp_path: Path
) -> None:
    temporary = memory.root / ".smp/tmp/0123.-.1"
    temporary.parent.mkdir(parents=True, exist_ok=True)
    for level, count in (("info", 0), ("debug", 1)):
        temporary.write_text("abandoned")
        os.utime(temporary, (0, 0))
        config = settings_file(tmp_path, log={"level": level})
        with running(memory.root, log=tmp_path / level, config=config) as daemon:
            (said,) = wait_until(lambda: daemon.said("tidied"), "it has tidied")
            assert said["reason"] == "removed the abandoned temporary 0123.-.1"
            session.record_decision(f"At level {level}", made_by="a")
            smp("sync", "--root", memory.root)
            assert min(len(daemon.said("indexed")), 1) == count
