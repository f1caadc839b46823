"""Every change of a memory keeps what stood before."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from daemons import smp

from smp_client import Memory, MemoryNotFound, Session
from smp_client.text.revision import Revision

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    moments = (START + timedelta(minutes=number) for number in range(10_000))
    memory = Memory(tmp_path / "sessions", clock=lambda: next(moments))
    session = memory.create_session(id="s1")
    session.record_decision("Use SAML", made_by="architect", tags=["login"])
    session.record_finding("No MFA", discovered_by="veritas")
    return memory


def said(revisions: list[Revision]) -> list[tuple[str, str, object]]:
    return [(one.by, one.change, dict(one.before)) for one in revisions]


def test_an_update_keeps_the_earlier_fields_and_says_who_changed_them(memory: Memory) -> None:
    session = memory.session("s1")
    session.update("DEC-001", by="kim", decision="Use OAuth", rationale="SAML is not supported")
    session.pin("DEC-001")
    assert said(session.history("DEC-001")) == [
        ("kim", "updated", {"decision": "Use SAML", "rationale": None}),
        ("user", "pinned", {"pinned": None}),
    ]
    assert memory.history("s1/DEC-001") == memory.history("DEC-001")
    first, second = (one.at for one in memory.history("DEC-001"))
    assert first is not None
    assert second is not None
    assert START < first < second
    assert memory.history("FIND-001") == []


def test_every_verb_that_changes_leaves_a_revision(memory: Memory) -> None:
    session = memory.session("s1")
    session.resolve_finding("FIND-001", resolved_by="kim", action_taken="MFA is on")
    (revision,) = session.history("FIND-001")
    assert (revision.by, revision.change) == ("kim", "resolved")
    assert revision.before["resolution"] == {"status": "open"}
    session.save_artifact("report", "first text")
    session.save_artifact("report", "second text", created_by="veritas")
    (revision,) = session.history("report")
    assert (revision.by, revision.change) == ("veritas", "saved")
    assert revision.before["content"] == "first text"
    session.save_agent_state("veritas", {"mood": "calm"})
    session.save_agent_state("veritas", {"mood": "busy"})
    (revision,) = session.history("veritas")
    assert revision.before["mood"] == "calm"
    everywhere = memory.everywhere
    old, new = (everywhere.record_preference(text) for text in ("tea", "coffee"))
    everywhere.supersede(old.id, by=new.id)
    assert [one.change for one in memory.history(f"global/{old.id}")] == ["superseded"]


def test_bookkeeping_and_a_change_that_changes_nothing_leave_none(memory: Memory) -> None:
    session = memory.session("s1")
    session.update("DEC-001", decision="Use SAML")
    session.get("DEC-001")
    session.decay()
    assert session.history("DEC-001") == []


def test_a_transaction_that_fails_leaves_no_history(memory: Memory) -> None:
    session = memory.session("s1")
    with pytest.raises(RuntimeError), session.transaction() as transaction:
        transaction.update("DEC-001", decision="Use OAuth")
        raise RuntimeError
    assert session.history("DEC-001") == []
    with session.transaction() as transaction:
        new = transaction.record_decision("Use LDAP", made_by="kim")
        transaction.update(new.id, decision="Use OAuth")
    assert session.history(new.id) == [], "it was never written in another form"


def test_history_goes_comes_back_and_is_destroyed_with_its_memory(memory: Memory) -> None:
    session = memory.session("s1")
    session.update("DEC-001", decision="Use OAuth")
    session.update("FIND-001", finding="No second factor")
    outcome = session.delete("DEC-001", reason="test")
    assert outcome.ids == ["DEC-001"]
    assert session.history("DEC-001") == []
    assert [one.id for one in session.deleted()] == ["DEC-001"]
    session.restore("DEC-001")
    assert [one.before["decision"] for one in session.history("DEC-001")] == ["Use SAML"]
    memory.privacy.purge_now("s1", ["DEC-001"])
    left = [path for path in memory.root.rglob("*") if path.is_file()]
    assert not [path for path in left if b"SAML" in path.read_bytes()]
    assert len(session.history("FIND-001")) == 1


def test_a_deletion_by_text_finds_it_in_an_earlier_version(memory: Memory) -> None:
    session = memory.session("s1")
    session.update("DEC-001", decision="Use OAuth")
    memory.privacy.delete("s1", text="saml", reason="a secret word")
    assert session.history("DEC-001") == []
    assert session.get("DEC-001").text == "Use OAuth"


def test_anonymising_reaches_the_earlier_versions(memory: Memory) -> None:
    session = memory.session("s1")
    session.update("FIND-001", by="Jane Doe", finding="Jane Doe has no MFA")
    session.update("FIND-001", by="Jane Doe", finding="Somebody has no MFA")
    memory.privacy.anonymize("s1", names=["Jane Doe"])
    assert not [one for one in session.history("FIND-001") if "Jane" in str(one)]
    assert len(session.history("FIND-001")) == 2


def test_history_counts_for_the_quota_and_compaction_evicts_it(memory: Memory) -> None:
    session = memory.session("s1")
    session.update("DEC-001", rationale="x" * 5000)
    session.update("DEC-001", rationale="short")
    size = session.size()
    assert size.components["history"] > 5000
    outcome = session.compact(reduction_pct=50)
    assert "evict_history" in [action.type for action in outcome.actions]
    assert session.size().components["history"] < 1000
    assert len(session.history("DEC-001")) == 2, "also those that were evicted"


def test_an_archived_session_has_its_history(memory: Memory) -> None:
    memory.session("s1").update("DEC-001", decision="Use OAuth")
    memory.archive_session("s1")
    assert [one.before["decision"] for one in memory.history("s1/DEC-001")] == ["Use SAML"]


def test_no_secret_gets_into_the_history(memory: Memory) -> None:
    """Not even one that an editor wrote into the file past every redaction."""
    session = memory.session("s1")
    path = memory.root / "active/s1/decisions.yaml"
    key = "ghp_40Ab3dE5gH7jK9mN1pQ3sT5vW7yZ9bD1fG3h"
    path.write_text(path.read_text().replace("Use SAML", f"Use {key}"))
    session.update("DEC-001", decision="Use OAuth")
    assert key not in (memory.root / "active/s1/history.yaml").read_text()


def test_smp_show_prints_the_history(memory: Memory) -> None:
    smp("update", "s1", "DEC-001", "--text", "Use OAuth", "--by", "kim", "--root", memory.root)
    shown = smp("show", "s1", "DEC-001", "--history", "--root", memory.root).stdout
    assert "s1/DEC-001 updated by kim" in shown
    assert "Use SAML" in shown
    done = smp("show", "s1", "DEC-001", "--history", "--json", "--root", memory.root)
    (revision,) = json.loads(done.stdout)
    assert (revision["by"], revision["before"]) == ("kim", {"decision": "Use SAML"})
    nothing = smp("show", "s1", "FIND-001", "--history", "--root", memory.root).stdout
    assert nothing == "s1/FIND-001 has not changed since it was written.\n"


def test_a_history_that_a_person_edited_costs_nothing_else(memory: Memory) -> None:
    session: Session = memory.session("s1")
    session.update("DEC-001", decision="Use OAuth")
    path = memory.root / "active/s1/history.yaml"
    path.write_text(path.read_text() + "  - odd: [1, 2]\n  - id: X\n    before: text\n")
    session.update("DEC-001", decision="Use LDAP")
    texts = [one.before["decision"] for one in session.history("DEC-001")]
    assert texts == ["Use SAML", "Use OAuth"]


def test_a_memory_that_nothing_has_has_no_history(memory: Memory) -> None:
    session = memory.session("s1")
    for ask in (lambda: session.history("DEC-099"), lambda: memory.history("s1/DEC-099")):
        with pytest.raises(MemoryNotFound, match="There is no memory 'DEC-099' in s1"):
            ask()
    session.update("DEC-001", decision="Use OAuth")
    session.delete("DEC-001", reason="test")
    said = smp("show", "s1", "DEC-001", "--history", "--root", memory.root).stdout
    assert said == "s1/DEC-001 is deleted. Its history comes back with it: smp restore.\n"
    memory.privacy.purge_now("s1", ["DEC-001"])
    with pytest.raises(MemoryNotFound):
        session.history("DEC-001")
