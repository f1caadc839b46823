"""The audit log never has a say in what the caller hears of the action itself."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from smp_client import Memory, Session, SMPError, TransactionPending
from smp_client.disk import audit

NAME = "Jane Doe"


@pytest.fixture
def filled(session: Session) -> Session:
    for number in range(3):
        session.record_decision(f"text {number} of {NAME}", made_by="a")
    return session


@contextmanager
def full(memory: Memory, monkeypatch: pytest.MonkeyPatch, *, but_audit: bool) -> Iterator[None]:
    """A disk that is full from the moment at which an intent is durable."""
    real = os.fsync
    seen: list[int] = []
    journal = memory.root / ".smp/journal"
    journal.mkdir(exist_ok=True)

    def fsync(descriptor: int) -> None:
        if any(journal.iterdir()):
            log = memory.root / audit.FILE
            is_of_audit = os.path.samestat(os.fstat(descriptor), log.stat())
            seen.append(descriptor)  # the first makes the intent durable
            if len(seen) > 1 and not (but_audit and is_of_audit):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        yield


def texts(memory: Memory) -> list[str]:
    return [record.text for record in memory.session("s1").records("decision")]


def places(memory: Memory) -> tuple[list[str], list[str]]:
    active = [session.id for session in memory.sessions()]
    return active, [one.session for one in memory.deleted_sessions()]


Prepare = Callable[[Session], object]
Act = Callable[[Memory], object]
Found = Callable[[Memory], object]
BEFORE = [f"text {number} of {NAME}" for number in range(3)]
VERBS: dict[str, tuple[Prepare, Act, Found, object]] = {
    "delete": (
        lambda _: None,
        lambda memory: memory.session("s1").delete("DEC-002", reason="r"),
        texts,
        [BEFORE[0], BEFORE[2]],
    ),
    "restore": (
        lambda session: session.delete("DEC-002", reason="r"),
        lambda memory: memory.privacy.restore("s1", ["DEC-002"]),
        texts,
        BEFORE,
    ),
    "anonymize": (
        lambda _: None,
        lambda memory: memory.privacy.anonymize("s1", names=[NAME]),
        texts,
        [f"text {number} of User-2" for number in range(3)],
    ),
    "delete a session": (
        lambda _: None,
        lambda memory: memory.delete_session("s1", reason="r"),
        places,
        ([], ["s1"]),
    ),
    "restore a session": (
        lambda session: session.memory.delete_session("s1", reason="r"),
        lambda memory: memory.undelete_session("s1"),
        places,
        (["s1"], []),
    ),
}


@pytest.mark.parametrize("but_audit", [True, False])
@pytest.mark.parametrize("verb", VERBS)
def test_a_change_that_is_recorded_on_a_disk_that_fills_up_is_pending(
    memory: Memory, filled: Session, monkeypatch: pytest.MonkeyPatch, verb: str, but_audit: bool
) -> None:
    prepare, act, found, wanted = VERBS[verb]
    prepare(filled)
    with (
        full(memory, monkeypatch, but_audit=but_audit),
        pytest.raises(TransactionPending, match="do not repeat it"),
    ):
        act(memory)
    later = Memory(memory.root)
    assert later.sessions() is not None
    assert found(later) == wanted
    lines = [json.loads(line) for line in (memory.root / audit.FILE).read_text().splitlines()]
    assert not any("failed" in line for line in lines)
    if but_audit:
        assert lines[-1]["pending"] is True


def test_an_action_that_fails_says_why_also_if_its_second_line_cannot_be_written(
    memory: Memory, filled: Session
) -> None:
    with (
        pytest.raises(KeyError, match="its own"),
        audit.noted(memory.tree, "export", clock=memory.options.clock, by="a"),
    ):
        (memory.root / audit.FILE).unlink()
        (memory.root / audit.FILE).mkdir()
        raise KeyError("its own")


def test_nothing_happens_without_its_first_line(memory: Memory, filled: Session) -> None:
    (memory.root / audit.FILE).mkdir()
    with pytest.raises(SMPError) as raised:
        filled.delete("DEC-002", reason="r")
    assert not isinstance(raised.value, TransactionPending)
    assert texts(memory) == BEFORE


def test_an_import_whose_last_line_cannot_be_written_says_so_and_is_done(
    memory: Memory, filled: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = tmp_path / "export.yaml"
    memory.exchange.export(exported)
    other = Memory(tmp_path / "other")
    real = audit.note

    def note(*given: object, **facts: object) -> None:
        if facts.get("done"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(*given, **facts)  # type: ignore[arg-type]

    monkeypatch.setattr(audit, "note", note)
    outcome = other.exchange.import_(exported)
    assert texts(other) == BEFORE
    assert any("audit.log" in problem for problem in outcome.problems)
