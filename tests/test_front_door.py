"""Every error that leaves the library is an SMPError, whichever call of the system fails."""

from __future__ import annotations

import errno
import inspect
import io
import os
import pydoc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FunctionType
from typing import NamedTuple

import pytest
from once import copied

import smp_client
from smp_client import (
    AgentMemory,
    GlobalMemory,
    Memory,
    Party,
    Record,
    Session,
    SessionMemory,
    SMPError,
    StorageFailed,
    Transaction,
    TransactionPending,
)
from smp_client.erasure import Privacy
from smp_client.exchange.gate import Exchange
from smp_client.model.record import DECISION

CALLS = ("open", "stat", "lstat", "listdir", "scandir", "mkdir", "rename", "unlink", "fsync")
NOW = datetime(2026, 1, 11, 14, 30, tzinfo=UTC)
ERRORS = (errno.EMFILE, errno.EIO)


class Opened(NamedTuple):
    """A tree with one session of everything, and each public object of it."""

    memory: Memory
    session: Session
    everywhere: GlobalMemory
    transaction: Transaction
    privacy: Privacy
    exchange: Exchange
    agent: AgentMemory
    party: Party
    small: SessionMemory
    elsewhere: Path


def made(root: Path) -> None:
    memory = Memory(root, clock=lambda: NOW)
    session = memory.create_session(id="s1", user="vera")
    session.record_decision("Use OAuth", made_by="vera", tags=["login"])
    session.record_decision("Use tokens", made_by="vera")
    session.record_decision("Use cookies", made_by="vera")
    session.record_finding("Tokens leak", discovered_by="vera")
    session.add_turn("vera", "hello")
    session.save_agent_state("vera", {"next_steps": "go on"})
    session.save_artifact("report", "# Report\n")
    session.delete("DEC-003", reason="a test")
    memory.everywhere.record_pattern("Write tests", learned_by="vera")
    memory.everywhere.record_preference("Short answers", topic="style")
    memory.create_session(id="packed").record_decision("Old", made_by="vera")
    memory.archive_session("packed")
    memory.create_session(id="gone").record_decision("Gone", made_by="vera")
    memory.delete_session("gone", reason="a test")


def opened(tmp_path: Path) -> Opened:
    memory = Memory(copied(made, tmp_path / "sessions"))
    session = memory.session("s1")
    return Opened(
        memory, session, memory.everywhere, session.transaction(), memory.privacy,
        memory.exchange, session.agent("vera"), session.party(),
        SessionMemory("s1", memory.root), tmp_path,
    )  # fmt: skip


@contextmanager
def broken(
    monkeypatch: pytest.MonkeyPatch, number: int, nth: int = 0, *, once: bool = False
) -> Iterator[list[str]]:
    """The system refuses the nth call, or everything from there on. Yield the calls so far."""
    made: list[str] = []

    def breaking(name: str) -> Callable[..., object]:
        real = getattr(os, name)

        def call(*given: object, **named: object) -> object:
            made.append(name)
            if len(made) == nth + 1 or (len(made) > nth and not once):
                raise OSError(number, os.strerror(number))
            return real(*given, **named)

        return call

    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, breaking(name))
        yield made


def public(one: object) -> set[str]:
    """Return the names of everything that a caller can call, or ask for, of an object."""
    held = {name for name in vars(one) if callable(getattr(one, name))}
    return {name for name in {*dir(type(one)), *held} if not name.startswith("_")}


# Arguments that make sense, by class and method. Without an entry a method is called without any;
# a property is asked for.
Arguments = tuple[tuple[object, ...], dict[str, object]]
TIMES: Arguments = (("2026-01-01", "2026-02-01"), {})


def of(*given: object, **named: object) -> Arguments:
    return given, named


WRITES: dict[str, Arguments] = {
    "record": of(DECISION, {"decision": "x", "made_by": "a"}),
    "write_memory": of({"type": "decision", "decision": "x", "made_by": "a"}),
    "add_turn": of("vera", "x"),
    "record_decision": of("x", made_by="a"),
    "record_finding": of("x", discovered_by="a"),
    "record_preference": of("x"),
    "record_learning": of("x", learned_by="a"),
    "relate": of("DEC-002", "FIND-001", "resolves"),
    "supersede": of("DEC-001", by="DEC-002"),
    "update": of("DEC-001", rationale="y"),
    "resolve_finding": of("FIND-001", resolved_by="a", action_taken="b"),
    "pin": of("DEC-001"),
    "unpin": of("DEC-001"),
    "save_agent_state": of("vera", {"a": 1}),
    "save_artifact": of("report", "x"),
}
ASKS: dict[str, Arguments] = {
    "search": of("oauth"),
    "by_topic": of("login"),
    "by_agent": of("vera"),
    "by_time": TIMES,
    "by_type": of("decision"),
    "similar": of("oauth"),
    "related": of("DEC-001"),
    "query": of({"filters": []}),
}
FILES: dict[str, Arguments] = {
    **WRITES, **ASKS,
    "get": of("DEC-001"),
    "history": of("DEC-001"),
    "records": of("decision"),
    "delete": of("DEC-001", reason="r"),
    "restore": of("DEC-003"),
    "restore_batch": of("no such batch"),
    "kind_of_record": of("DEC-001"),
}  # fmt: skip
ARGUMENTS: dict[str, dict[str, Arguments]] = {
    "memory": {
        **ASKS,
        "get": of("s1/DEC-001"),
        "alike": of(Record("DEC-001", "decision", "s1", {}, "Use OAuth")),
        "history": of("s1/DEC-001"),
        "create_session": of(id="new"),
        "close_session": of("s1"),
        "add_memory": of("s1", {"type": "decision", "decision": "x", "made_by": "a"}),
        "write_memory": of("s1", {"type": "decision", "decision": "x", "made_by": "a"}),
        "session": of("s1"),
        "archive_session": of("s1"),
        "restore_session": of("packed"),
        "delete_session": of("s1", reason="r"),
        "undelete_session": of("gone"),
        "context": of(task="x"),
    },
    "session": {
        **FILES,
        "update_metadata": of(status="idle"),
        "change_metadata": of(lambda old: {}),
        "agent_state": of("vera"),
        "artifact": of("report"),
        "switch_context": of("payment"),
    },
    "everywhere": {
        **FILES,
        "records": of("preference"),
        "record": of(DECISION, {}),
        "write_memory": of({"type": "pattern", "pattern": "x"}),
        "record_pattern": of("x"),
        "save_profile": of(name="x"),
    },
    "transaction": {
        **WRITES,
        "remove_drop": of("inbox/x.yaml", os.stat(__file__)),
        "replace": of(DECISION, {"id": "DEC-001"}, {"id": "DEC-001"}, "vera"),
    },
    "privacy": {
        "delete": of("s1", "DEC-001", reason="r"),
        "delete_everywhere": of(topic="login", reason="r"),
        "deleted": of("s1"),
        "restore": of("s1", "DEC-003"),
        "restore_batch": of("no such batch"),
        "anonymize": of("s1"),
        "find": of("OAuth"),
        "purge_now": of("s1", "DEC-003"),
    },
    "exchange": {
        "export": of("EXPORT.yaml"),
        "export_layout": of("LAYOUT", layout="jsonl"),
        "import_": of(io.BytesIO(b"smp_export: 1\n")),
        "verify": of(io.BytesIO(b"smp_export: 1\n")),
    },
    "agent": {
        "artifact": of("report"),
        "similar": of("oauth"),
        "add_turn": of("x"),
        "record_decision": of("x"),
        "record_finding": of("x"),
        "resolve_finding": of("FIND-001", "done"),
        "record_preference": of("x"),
        "record_learning": of("x"),
        "save_artifact": of("report", "x"),
        "save_state": of({"a": 1}),
        "state_of": of("vera"),
        "with_requirements": of({"read": ["decisions"]}),
        "memory_usage": of("no such phase"),
        "may_read": of("decisions"),
        "may_write": of("decisions"),
    },
    "party": {"agent": of("vera"), "record_decision": of("x", inputs={"vera": "yes"})},
    "small": {"add": of("decision", {"decision": "x"}), "delete": of("DEC-001")},
}
# These need more than a line of arguments, and have no disk behind them, or call a method above.
LEFT_OUT = {("exchange", "migrate")}


def use(one: object, name: str, given: Arguments) -> None:
    """Ask for a property, or call a method, and take everything from the iterator it returns."""
    found = getattr(one, name)
    answer = found(*given[0], **given[1]) if callable(found) else found
    if isinstance(answer, Iterator):
        list(answer)


@pytest.mark.parametrize("number", ERRORS, ids=["out of descriptors", "a broken disk"])
def test_every_public_method_raises_nothing_but_its_own_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Whatever is asked for while no file can be opened, listed or looked at."""
    objects = opened(tmp_path)
    monkeypatch.chdir(tmp_path)
    wrong: dict[str, str] = {}
    used = 0
    failed = 0
    for part, one in objects._asdict().items():
        if part == "elsewhere":
            continue
        for name in sorted(public(one) - {left for where, left in LEFT_OUT if where == part}):
            used += 1
            with broken(monkeypatch, number):
                try:
                    use(one, name, ARGUMENTS[part].get(name, of()))
                except StorageFailed as error:
                    failed += 1
                    said = str(error)
                    if str(tmp_path) not in said or "acknowledged" not in said:
                        wrong[f"{part}.{name}"] = said
                except SMPError:
                    pass
                except Exception as error:
                    wrong[f"{part}.{name}"] = repr(error)
    assert wrong == {}
    assert used > 150
    assert failed > 100


# What a caller may believe: a verb that raises has done nothing, or says that it is pending.


def where(memory: Memory) -> str:
    """Return in which places each session is."""
    found = {
        "active": [session.id for session in memory.sessions()],
        "archived": [one.session for one in memory.archived_sessions()],
        "deleted": [one.session for one in memory.deleted_sessions()],
    }
    return str(found)


def contents(memory: Memory) -> str:
    """Return the memories of a session, and the deleted ones."""
    session = memory.session("s1")
    records = [session.records(kind.type) for kind in session.kinds]
    deleted = sorted(one.id for one in session.deleted())
    return str([records, deleted, session.artifact("report").text, session.agent_state("vera")])


VERBS: dict[str, Callable[[Memory], str]] = {
    "memory.create_session": where,
    "memory.archive_session": where,
    "memory.restore_session": where,
    "memory.delete_session": where,
    "memory.undelete_session": where,
    "session.record_decision": contents,
    "session.update": contents,
    "session.delete": contents,
    "session.restore": contents,
    "session.relate": contents,
    "session.save_artifact": contents,
    "session.save_agent_state": contents,
}
QUICK = ("memory.archive_session", "memory.restore_session", "session.delete", "session.restore")
_LATE = 12  # the calls of a verb, from its last on, that the quick test lets fail


def done(
    root: Path, verb: str, monkeypatch: pytest.MonkeyPatch, nth: int, *, once: bool
) -> tuple[SMPError | None, int]:
    """Do it in a new tree, while the system refuses the nth call, or all from there on.

    Return the error, and how many calls there were.
    """
    memory = Memory(copied(made, root), clock=lambda: NOW)
    part, _, name = verb.partition(".")
    one = memory if part == "memory" else memory.session("s1")
    with broken(monkeypatch, errno.EIO, nth, once=once) as calls:
        try:
            use(one, name, ARGUMENTS[part][name])
        except SMPError as error:
            return error, len(calls)
    return None, len(calls)


IN_DOUBT = ("is restored, but cannot be read", "look before you repeat it")


def has_lied(verb: str, error: SMPError | None, is_before: bool, is_after: bool) -> bool:
    if error is None or isinstance(error, TransactionPending):
        return not is_after
    # A session that is there and not durable is not acknowledged. The next try is a Conflict.
    is_allowed = verb.endswith("create_session") or any(words in str(error) for words in IN_DOUBT)
    return not is_before and not (is_after and is_allowed)


@pytest.mark.parametrize("once", [True, False], ids=["one call fails", "the disk is gone"])
@pytest.mark.parametrize(
    ("verb", "late"),
    [
        *((verb, _LATE) for verb in QUICK),
        *(pytest.param(verb, 1 << 30, marks=pytest.mark.slow) for verb in VERBS),
    ],
)
def test_a_verb_that_fails_has_done_nothing_or_is_pending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, late: int, once: bool
) -> None:
    found = VERBS[verb]
    before = found(Memory(copied(made, tmp_path / "before")))
    error, calls = done(tmp_path / "after", verb, monkeypatch, 1 << 30, once=once)
    assert error is None
    after = found(Memory(tmp_path / "after"))
    assert after != before
    lies: list[str] = []
    for nth in range(max(calls - late, 0), calls):
        root = tmp_path / str(nth)
        error, _ = done(root, verb, monkeypatch, nth, once=once)
        now = found(Memory(root))
        if has_lied(verb, error, now == before, now == after):
            lies.append(f"call {nth} of {calls}: {error!r}")
    assert lies == []


# The door is seen by nobody who reads the library.


def test_every_public_class_with_a_disk_behind_it_is_tried(tmp_path: Path) -> None:
    """A new public class is added to `Opened`, or named here as a value without a disk."""
    values = {"Anonymization", "Context", "Options", "Problem", "Record", "Redaction", "Size"}
    found = {name: getattr(smp_client, name) for name in smp_client.__all__}
    classes = {name for name, one in found.items() if not issubclass(one, SMPError)}
    tried = {type(one).__name__ for one in opened(tmp_path)}
    assert classes - values <= tried


def test_help_and_signatures_show_the_methods_as_they_are_written(tmp_path: Path) -> None:
    for part, one in opened(tmp_path)._asdict().items():
        for name in public(one) if part in ARGUMENTS else ():
            member = inspect.getattr_static(one, name)
            if isinstance(member, FunctionType):
                shown = inspect.signature(member)
                assert {"self", "asked"} & shown.parameters.keys(), f"{part}.{name}"
    assert "memory_id" in inspect.signature(Session.pin).parameters
    shown = pydoc.render_doc(Memory.archive_session, renderer=pydoc.plaintext)
    assert "archive_session(self, session_id: 'str', reason: 'str' = 'archived by hand'" in shown
    assert "Archive a session. Its memories are still found." in shown


def test_the_arguments_are_of_methods_that_there_are(tmp_path: Path) -> None:
    """And all of them are right: with a disk that is well, nobody complains of an argument."""
    objects = opened(tmp_path)
    for part, methods in ARGUMENTS.items():
        assert methods.keys() <= public(getattr(objects, part)), part
