"""The processes that the fault tests kill: a server that has everything imported, and forks a child for each run.

The test and the server talk in lines of JSON. A child waits until it is let go, so that strace can be attached to it first; it
says "done" after each write that was acknowledged, and "failed", with the name of the exception, after one that was not.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import stat
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import filelock  # noqa: F401  # late as well

import smp_client.disk.journal
import smp_client.disk.quarantine
import smp_client.index.topics
import smp_daemon.ingest.inbox
from smp_client import Memory, SMPError, StorageFailed

# Imported late, they would only make every run longer.
for _name in ("ask.asker", "change.restore", "disk.append", "exchange.gate", "passes.compaction", "passes.decay",
              "passes.purge", "session", "transaction"):  # fmt: skip
    import_module(f"smp_client.{_name}")

SESSION = "first"
COMMENT = b"# written by hand, and to be kept\n"

Action = Callable[[Memory], object]


def open_memory(root: Path, **options: Any) -> Memory:
    """With a clock that stands still, so that two runs of the same writes end in the same state."""
    return Memory(root, clock=lambda: datetime(2026, 1, 1, tzinfo=UTC), **options)


def build(root: Path) -> None:
    """The memory that every run starts from."""
    memory = open_memory(root)
    session = memory.create_session(id=SESSION, user="user-1", topic="faults")
    session.add_turn("user", "Let us see what survives.")
    for number in range(3):
        # Larger than anything that a write adds, so that a limit on the size of files can meet just this one.
        session.record_finding(f"finding {number} " + "with much to say " * 200, discovered_by="veritas", tags=["base"])
        session.record_decision(f"decision {number}", made_by="architect")
    session.save_agent_state("veritas", {"mood": "calm"})
    session.save_artifact("report", "# Before\n")
    for file in ("findings.yaml", "decisions.yaml"):
        path = root / "active" / SESSION / file
        path.write_bytes(COMMENT + path.read_bytes() + (COMMENT if file == "findings.yaml" else b""))


def commit(memory: Memory, mood: str = "busy") -> None:
    with memory.session(SESSION).transaction() as tx:
        finding = tx.record_finding("found in a transaction", discovered_by="veritas")
        tx.record_finding("found as well", discovered_by="veritas")
        decision = tx.record_decision("decided in a transaction", made_by="architect")
        tx.relate(decision.id, finding.id, "resolves")
        tx.update("DEC-002", confidence="low")
        tx.save_agent_state("veritas", {"mood": mood})
        tx.save_agent_state("newcomer", {"mood": "curious"})
        tx.save_artifact("report", f"# After, {mood}\n")


def delete(memory: Memory, *ids: str) -> None:
    done = memory.privacy.delete(SESSION, list(ids), reason="privacy")
    if done.problems:
        raise StorageFailed("; ".join(done.problems))  # what it says of itself when it could not do everything


OPERATIONS: dict[str, tuple[Action, ...]] = {
    "append": (
        lambda memory: memory.session(SESSION).record_finding("one more", discovered_by="veritas"),
        lambda memory: memory.session(SESSION).record_finding("and one more", discovered_by="veritas"),
        lambda memory: memory.session(SESSION).add_turn("user", "Noted."),
    ),
    "update": (
        lambda memory: memory.session(SESSION).update("FIND-002", severity="critical"),
        lambda memory: memory.session(SESSION).pin("DEC-001"),
    ),
    "save": (
        lambda memory: memory.session(SESSION).save_agent_state("veritas", {"mood": "busy"}),
        lambda memory: memory.session(SESSION).save_artifact("report", "# After\n"),
    ),
    "transaction": (commit,),
    "delete": (
        lambda memory: delete(memory, "DEC-003", "turn-1"),
        lambda memory: memory.session(SESSION).restore("turn-1"),
        lambda memory: memory.session(SESSION).restore("DEC-003"),
    ),
    "create_session": (lambda memory: memory.create_session(id="second", user="user-1"),),
}  # fmt: skip


SECRET = b"xylophone-Quetzalcoatl"


def delete_secret(root: Path, *, whole: bool) -> None:
    """Deletes, at a time whose deadline is over by now, what then stands everywhere where SMP may have a copy."""
    memory = open_memory(root)
    session = memory.session(SESSION)
    secret = session.record_finding(f"{SECRET.decode()} opens the vault", discovered_by="veritas", tags=["vault"])
    memory.search("vault")
    for said in (secret.text, f"once more: {secret.text}", "another matter"):
        smp_client.disk.quarantine.quarantine_bytes(session.scope, "findings.yaml", said.encode(), "torn")
    session.delete([secret.id, "DEC-001"], reason="privacy")
    open_later(root).session(SESSION).delete("DEC-002", reason="can still be restored")
    memory.search("vault")
    if whole:
        memory.delete_session(SESSION, reason="privacy")
    memory.close()


def purge(memory: Memory) -> None:
    outcome = memory.privacy.purge(force=True)
    memory.close()
    if outcome.problems:
        raise StorageFailed("; ".join(outcome.problems))  # what it says of itself when it could not do everything


def grow(memory: Memory) -> None:
    """What compaction can take out, in several files, said and found long ago; and indexes of it."""
    long_ago = open_memory(memory.root).session(SESSION)
    for number in range(8):
        long_ago.add_turn("user", f"This was said as number {number}. " + "And so on. " * 60)
    long_ago.pin("turn-5")
    for finding in ("FIND-001", "FIND-003"):
        long_ago.resolve_finding(finding, resolved_by="user", action_taken="none")
    long_ago.save_agent_state("veritas", {"mood": "busy"})
    memory.session(SESSION)._asker().ask(lambda view: smp_client.index.topics.write(memory, view.index, SESSION))


def compact(memory: Memory) -> None:
    done = memory.session(SESSION).compact(reduction_pct=100)
    if done.notes:
        raise StorageFailed("; ".join(done.notes))  # the session is smaller, but its metadata could not be written


# Of every kind, in its file and with what compaction holds.
FORGOTTEN = ("turn-3", "turn-6", "FIND-001", "FIND-002", "DEC-002", "veritas", "report")
FORGOTTEN_IN_ARCHIVE = ("turn-1", "FIND-002", "DEC-002", "veritas", "report")


def forget(memory: Memory, ids: tuple[str, ...] = FORGOTTEN) -> None:
    """All or none of them are deleted already."""
    if set(ids).isdisjoint(one.id for one in memory.privacy.deleted(SESSION)):
        delete(memory, *ids)


def remember(memory: Memory) -> None:
    """Each is where it was, or still deleted."""
    if left := [one.id for one in memory.privacy.deleted(SESSION)]:
        memory.privacy.restore(SESSION, list(dict.fromkeys(left)))


def pack_import(memory: Memory) -> None:
    """Write an import of two memories that the session does not have."""
    entries: list[dict[str, Any]] = [{"smp_export": 1}]
    entries.append({"entry": "session", "session": SESSION, "metadata": {}})
    for number in (1, 2):
        record = {"id": f"IMP-{number}", "learned_by": "ada", "learning": f"imported {number}"}
        entry = {"entry": "memory", "session": SESSION, "file": "learnings.yaml"}
        entries.append({**entry, "type": "learning", "record": record})
    entries.append({"entry": "end", "entries": len(entries) - 1})
    lines = "".join(f"{json.dumps(entry)}\n" for entry in entries)
    (memory.root / "incoming.jsonl").write_text(lines)


def take_over(memory: Memory) -> None:
    if problems := memory.exchange.import_(memory.root / "incoming.jsonl").problems:
        raise StorageFailed("; ".join(problems))


def drop(memory: Memory) -> None:
    inbox = memory.root / "active" / SESSION / "inbox"
    for number in (1, 2):
        said = f"type: learning\nlearned_by: ada\ntext: dropped {number}\n"
        (inbox / f"{number}.yaml").write_text(said)


def take_drops(memory: Memory) -> None:
    """Take in the drops as the daemon does."""
    waiting = smp_client.disk.quarantine.waiting(memory.tree, f"active/{SESSION}")
    drops = [*smp_daemon.ingest.inbox.take_in(memory.session(SESSION), waiting)]
    if left := [one.reason for one in drops if one.outcome != "taken"]:
        raise StorageFailed("; ".join(left))


# Each step is done at most once, so that it can be done again after a kill.
STEPS: dict[str, Action] = {
    "grow": grow, "compact": compact, "forget": forget, "remember": remember, "purge": purge,
    "pack_import": pack_import, "take_over": take_over, "drop": drop, "take_drops": take_drops,
    "decay": lambda memory: memory.session(SESSION).decay(),
    "bring_back": lambda memory: memory.session(SESSION).bring_back(),
    "archive": lambda memory: memory.sessions() and memory.archive_session(SESSION, "nobody needs it now"),
    "unarchive": lambda memory: memory.archived_sessions() and memory.restore_session(SESSION),
    "delete_whole": lambda memory: (memory.sessions() or memory.archived_sessions()) and memory.delete_session(SESSION, reason="x"),
    "undelete": lambda memory: memory.deleted_sessions() and memory.undelete_session(SESSION),
    "forget_in_archive": lambda memory: forget(memory, FORGOTTEN_IN_ARCHIVE),
    "delete_secret": lambda memory: delete_secret(memory.root, whole=False),
    "delete_secret_session": lambda memory: delete_secret(memory.root, whole=True),
}  # fmt: skip
# Each pass with its preparations: it is killed somewhere, and done again by whoever comes next.
PASSES = {name: [STEPS[step] for step in steps.split()] for name, steps in {
    "decay": "decay", "compact": "grow compact", "bring_back": "grow compact bring_back",
    "archive": "archive", "unarchive": "archive unarchive",
    "delete_session": "delete_whole", "undelete_session": "delete_whole undelete",
    "delete_archived": "archive delete_whole", "undelete_archived": "archive delete_whole undelete",
    "forget": "grow compact forget", "remember": "grow compact forget remember",
    "forget_in_archive": "archive forget_in_archive", "remember_in_archive": "archive forget_in_archive remember",
    "purge_memories": "delete_secret purge", "purge_session": "delete_secret_session purge",
    "take_over": "pack_import take_over", "take_drops": "drop take_drops",
}.items()}  # fmt: skip
# Imports: the source is in the tree itself, so that a copy of the tree has it too.
MOVES: dict[str, Action] = {
    "import": lambda memory: memory.exchange.import_(memory.root / "incoming.jsonl"),
    "import_layout": lambda memory: memory.exchange.import_(memory.root / "incoming"),
}


def open_later(root: Path) -> Memory:
    """The same memory after a while, at a moment that stands still as well."""
    return Memory(root, clock=lambda: datetime(2026, 3, 1, tzinfo=UTC))


def _without_journal() -> None:
    """Transactions that write their files one by one with no intent."""
    smp_client.disk.journal.record = lambda scope, steps: "none"  # type: ignore[assignment]
    smp_client.disk.journal.forget = lambda *_: None  # type: ignore[assignment]


def _without_fsync() -> None:
    """fsync that answers at once."""
    os.fsync = lambda descriptor: None  # type: ignore[assignment]


def _without_directories() -> None:
    """fsync of files alone: nobody syncs a directory in which something was renamed or removed."""
    fsync = os.fsync

    def of_files(descriptor: int) -> None:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            fsync(descriptor)

    os.fsync = of_files  # type: ignore[assignment]


def _deaf_to_fsync() -> None:
    """fsync whose failure nobody minds."""
    fsync = os.fsync

    def careless(descriptor: int) -> None:
        try:
            fsync(descriptor)
        except OSError:
            return

    os.fsync = careless  # type: ignore[assignment]


VARIANTS: dict[str, Callable[[], None]] = {
    "sound": lambda: None,
    "early acknowledgement": lambda: None,  # see perform
    "without journal": _without_journal,
    "without fsync": _without_fsync,
    "without fsync of directories": _without_directories,
    "deaf to fsync": _deaf_to_fsync,
}


def perform(operation: str, root: Path, variant: str, say: Callable[[str], object]) -> None:
    VARIANTS[variant]()
    memory = open_memory(root) if operation in OPERATIONS else open_later(root)
    for action in OPERATIONS.get(operation) or (MOVES.get(operation) or PASSES[operation][-1],):
        if variant == "early acknowledgement":
            say("done")
        try:
            action(memory)
        except SMPError as error:
            say(f"failed {type(error).__name__}")
            return
        if variant != "early acknowledgement":
            say("done")


def stream(root: Path, variant: str) -> None:
    """Writes on and on, saying after each write what must be there from now on."""
    VARIANTS[variant]()
    memory = open_memory(root)
    session = memory.session(SESSION)
    number = 0
    while True:
        number += 1
        _answer({"records": [session.record_finding(f"number {number}", discovered_by="veritas").id]})
        if number % 3 == 0:
            session.update("FIND-001", counted=number)
            _answer({"counted": number})
        if number % 4 == 0:
            with session.transaction() as tx:
                ids = [tx.record_finding(f"both {number}", discovered_by="veritas").id,
                       tx.record_decision(f"both {number}", made_by="architect").id]  # fmt: skip
                tx.save_artifact(f"both-{number}", f"{number}\n")
            _answer({"records": ids, "artifact": f"both-{number}"})
        if number % 5 == 0:
            _answer({"session": memory.create_session(user="user-1").id})


def _serve() -> None:
    while line := sys.stdin.readline():
        request = json.loads(line)
        go_out, go_in = os.pipe()
        # Not a pipe: what is said must get through where every write fails.
        said_out, said_in = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            _child(request, go_out, said_in)
        os.close(go_out)
        said_in.close()
        _answer({"pid": pid})
        sys.stdin.readline()
        os.write(go_in, b"!")
        os.close(go_in)
        with said_out, said_out.makefile() as heard:
            said = heard.read().splitlines()
        _, status = os.waitpid(pid, 0)
        _answer({"said": said, "status": os.waitstatus_to_exitcode(status)})


def _child(request: dict[str, Any], go: int, said: socket.socket) -> None:
    status = 70
    try:
        # Not a read: strace cannot be sure to count a call that it comes upon, and reads are counted.
        select.select([go], [], [])
        if limit := request.get("file_limit_bytes"):
            # With its default action the signal kills right behind the last byte that still fitted.
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL if request["limit_kills"] else signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        perform(request["operation"], Path(request["root"]), request["variant"], lambda text: said.send(f"{text}\n".encode()))
        status = 0
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(status)


def _answer(content: dict[str, Any]) -> None:
    print(json.dumps(content), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve()
    else:
        stream(Path(sys.argv[1]), sys.argv[2])
