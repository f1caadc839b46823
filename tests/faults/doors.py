"""The doors of the soak: drivers that work on one tree, each in its own way, until they are killed.

Everything that a driver does is forked from a process that has all modules loaded, so that a life
costs milliseconds. `Memory` numbers its own memories: a token stands once in the text of each.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import random
import select
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from death import Death, die_before
from forking import become
from ledger import (
    BROKEN,
    DELETED,
    DONE,
    KEPT,
    KILLED,
    PURGED,
    REFUSED,
    UNCLEAR,
    Book,
    Fate,
    Ledger,
    Operation,
)

from smp_client import Memory, MemoryNotFound, Record, Session, SMPError, TransactionPending
from smp_client.model.outcome import Outcome
from smp_client.model.policies import RetentionPolicy
from smp_client.passes.check import check
from smp_client.passes.tidy import tidy

SHARED = ("s0", "s1", "s2")  # everybody writes there
SMALL = "q0"  # with a small quota, so that it is compacted
EDITED = "e0"  # an editor saves one of its files
QUOTA_BYTES = 150_000
LONG_AGO = "2026-01-01T00:00:00Z"  # so that compaction may take it
PEOPLE = ("Anna Berg", "Tom Weller")
_DEATH_OF_PARENT = 1  # PR_SET_PDEATHSIG
_ANSWER_S = 60.0

_write = os.write  # to a pipe, which is no change of the disk

Names = Mapping[str, str]


class NotDone(Exception):
    """Somebody who writes without SMP could not do it."""


class Unclear(Exception):
    """Nobody knows whether it was done: the process that did it was killed."""


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_DEATH_OF_PARENT, signal.SIGKILL)


def some_change(chance: random.Random, most: int) -> int:
    """Return after how many changes to die: small numbers as often as large ones."""
    return int(math.exp(chance.uniform(0, math.log(most))))


@dataclass(frozen=True)
class Life:
    """One life of a driver: where it works, and what is known of the lives before."""

    root: Path
    slot: str
    number: int
    chance: random.Random
    book: Book
    ledger: Ledger

    @property
    def scratch(self) -> Path:
        """A directory outside the tree."""
        return self.root.parent


class Driver(ABC):
    """Does one operation after the other, and notes each in the ledger."""

    door = ""
    mortality = 0.06  # how many operations end with the death of the driver
    life_s = 1.0  # after which it is killed, on the average
    rest_s = 0.03  # at the most, between two operations

    def __init__(self, life: Life) -> None:
        self.life = life
        self.chance = life.chance
        self.memory = Memory(life.root)
        self._death = Death()
        self._count = 0

    @abstractmethod
    def act(self) -> None:
        """Do one operation."""

    def run(self) -> NoReturn:
        while True:
            self.act()
            self.life.book.catch_up()
            time.sleep(self.chance.uniform(0, self.rest_s))

    def token(self) -> str:
        self._count += 1
        return f"tok-{self.life.slot}-{self.life.number}-{self._count}x"

    def session(self) -> str:
        return self.chance.choice(SHARED)

    def some(self, fates: Sequence[Fate], most: int = 1) -> list[Fate]:
        count = min(len(fates), self.chance.randint(1, most))
        return self.chance.sample(fates, count)

    def attempt(self, operation: Operation, act: Callable[[], Names | None]) -> bool:
        """Do an operation between its two lines in the ledger. Return whether it was done."""
        self.life.ledger.begin(operation)
        if self.chance.random() < self.mortality:
            self._death.arm(some_change(self.chance, 120))
        names: Names = {}
        outcome = DONE
        said = ""
        try:
            names = act() or {}
        except TransactionPending as error:
            said = str(error)  # it is recorded, so it happens
        except (SMPError, NotDone) as error:
            # A purge deletes a memory first.
            outcome = UNCLEAR if operation.verb == "purge" else REFUSED
            said = repr(error)
        except Unclear as error:
            outcome = UNCLEAR
            said = str(error)
        except Exception as error:
            outcome = BROKEN
            said = f"{type(error).__name__}: {error}"
        self._death.arm(None)
        self.life.ledger.end(outcome, names, said)
        if outcome == REFUSED:
            time.sleep(self.chance.uniform(0, 0.1))  # the session may be away
        return outcome == DONE

    def do(self, verb: str, act: Callable[[], object], session: str = "") -> bool:
        """Do something that leaves every memory where it is."""

        def done() -> None:
            act()

        return self.attempt(Operation(self.door, verb, session=session), done)

    def on(self, verb: str, fates: Sequence[Fate], **how: int) -> Operation:
        tokens = tuple(fate.token for fate in fates)
        return Operation(self.door, verb, tokens, fates[0].session, **how)


def whole(outcome: Outcome) -> None:
    """Raise where an outcome names problems: then some of it may not have happened."""
    if outcome.problems:
        raise Unclear("; ".join(outcome.problems))


class Library(Driver):
    """A program that uses the library."""

    door = "library"

    def act(self) -> None:
        acts = [self.create, self.together, self.change, self.relate, self.save, self.read_back]
        self.chance.choices(acts, weights=[50, 12, 15, 8, 8, 7])[0]()

    def create(self) -> None:
        token = self.token()
        name = self.chance.choice((*SHARED, SMALL))
        operation = Operation(self.door, "create", (token,), name)
        self.attempt(operation, lambda: {token: self.written(name, f"We noted {token} v0.")})

    def written(self, name: str, text: str) -> str:
        session = self.memory.session(name)
        kind = self.chance.randrange(5)
        record: Record
        if kind == 0:
            record = session.record_decision(text, made_by="Anna Berg", tags=["soak"])
        elif kind == 1:
            record = session.record_finding(text, discovered_by="Tom Weller", severity="low")
        elif kind == 2:
            record = session.record_preference(text, topic="soaking")
        elif kind == 3:
            record = session.record_learning(text, learned_by="Anna Berg", timestamp=LONG_AGO)
        else:
            long = f"{text} " + "And so on. " * self.chance.randrange(20)
            record = session.add_turn("user", long, timestamp=LONG_AGO)
        return f"{record.session}/{record.id}"

    def together(self) -> None:
        tokens = (self.token(), self.token(), self.token())
        name = self.session()

        def commit() -> Names:
            with self.memory.session(name).transaction() as transaction:
                one = transaction.record_finding(f"We found {tokens[0]} v0.", discovered_by="a")
                two = transaction.record_decision(f"We chose {tokens[1]} v0.", made_by="a")
                three = transaction.add_turn("user", f"We said {tokens[2]} v0.")
                transaction.relate(two.id, one.id, "resolves")
            records = (one, two, three)
            return {token: f"{name}/{one.id}" for token, one in zip(tokens, records, strict=True)}

        self.attempt(Operation(self.door, "create", tokens, name, together=True), commit)

    def change(self) -> None:
        changeable = [one for one in self.life.book.kept() if not one.id.startswith("turn-")]
        if not changeable:
            return
        fate = self.chance.choice(changeable)
        version = fate.latest_version + 1
        text = f"We changed {fate.token} v{version}."

        def update() -> None:
            session = self.memory.session(fate.session)
            field = session.kind_of_record(fate.id).text
            session.update(fate.id, **{field: text})

        self.attempt(self.on("update", [fate], version=version), update)

    def relate(self) -> None:
        """Resolve, supersede and pin: none of that moves a memory."""
        fates = self.life.book.kept()
        same = [one for one in fates if fates and one.session == fates[0].session]
        if len(same) < 2:
            return
        new, old = self.chance.sample(same, 2)
        findings = [one for one in same if one.id.startswith("FIND-")]

        def session() -> Session:
            return self.memory.session(new.session)

        which = self.chance.randrange(3)
        if which == 0:
            self.do("supersede", lambda: session().supersede(old.id, by=new.id))
        elif which == 1:
            self.do("pin", lambda: session().pin(old.id))
        elif findings:
            resolved = {"resolved_by": "a", "action_taken": "mended"}
            self.do("resolve", lambda: session().resolve_finding(findings[0].id, **resolved))

    def save(self) -> None:
        token = self.token()
        name = self.session()
        text = f"We wrote {token} v0.\n"
        artifact = f"artifact-{token[4:]}"

        def saved() -> Names:
            self.memory.session(name).save_artifact(artifact, text)
            return {token: f"{name}/{artifact}"}

        self.attempt(Operation(self.door, "create", (token,), name), saved)
        agent = f"agent-{self.life.slot}"
        state = {"life": self.life.number, "count": self._count}
        self.do("state", lambda: self.memory.session(name).save_agent_state(agent, state))

    def read_back(self) -> None:
        """A memory that was acknowledged can be read, unless its session is away."""
        if not (fates := self.life.book.kept()):
            return
        fate = self.chance.choice(fates)

        def read() -> None:
            session = self.memory.session(fate.session)
            try:
                if fate.id.startswith("artifact-"):
                    session.artifact(fate.id)
                else:
                    session.get(fate.id)
            except MemoryNotFound as error:
                raise AssertionError(f"{fate.name} cannot be read: {error}") from error

        self.do("read", read)


class Eraser(Library):
    """Deletes, restores, purges and anonymises memories of its own."""

    door = "erasure"
    mortality = 0.1
    life_s = 15.0  # a purge waits for the grace of old versions

    def act(self) -> None:
        acts = [self.create, self.delete, self.restore, self.purge, self.doom, self.anonymise]
        self.chance.choices(acts, weights=[50, 18, 14, 10, 6, 4])[0]()

    def of_one_session(self, places: set[str], most: int) -> list[Fate]:
        fates = [one for one in self.life.book.of(places) if one.name]
        if not fates:
            return []
        session = self.chance.choice(fates).session
        return self.some([one for one in fates if one.session == session], most)

    def delete(self) -> None:
        if not (fates := self.of_one_session({KEPT}, 3)):
            return
        ids = [fate.id for fate in fates]
        session = fates[0].session

        def delete() -> None:
            whole(self.memory.privacy.delete(session, ids, reason="soak"))

        self.attempt(self.on("delete", fates, together=True), delete)

    def restore(self) -> None:
        if not (fates := self.of_one_session({DELETED}, 3)):
            return
        ids = [fate.id for fate in fates]
        session = fates[0].session

        def restore() -> None:
            whole(self.memory.privacy.restore(session, ids))

        self.attempt(self.on("restore", fates, together=True), restore)

    def purge(self) -> None:
        if not (fates := self.of_one_session(self.chance.choice([{KEPT}, {DELETED}]), 2)):
            return
        ids = [fate.id for fate in fates]
        session = fates[0].session

        def purge() -> None:
            whole(self.memory.privacy.purge_now(session, ids))

        self.attempt(self.on("purge", fates), purge)

    def doom(self) -> None:
        """Delete memories whose deadline has passed at once, and purge what is overdue."""
        overdue = self.memory.with_options(retention=RetentionPolicy(deleted_days=0.0))
        if fates := self.of_one_session({KEPT}, 3):
            ids = [fate.id for fate in fates]
            session = fates[0].session

            def delete() -> None:
                whole(overdue.privacy.delete(session, ids, reason="soak"))

            self.attempt(self.on("doom", fates), delete)
            self.life.book.catch_up()
        # A purge of a memory that was cut off has the same two fates, and a later deadline.
        dooming = {fate.name for fate in fates or ()}
        doomed = [one for one in self.life.book.of({DELETED, PURGED}) if one.name in dooming]
        if not doomed:
            return

        def purge() -> None:
            whole(self.memory.privacy.purge(force=True))

        self.attempt(self.on("purge", doomed), purge)

    def anonymise(self) -> None:
        name = self.session()
        if self.chance.random() < 0.6:
            self.do("anonymise", lambda: self.memory.privacy.anonymize(name))
            return

        def undo() -> None:
            undone = [one for one in self.memory.privacy.deleted(name) if one.place == "undo"]
            if undone:
                self.memory.privacy.restore(name, batch=self.chance.choice(undone).batch)

        self.do("undo", undo)


class Mover(Driver):
    """Archives and deletes whole sessions, and brings them back."""

    door = "move"
    mortality = 0.2
    life_s = 4.0

    def __init__(self, life: Life) -> None:
        super().__init__(life)
        self.bring_back()

    def act(self) -> None:
        name = self.chance.choice((*SHARED, SMALL, EDITED))
        if self.chance.random() < 0.5:
            self.do("archive", lambda: self.memory.archive_session(name))
        else:
            self.do("delete session", lambda: self.memory.delete_session(name, reason="soak"))
        time.sleep(self.chance.uniform(0, 0.3))
        self.bring_back()
        time.sleep(self.chance.uniform(0, 0.5))

    def bring_back(self) -> None:
        away: list[str] = []
        gone: list[str] = []
        self.do("list", lambda: away.extend(one.session for one in self.memory.archived_sessions()))
        self.do("list", lambda: gone.extend(one.session for one in self.memory.deleted_sessions()))
        for name in (*SHARED, SMALL, EDITED):
            if name in away:
                self.do("unarchive", partial(self.memory.restore_session, name))
            if name in gone:
                self.do("undelete session", partial(self.memory.undelete_session, name))


class Keeper(Driver):
    """Compaction, decay, tidying and questions, as a person runs them beside the daemon."""

    door = "upkeep"
    mortality = 0.15
    life_s = 4.0

    def act(self) -> None:
        name = self.chance.choice((*SHARED, SMALL))
        acts: dict[str, Callable[[], object]] = {
            "compact": lambda: self.session_of(name).compact(reduction_pct=20),
            "bring back": lambda: self.session_of(name).bring_back(),
            "decay": lambda: self.session_of(self.chance.choice((name, EDITED))).decay(),
            "repair": lambda: self.session_of(name).repair(),
            "tidy": lambda: tidy(self.memory),
            "check": lambda: check(self.memory),
            "search": lambda: self.memory.search("noted"),
            "context": lambda: self.memory.context(),
            "timeline": lambda: self.memory.timeline(),
        }
        weights = [25, 15, 20, 4, 8, 3, 10, 6, 9]
        verb = self.chance.choices([*acts], weights=weights)[0]
        self.do(verb, acts[verb])

    def session_of(self, name: str) -> Session:
        return self.memory.session(name)


class Dropper(Driver):
    """A program that drops files into the inbox."""

    door = "inbox"
    rest_s = 0.2  # it costs so little that the other doors would be hit less

    def act(self) -> None:
        token = self.token()
        name = self.session()
        text = f"We dropped {token} v0."
        ending, content = self.chance.choice(
            [
                ("yaml", f"type: preference\npreference: {text}\nconfidence: explicit\n"),
                ("json", json.dumps({"type": "decision", "decision": text, "made_by": "a"})),
                ("md", f"---\ntype: learning\nlearned_by: a\n---\n{text}\n"),
            ]
        )
        inbox = self.life.root / "active" / name / "inbox"
        operation = Operation(self.door, "create", (token,), name)
        self.attempt(operation, lambda: self.drop(inbox, f"{token}.{ending}", content))

    def drop(self, inbox: Path, name: str, content: str) -> None:
        try:
            temporary = inbox / f".{name}.tmp"
            temporary.write_text(content)
            temporary.rename(inbox / name)
        except OSError as error:
            raise NotDone(str(error)) from error


class Shell(Driver):
    """`>>` with no lock, also through a descriptor that stays open for a while."""

    door = "append"
    rest_s = 0.2  # it costs so little that the other doors would be hit less

    def act(self) -> None:
        name = self.session()
        path = self.life.root / "active" / name / "decisions.yaml"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        except OSError:
            return  # the session is away
        for _ in range(self.chance.choice([1, 1, 1, 4])):
            token = self.token()
            record = (
                f"  - id: HAND-{token[4:]}\n    timestamp: 2026-01-01T00:00:00Z\n"
                f"    made_by: Anna Berg\n    decision: We typed {token} v0.\n"
            )

            def append(record: bytes = record.encode()) -> None:
                os.write(descriptor, record)

            self.attempt(Operation(self.door, "create", (token,), name), append)
            time.sleep(self.chance.uniform(0, 0.2))
        os.close(descriptor)


class Editor(Driver):
    """An editor: reads a file, changes it, and renames a new one over it."""

    door = "editor"
    rest_s = 0.2  # it costs so little that the other doors would be hit less

    def act(self) -> None:
        path = self.life.root / "active" / EDITED / "learnings.yaml"
        fates = self.life.book.of({KEPT})
        if not fates or self.chance.random() < 0.5:
            token = self.token()
            record = f"  - id: ED-{token[4:]}\n    learning: We edited {token} v0.\n"
            operation = Operation(self.door, "create", (token,), EDITED)
            self.attempt(operation, lambda: self.save(path, lambda old: old + record))
            return
        fate = self.chance.choice(fates)
        version = fate.latest_version + 1
        said = fate.token

        def changed(old: str) -> str:
            before, _, after = old.partition(f"{said} v")
            rest = after.lstrip("0123456789")
            return f"{before}{said} v{version}{rest}" if after else old

        operation = self.on("update", [fate], version=version)
        self.attempt(operation, lambda: self.save(path, changed))

    def save(self, path: Path, change: Callable[[str], str]) -> None:
        temporary = path.with_name(f".{path.name}.swp")
        try:
            old = path.read_text()
            new = change(old)
            if new == old:
                raise NotDone("it does not stand there")
            temporary.write_text(new)
            temporary.rename(path)
        except OSError as error:
            raise NotDone(str(error)) from error


class Porter(Driver):
    """Imports memories, repeats imports that were cut off, and imports old exports again."""

    door = "import"
    mortality = 0.1
    life_s = 4.0

    def act(self) -> None:
        waiting = sorted(self.life.scratch.glob(f"import-{self.life.slot}-*.jsonl"))
        which = self.chance.random()
        if waiting and which < 0.4:
            self.take_in(waiting[0])
        elif which < 0.8:
            self.take_in(self.source())
        elif which < 0.9:
            self.do("export", self.export)
        else:
            self.do("import old", self.import_old)

    def source(self) -> Path:
        """Write the file of an import: some memories of one session."""
        tokens = [self.token() for _ in range(self.chance.randint(1, 6))]
        name = self.session()
        entries: list[dict[str, Any]] = [{"smp_export": 1}]
        entries.append({"entry": "session", "session": name, "metadata": {}})
        for token in tokens:
            record = {"id": f"IMP-{token[4:]}", "timestamp": LONG_AGO, "learned_by": "a"}
            record["learning"] = f"We imported {token} v0."
            memory = {"entry": "memory", "session": name, "file": "learnings.yaml"}
            entries.append({**memory, "type": "learning", "record": record})
        entries.append({"entry": "end", "entries": len(entries) - 1})
        path = self.life.scratch / f"import-{self.life.slot}-{self.life.number}-{self._count}.jsonl"
        path.with_suffix(".part").write_text("".join(f"{json.dumps(one)}\n" for one in entries))
        return path.with_suffix(".part").rename(path)

    def take_in(self, path: Path) -> None:
        entries = [json.loads(line) for line in path.read_text().splitlines()]
        records = [one["record"] for one in entries if one.get("entry") == "memory"]
        name = entries[1]["session"]
        tokens = tuple(f"tok-{record['id'].removeprefix('IMP-')}" for record in records)

        def take_in() -> Names:
            outcome = self.memory.exchange.import_(path)
            whole(outcome)
            if outcome.counts["added"] + outcome.counts["known"] != len(tokens):
                raise Unclear(f"{dict(outcome.counts)}")
            ids = (record["id"] for record in records)
            return {token: f"{name}/{one}" for token, one in zip(tokens, ids, strict=True)}

        if self.attempt(Operation(self.door, "create", tokens, name), take_in):
            path.unlink()

    def export(self) -> None:
        target = self.life.scratch / f"export-{self.chance.randrange(4)}.jsonl"
        self.memory.exchange.export(target, overwrite=True)

    def import_old(self) -> None:
        """Nothing that was deleted or purged since comes back."""
        if exports := sorted(self.life.scratch.glob("export-*.jsonl")):
            self.memory.exchange.import_(self.chance.choice(exports))


class Victim(Library):
    """Makes sessions, fills them through several doors, and purges them whole."""

    door = "purge session"
    mortality = 0.1
    life_s = 15.0  # a purge waits for the grace of old versions
    bare_writes = True  # also writes without SMP

    def act(self) -> None:
        living = {fate.session for fate in self.life.book.of({KEPT})}
        if living and self.chance.random() < 0.5:
            self.end(self.chance.choice(sorted(living)))
        else:
            self.begin()

    def begin(self) -> None:
        self._count += 1
        name = f"v-{self.life.number}-{self._count}"
        if not self.do("create session", lambda: self.memory.create_session(id=name)):
            return
        for _ in range(self.chance.randint(1, 4)):
            token = self.token()
            text = f"We noted {token} v0."
            operation = Operation(self.door, "create", (token,), name)
            which = self.chance.randrange(4) if self.bare_writes else 3
            if which == 0:
                self.attempt(operation, partial(self.drop, name, text))
            elif which == 1:
                self.attempt(operation, partial(self.type, name, text))
            else:
                self.attempt(operation, partial(self.noted, token, name, text))

    def noted(self, token: str, name: str, text: str) -> Names:
        return {token: self.written(name, text)}

    def drop(self, name: str, text: str) -> None:
        inbox = self.life.root / "active" / name / "inbox"
        try:
            (inbox / ".new").write_text(f"type: learning\nlearned_by: a\ntext: {text}\n")
            (inbox / ".new").rename(inbox / f"{self._count}.yaml")
        except OSError as error:
            raise NotDone(str(error)) from error

    def type(self, name: str, text: str) -> None:
        path = self.life.root / "active" / name / "decisions.yaml"
        record = f"  - id: HAND-{self._count}\n    made_by: a\n    decision: {text}\n"
        try:
            with path.open("ab", buffering=0) as file:
                file.write(record.encode())
        except OSError as error:
            raise NotDone(str(error)) from error

    def end(self, name: str) -> None:
        fates = [one for one in self.life.book.fates.values() if one.session == name]
        if self.chance.random() < 0.3:
            self.do("archive", lambda: self.memory.archive_session(name))
        overdue = self.memory.with_options(retention=RetentionPolicy(deleted_days=0.0))
        if self.chance.random() < 0.4:

            def delete() -> None:
                overdue.delete_session(name, reason="soak")

            self.attempt(self.on("doom", fates), delete)

        def purge() -> None:
            whole(self.memory.privacy.purge_now(name))

        self.attempt(self.on("purge", fates), purge)


# Doors that are processes of their own.


class Command(Driver):
    """The `smp` command."""

    door = "command"
    mortality = 0.0  # the command dies
    life_s = 40.0  # so that most purges come to their end

    def act(self) -> None:
        acts = [self.add, self.change, self.delete, self.restore, self.purge, self.compact]
        self.chance.choices([*acts, self.other], weights=[32, 8, 8, 6, 18, 18, 10])[0]()

    def smp(self, *arguments: str) -> str:
        """Run the command, which may die at any change. Return its output."""
        out = self.life.scratch / f"out-{self.life.slot}"
        err = self.life.scratch / f"err-{self.life.slot}"
        with out.open("w+b") as said, err.open("w+b") as complained:
            pid = os.fork()
            if pid == 0:
                die_with_parent()
                if self.chance.random() < 0.2:
                    die_before(some_change(self.chance, 300))
                streams = [os.open(os.devnull, os.O_RDONLY), said.fileno(), complained.fileno()]
                called = [*arguments, "--root", str(self.life.root)]
                become(called, streams, str(self.life.scratch), os.environ.copy())
            self.chance.random()  # each child has other chances
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            said.seek(0)
            complained.seek(0)
            output = said.read().decode()
            problem = complained.read().decode()
        if code == -signal.SIGKILL:
            raise Unclear(KILLED)
        if "Traceback" in problem:
            raise AssertionError(problem)
        if code:
            raise NotDone(problem)
        return output

    def add(self) -> None:
        token = self.token()
        name = self.session()
        kind = self.chance.choice(["decision", "finding", "learning", "turn"])

        def add() -> Names:
            said = self.smp("add", name, kind, f"We noted {token} v0.", "--by", "Anna Berg")
            return {token: f"{name}/{said.strip()}"}

        self.attempt(Operation(self.door, "create", (token,), name), add)

    def change(self) -> None:
        fates = [one for one in self.life.book.kept() if not one.id.startswith("turn-")]
        if not fates:
            return
        fate = self.chance.choice(fates)
        version = fate.latest_version + 1
        text = f"We changed {fate.token} v{version}."

        def update() -> None:
            self.smp("update", fate.session, fate.id, "--text", text)

        self.attempt(self.on("update", [fate], version=version), update)

    def on_one(self, place: str, verb: str, *words: str) -> None:
        fates = [one for one in self.life.book.of({place}) if one.name]
        if not fates:
            return
        fate = self.chance.choice(fates)

        def call() -> None:
            self.smp(words[0], fate.session, fate.id, *words[1:])

        self.attempt(self.on(verb, [fate]), call)

    def delete(self) -> None:
        self.on_one(KEPT, "delete", "delete", "--reason", "soak", "--yes")

    def restore(self) -> None:
        self.on_one(DELETED, "restore", "restore")

    def purge(self) -> None:
        place = self.chance.choice([KEPT, DELETED])
        self.on_one(place, "purge", "purge", "--now", "--yes")

    def compact(self) -> None:
        name = self.chance.choice((*SHARED, SMALL))
        if self.chance.random() < 0.7:
            self.do("compact", lambda: self.smp("compact", name, "--reduce", "5"))
        else:
            self.do("bring back", lambda: self.smp("compact", name, "--bring-back"))

    def other(self) -> None:
        name = self.session()
        calls = [
            ("decay",),
            ("archive", name),
            ("unarchive", name),
            ("delete", name, "--whole", "--reason", "soak", "--yes"),
            ("restore", name),
            ("search", "noted"),
            ("context",),
            ("sessions",),
            ("check",),
            ("anonymize", name, "--yes"),
        ]
        call = self.chance.choice(calls)
        self.do(call[0], lambda: self.smp(*call))
        if call[0] in ("archive", "delete"):
            back = "unarchive" if call[0] == "archive" else "restore"
            self.do(back, lambda: self.smp(back, name))


class Agent(Driver):
    """An agent that records over MCP, with servers that are killed."""

    door = "mcp"
    mortality = 0.0  # the server dies
    life_s = 40.0

    def __init__(self, life: Life) -> None:
        super().__init__(life)
        self._server: Server | None = None

    def act(self) -> None:
        acts = [self.record, self.change, self.forget, self.ask, self.purge]
        self.chance.choices(acts, weights=[55, 15, 12, 12, 6])[0]()

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        if self._server is None:
            self._server = Server(self.life)
        try:
            return self._server.call(tool, arguments)
        except Unclear:
            self._server.end()
            self._server = None
            raise

    def record(self) -> None:
        token = self.token()
        text = f"We noted {token} v0."
        kind = self.chance.choice(["decision", "finding", "learning", "preference"])

        def record() -> Names:
            return {token: str(self.call("memory_record", kind=kind, text=text)["id"])}

        self.attempt(Operation(self.door, "create", (token,)), record)

    def change(self) -> None:
        if not (fates := self.life.book.kept()):
            return
        fate = self.chance.choice(fates)
        version = fate.latest_version + 1
        text = f"We changed {fate.token} v{version}."

        def update() -> None:
            self.call("memory_update", id=fate.name, text=text)

        self.attempt(self.on("update", [fate], version=version), update)

    def forget(self) -> None:
        if not (fates := self.life.book.kept()):
            return
        fate = self.chance.choice(fates)

        def forget() -> None:
            said = self.call("memory_forget", ids=[fate.name], reason="soak")
            if said.get("problems"):
                raise Unclear(str(said))

        self.attempt(self.on("delete", [fate]), forget)

    def ask(self) -> None:
        self.do("search", lambda: self.call("memory_search", query="noted"))

    def purge(self) -> None:
        """Purge a whole session that a server made."""
        if not (fates := self.life.book.kept()):
            return
        session = self.chance.choice(fates).name.partition("/")[0]
        known = [one for one in self.life.book.fates.values() if one.name]
        there = [one for one in known if one.name.startswith(f"{session}/")]

        def purge() -> None:
            whole(self.memory.privacy.purge_now(session))

        self.attempt(self.on("purge", there), purge)


class Server:
    """An MCP server of its own process, and what a client says to it over pipes."""

    def __init__(self, life: Life) -> None:
        self._number = 0
        given, give = os.pipe()
        take, taken = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            die_with_parent()
            os.close(give)
            os.close(take)
            if life.chance.random() < 0.3:
                die_before(some_change(life.chance, 1000))
            log = os.open(life.scratch / "mcp.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            called = ["mcp", "--root", str(life.root), "--directory", str(life.scratch)]
            become(called, [given, taken, log], str(life.scratch), os.environ.copy())
        life.chance.random()
        os.close(given)
        os.close(taken)
        self._give = give
        self._take = take
        self._rest = b""
        about = {"name": "soak", "version": "1"}
        hello = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": about}
        try:
            self._ask("initialize", hello)
            self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        except Unclear as error:
            self.end()
            raise NotDone("the server died before it was asked") from error

    def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        answer = self._ask("tools/call", {"name": tool, "arguments": dict(arguments)})
        if "error" in answer:
            raise AssertionError(f"{tool}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        if result.get("isError"):
            said = result["content"][0]["text"]
            if "failed inside" in said:
                raise AssertionError(said)
            raise NotDone(said)
        found: dict[str, Any] = result.get("structuredContent") or {}
        return found

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._give)
        os.close(self._take)

    def _ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self._number += 1
        asked = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": dict(params)}
        self._send(asked)
        while True:
            answer: dict[str, Any] = json.loads(self._line())
            if answer.get("id") == self._number:
                return answer

    def _send(self, message: Mapping[str, Any]) -> None:
        try:
            _write(self._give, json.dumps(message).encode() + b"\n")
        except BrokenPipeError as error:
            raise Unclear(KILLED) from error

    def _line(self) -> bytes:
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._take], [], [], _ANSWER_S)
            if not ready:
                raise AssertionError(f"no answer within {_ANSWER_S:.0f} s")
            piece = os.read(self._take, 1 << 16)
            if not piece:
                raise Unclear(KILLED)
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line


DOORS: dict[str, type[Driver]] = {
    "lib": Library,
    "libb": Library,
    "era": Eraser,
    "erab": Eraser,
    "mov": Mover,
    "kee": Keeper,
    "keeb": Keeper,
    "dro": Dropper,
    "she": Shell,
    "edi": Editor,
    "por": Porter,
    "vic": Victim,
    "cmd": Command,
    "cmdb": Command,
    "mcp": Agent,
    "mcpb": Agent,
}
# Few processes that only append, so that the slow doors are hit: commands, servers and purges.
SLOW_DOORS: dict[str, type[Driver]] = {
    "lib": Library,
    "libb": Library,
    "era": Eraser,
    "mov": Mover,
    "kee": Keeper,
    **{f"cmd{letter}": Command for letter in "abcd"},
    **{f"mcp{letter}": Agent for letter in "abcd"},
}


def live(life: Life) -> NoReturn:
    """Be a driver until somebody kills it, or it dies at a change of the disk."""
    try:
        die_with_parent()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        (DOORS | SLOW_DOORS)[life.slot](life).run()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(1)
