"""How full a session is, and that no write makes it fuller than it may be."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from smp_client import Memory, QuotaExceeded, Session
from smp_client.model.policies import CompactionPolicy

BIG = "x" * 30_000


def walked(memory: Memory) -> int:
    """The size of all YAML and Markdown files of the session but those in inbox and indexes."""
    paths = (memory.root / "active/s1").rglob("*")
    counted = (path for path in paths if path.parent.name not in ("inbox", "indexes"))
    return sum(path.stat().st_size for path in counted if path.suffix in (".yaml", ".md"))


def snapshot(memory: Memory) -> dict[str, bytes]:
    paths = (memory.root / "active/s1").rglob("*")
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in paths}


@pytest.fixture
def filled(session: Session) -> Session:
    """A session with something in each of its files."""
    session.add_turn("user", "hello")
    session.record_decision("d", made_by="a")
    session.record_finding("f", discovered_by="a")
    session.record_preference("p")
    session.record_learning("l", learned_by="a")
    session.relate("DEC-001", "FIND-001", "resolves")
    for number in range(3):
        session.save_agent_state("veritas", {"step": number, "notes": "x" * 300})
    session.save_artifact("report-1", "# Report\n" + "x" * 500)
    return session


def limit_to(memory: Memory, quota: int) -> Session:
    """The session with a new limit, opened afresh."""
    session = Memory(memory.root).session("s1")
    session.update_metadata(storage={"quota_bytes": quota})
    return session


def test_the_size_is_that_of_the_files(filled: Session, memory: Memory) -> None:
    """Every YAML and Markdown file counts, those of people included, and nothing else."""
    folder = memory.root / "active/s1"
    (folder / "notes.md").write_text("by hand")
    (folder / "indexes/topics.yaml").write_text("topics: {}\n")  # made from the others
    (folder / "inbox/drop.yaml").write_text("finding: not yet taken in\n")
    (folder / "access.log").write_text("not counted")
    (folder / "artifacts/picture.png").write_bytes(b"not counted")
    size = filled.size()
    counted = sum(size.components.values()) - size.components["indexes"]
    assert size.total_bytes == walked(memory) == counted
    assert filled.scope.usage.total() == size.total_bytes
    assert size.utilization_pct == round(100 * size.total_bytes / size.quota_bytes, 1)
    assert size.components["other"] == len("by hand")


def test_how_long_it_will_last_follows_from_its_growth(tmp_path: Path) -> None:
    """After ten days at a tenth of the limit there are ninety days left."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    memory = Memory(tmp_path / "sessions", clock=lambda: now)
    session = memory.create_session(id="s1", quota_bytes=200_000)
    assert session.size().days_until_full is None
    session.save_artifact("filler", "")
    session.save_artifact("rest", "x" * (20_000 - walked(memory) - 200))
    path = memory.root / "active/s1/artifacts/filler.md"
    path.write_text(path.read_text() + "x" * (20_000 - walked(memory)))
    assert session.size().total_bytes == 20_000
    now += timedelta(days=10)
    assert session.size().days_until_full == 90.0


def in_transaction(session: Session) -> None:
    with session.transaction() as tx:
        tx.add_turn("user", "small")
        tx.record_finding(BIG, discovered_by="a")
        tx.update("DEC-001", rationale="small")
        tx.save_artifact("report-1", "small")
        tx.save_agent_state("newcomer", {"small": True})


WRITES: dict[str, Callable[[Session], object]] = {
    "add_turn": lambda s: s.add_turn("user", BIG),
    "relate": lambda s: s.relate("DEC-001", "FIND-001", "resolves", why=BIG),
    "update": lambda s: s.update("DEC-001", rationale=BIG),
    "save_artifact, again": lambda s: s.save_artifact("report-1", BIG),
    "save_agent_state, again": lambda s: s.save_agent_state("veritas", {"notes": BIG}),
    "update_metadata": lambda s: s.update_metadata(context={"notes": BIG}),
    "transaction": in_transaction,
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_does_not_fit_changes_nothing(
    filled: Session, memory: Memory, name: str
) -> None:
    """QuotaExceeded is MEM_E001, carries the numbers, and every byte stays as it was."""
    session = limit_to(memory, walked(memory) + 10_000)
    total = walked(memory)
    before = snapshot(memory)
    with pytest.raises(QuotaExceeded) as caught:
        WRITES[name](session)
    assert caught.value.code == "MEM_E001"
    assert caught.value.session_id == "s1"
    assert caught.value.total_bytes == total
    assert caught.value.quota_bytes == session.quota_bytes()
    assert caught.value.needed_bytes > len(BIG) - 600, "what is replaced makes room"
    assert snapshot(memory) == before
    assert list((memory.root / ".smp/tmp").iterdir()) == []
    assert list((memory.root / ".smp/journal").iterdir()) == []
    assert session.record_finding("small", discovered_by="a").id in ("FIND-002", "FIND-003")


def test_a_session_can_be_filled_to_the_last_byte(filled: Session, memory: Memory) -> None:
    """A write that fits exactly is made, then not one byte more; a deletion makes room."""
    filled.record_finding("y" * 1000, discovered_by="a", timestamp="2026-01-01T00:00:00Z")
    content = (memory.root / "active/s1/findings.yaml").read_bytes()
    needed = len(content) - content.rindex(b"  - id: ")
    path, quota = memory.root / "active/s1/metadata.yaml", 0
    while quota != walked(memory) + needed:  # the limit itself takes some bytes
        quota = walked(memory) + needed
        path.write_text(re.sub(r"quota_bytes: \d+", f"quota_bytes: {quota}", path.read_text()))
    # Nothing is compacted, which would make room.
    policy = CompactionPolicy(automatic=False)
    session = Memory(memory.root, compaction=policy).session("s1")
    session.record_finding("z" * 1000, discovered_by="a", timestamp="2026-01-01T00:00:00Z")
    size = session.size()
    assert size.total_bytes == size.quota_bytes == walked(memory)
    assert (size.level, size.utilization_pct, size.days_until_full) == ("full", 100.0, 0.0)
    with pytest.raises(QuotaExceeded):
        session.add_turn("a", "")
    with pytest.raises(QuotaExceeded):
        session.pin("FIND-001")
    session.delete("FIND-001", reason="to make room")
    session.add_turn("a", "fits again")


@pytest.mark.parametrize("nonsense", ["0", "-5", "much", "null", "[1]"])
def test_a_limit_that_makes_no_sense_is_that_of_the_client(
    session: Session, memory: Memory, nonsense: str
) -> None:
    """What a person wrote by mistake neither locks a session nor opens it without limit."""
    path = memory.root / "active/s1/metadata.yaml"
    path.write_text(path.read_text().replace("quota_bytes: 10485760", f"quota_bytes: {nonsense}"))
    assert Memory(memory.root, quota_bytes=12_345).session("s1").quota_bytes() == 12_345
