"""A disk that fails or is full: no false acknowledgement, nothing truncated, and all goes on by itself when it is well again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from harness import (
    CHANGING,
    SYNCING,
    WRITING,
    Aftermath,
    Outcome,
    Programs,
    filled,
    injection,
    mounted,
    needs_mounts,
    needs_strace,
    state,
    without,
)
from programs import OPERATIONS, SESSION, build, commit, open_memory

from smp_client import Conflict, Memory, Session, SMPError

_OTHERS = (*(name for name in CHANGING if name not in (*SYNCING, *WRITING)), "flock")


def fail_everywhere(
    runner: Programs, operation: str, directory: Path, error: str, names: Collection[str], variant: str = "sound"
) -> Iterator[str]:
    """Lets each of these calls of a run fail in turn, and gives what is wrong with what the run said and left."""
    aftermath = Aftermath(operation, directory)
    calls = [call for call in runner.calls(operation, aftermath.fresh(), directory / "calls", variant) if call[0] in names]
    for number, call in enumerate(calls):
        root = aftermath.fresh()
        outcome = runner.run(operation, root, variant=variant, strace=injection(call, f"error={error}"))
        found = _lies(outcome, call[0])
        found += aftermath.problems(root, outcome, write_first=bool(number % 2), settled=_settled(outcome, operation))
        yield from (f"{error} from {call}: {problem}" for problem in found)


def _lies(outcome: Outcome, call: str) -> list[str]:
    """What the run said that it should not have said."""
    if outcome.status != 0:
        return [f"the run ended with {outcome.status}"]
    if outcome.failure is None:
        return ["a failed fsync was not mentioned"] if call in SYNCING else []
    return [] if outcome.failure in ("StorageFailed", "TransactionPending") else [f"it raised {outcome.failure}"]


def _settled(outcome: Outcome, operation: str) -> bool | None:
    """Whoever is told that an append or a transaction failed repeats it: it must not be there already, or it is there twice."""
    if outcome.failure == "TransactionPending":
        return True
    return False if outcome.failure and operation in ("append", "transaction") else None


_FAILURES = {"EIO from fsync": SYNCING, "EIO from write": WRITING, "ENOSPC from write": WRITING, "EIO from the others": _OTHERS}
_QUICK = {("EIO from fsync", name) for name in OPERATIONS if name != "delete"} | {("EIO from write", "append")}


@needs_strace
@pytest.mark.parametrize(
    ("failure", "operation"),
    [pytest.param(failure, name, marks=[] if (failure, name) in _QUICK else pytest.mark.slow)
     for failure in _FAILURES for name in OPERATIONS],
)  # fmt: skip
def test_a_call_that_fails_is_not_acknowledged(runner: Programs, failure: str, operation: str, tmp_path: Path) -> None:
    """When any fsync, write, rename, unlink… of a write fails, the write raises StorageFailed (or TransactionPending, when it is
    safe in the journal); nothing earlier is lost, and the next write works."""
    error = failure.partition(" ")[0]
    assert list(fail_everywhere(runner, operation, tmp_path, error, _FAILURES[failure])) == []


@needs_strace
def test_the_harness_notices_a_client_that_ignores_a_failed_fsync(runner: Programs, tmp_path: Path) -> None:
    found = fail_everywhere(runner, "append", tmp_path, "EIO", SYNCING, "deaf to fsync")
    assert any("a failed fsync was not mentioned" in problem for problem in found)


@pytest.mark.parametrize("operation", ["append", "update", "transaction"])
def test_a_short_write_leaves_everything_as_it_was(runner: Programs, operation: str, tmp_path: Path) -> None:
    """A write that the system cuts off in the middle raises StorageFailed and is taken back; one of a transaction that is in the
    journal already is completed by whoever comes next."""
    aftermath = Aftermath(operation, tmp_path)
    size = (aftermath.fresh() / "active" / SESSION / "findings.yaml").stat().st_size
    for room in (0, 1, 20, 33):
        root = aftermath.fresh()
        outcome = runner.run(operation, root, file_limit_bytes=size + room, limit_kills=False)
        assert outcome.failure in ("StorageFailed", "TransactionPending")
        assert aftermath.problems(root, outcome, write_first=bool(room % 2), settled=outcome.failure == "TransactionPending") == []


def _write_until_it_fails(session: Session) -> tuple[list[str], list[SMPError]]:
    acknowledged: list[str] = []
    errors: list[SMPError] = []
    for number in range(400):
        try:
            acknowledged.append(session.record_finding(f"{number} " + "x" * 400, discovered_by="veritas").id)
            session.save_artifact(f"artifact-{number}", "x" * 400)
        except SMPError as error:
            errors.append(error)
            if len(errors) == 5:
                break
    return acknowledged, errors


@needs_mounts
@pytest.mark.parametrize("options", ["size=400k", "size=64m,nr_inodes=90"], ids=["no space", "no inodes"])
def test_a_full_disk_loses_nothing(tmp_path: Path, options: str) -> None:
    """On a disk without space, or without inodes, every write that does not fit raises an SMPError, every acknowledged record is
    readable, and no session is there in part. When there is room again, writes work by themselves."""
    with mounted("none", tmp_path / "small", "tmpfs", options) as disk:
        memory = open_memory(disk / "root")
        build(memory.root)
        session = memory.session(SESSION)
        before = {record.id for record in session.records("finding")}
        with filled(disk):
            with pytest.raises(SMPError):
                memory.create_session(id="second")
            acknowledged, errors = _write_until_it_fails(session)
            assert [type(error).__name__ for error in errors] == ["StorageFailed"] * 5
            again = open_memory(memory.root)
            assert state(again).keys() == {SESSION}
            assert {record.id for record in again.session(SESSION).records("finding")} == before | set(acknowledged)
            assert again.session(SESSION).problems() == []
        memory.create_session(id="second")
        more = session.record_finding("there is room again", discovered_by="veritas").id
        session.save_artifact("room", "again\n")
        session.update("FIND-001", severity="low")
        assert {record.id for record in session.records("finding")} == before | {*acknowledged, more}
        assert session.problems() == []
        assert not os.listdir(memory.root / ".smp/journal")
        assert not os.listdir(memory.root / ".smp/tmp")


def _commit(memory: Memory) -> str | None:
    try:
        commit(memory, "cramped")
    except SMPError as error:
        return type(error).__name__
    return None


@needs_mounts
@pytest.mark.parametrize("pages", range(8))
def test_a_transaction_on_a_full_disk_is_all_or_nothing(pages: int, tmp_path: Path) -> None:
    """Wherever in a commit the space runs out, a reader sees all of it or nothing, also while the disk is still full."""
    undisturbed = open_memory(tmp_path / "undisturbed")
    build(undisturbed.root)
    expected = []
    for mood in ("busy", "cramped"):
        commit(undisturbed, mood)
        expected.append(state(undisturbed))
    with mounted("none", tmp_path / "small", "tmpfs", "size=2m") as disk:
        memory = open_memory(disk / "root")
        build(memory.root)
        commit(memory)  # so that every lock file has its place already
        ballast = disk / "ballast"
        ballast.write_bytes(b"x" * (os.statvfs(disk).f_bfree - pages) * 4096)
        error = _commit(memory)
        assert error in (None, "StorageFailed", "TransactionPending")
        happened = expected[error != "StorageFailed"]
        assert state(open_memory(memory.root)) == happened
        ballast.unlink()
        new = memory.session(SESSION).record_decision("there is room again", made_by="architect").id
        assert without(state(open_memory(memory.root)), [new]) == happened
        assert not os.listdir(memory.root / ".smp/journal")


def test_an_id_is_not_given_twice_when_the_notes_are_lost(tmp_path: Path) -> None:
    """Which ids an open transaction has taken is only noted in `.smp/`. When that is lost, somebody else can get the same; then
    the commit raises Conflict and writes nothing."""
    build(tmp_path / "root")
    session = open_memory(tmp_path / "root").session(SESSION)
    tx = session.transaction()
    taken = [tx.record_finding("in the transaction", discovered_by="veritas").id]
    shutil.rmtree(tmp_path / "root" / ".smp")
    taken.append(tx.record_finding("in it as well", discovered_by="veritas").id)
    assert len(set(taken)) == 2
    shutil.rmtree(tmp_path / "root" / ".smp")
    other = session.record_finding("by somebody else", discovered_by="veritas").id
    assert other in taken
    with pytest.raises(Conflict):
        tx.commit()
    assert session.get(other).text == "by somebody else"
    assert [record.id for record in session.records("finding")].count(other) == 1
