"""All or nothing, while everything works; tests/faults shows the same under kill -9."""

from __future__ import annotations

from pathlib import Path

import pytest

from smp_client import Conflict, QuotaExceeded, Session, TransactionEnded, TransactionPending
from smp_client.disk import journal


def snapshot(session: Session) -> dict[Path, bytes]:
    top = session.memory.root / session.scope.directory
    return {path: path.read_bytes() for path in top.rglob("*") if path.is_file()}


def everything(session: Session) -> None:
    """One transaction that touches every kind of file."""
    with session.transaction() as tx:
        finding = tx.record_finding("F", discovered_by="v", severity="low")
        decision = tx.record_decision("D", made_by="a")
        tx.relate(decision.id, finding.id, "resolves")
        tx.add_turn("user", "text", memory_refs=[decision.id])
        tx.resolve_finding(finding.id, resolved_by="u", action_taken="x")
        tx.save_agent_state("veritas", {"n": 1})
        tx.save_agent_state("veritas", {"n": 2})
        tx.save_artifact("report", "text")


def test_a_commit_writes_everything(session: Session) -> None:
    session.record_decision("before", made_by="x")
    everything(session)
    assert session.get("DEC-002").text == "D"
    assert session.get("FIND-001").data["resolution"]["status"] == "resolved"
    assert session.get("REL-001").data["source"] == "DEC-002"
    assert session.get("turn-1").data["memory_refs"] == ["DEC-002"]
    assert session.agent_state("veritas")["n"] == 2
    assert session.artifact("report").text == "text"
    assert session.scope.tree.list(".smp/journal") == []


def test_before_the_commit_nothing_is_written(session: Session) -> None:
    before = snapshot(session)
    tx = session.transaction()
    tx.record_decision("D", made_by="a")
    tx.save_artifact("report", "text")
    assert tx.is_active
    assert snapshot(session) == before
    tx.rollback()
    assert not tx.is_active
    assert snapshot(session) == before


def test_an_exception_in_the_block_rolls_back(session: Session) -> None:
    before = snapshot(session)
    with pytest.raises(ZeroDivisionError), session.transaction() as tx:
        tx.record_decision("D", made_by="a")
        raise ZeroDivisionError
    assert snapshot(session) == before


def test_a_number_that_was_given_stays_used(session: Session) -> None:
    tx = session.transaction()
    tx.record_decision("D", made_by="a")
    assert session.record_decision("E", made_by="a").id == "DEC-002"
    tx.rollback()
    assert session.record_decision("F", made_by="a").id == "DEC-003"


@pytest.mark.parametrize("change", ["update", "state", "artifact"])
def test_a_change_by_somebody_else_is_a_conflict_and_nothing_is_written(
    session: Session, change: str
) -> None:
    session.record_decision("D", made_by="a")
    session.save_agent_state("veritas", {"n": 1})
    session.save_artifact("report", "1")
    tx = session.transaction()
    tx.record_finding("F", discovered_by="v")
    if change == "update":
        tx.update("DEC-001", confidence="high")
        session.update("DEC-001", confidence="low")
    elif change == "state":
        tx.save_agent_state("veritas", {"n": 2})
        session.save_agent_state("veritas", {"n": 3})
    else:
        tx.save_artifact("report", "2")
        session.save_artifact("report", "3")
    before = snapshot(session)
    with pytest.raises(Conflict):
        tx.commit()
    assert snapshot(session) == before


def test_a_transaction_that_does_not_fit_writes_nothing(memory: object, session: Session) -> None:
    session.update_metadata(storage={"quota_bytes": session.size().total_bytes + 500})
    before = snapshot(session)
    with pytest.raises(QuotaExceeded), session.transaction() as tx:
        tx.record_decision("short", made_by="a")
        tx.record_finding("x" * 2000, discovered_by="v")
    assert snapshot(session) == before


def test_an_ended_transaction_cannot_be_used(session: Session) -> None:
    with session.transaction() as tx:
        tx.record_decision("D", made_by="a")
    for use in (tx.commit, lambda: tx.record_decision("E", made_by="a")):
        with pytest.raises(TransactionEnded):
            use()


@pytest.mark.parametrize("is_read_first", [True, False])
def test_whoever_comes_next_finishes_a_transaction_that_was_cut_off(
    session: Session, monkeypatch: pytest.MonkeyPatch, is_read_first: bool
) -> None:
    """The intent is recorded, then every step fails."""

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "carry_out", fail)
        with pytest.raises(TransactionPending):
            everything(session)
    if is_read_first:
        assert session.get("DEC-001").text == "D"
        assert session.artifact("report").text == "text"
        assert session.scope.tree.list(".smp/journal") == []
    assert session.record_decision("next", made_by="x").id == "DEC-002"
    assert [record.text for record in session.records("decision")] == ["D", "next"]
