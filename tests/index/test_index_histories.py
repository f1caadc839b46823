"""The index after any history of writers, editors and the filesystem equals a rebuilt one."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from derived_rows import contents
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from test_index import RECORD, Contents, break_file, mend_file, rebuilt, refresh_all, write_some

from smp_client import Memory, Session, SMPError
from smp_client.index.database import Index
from smp_client.index.take_in import rebuild

TURN = (
    b"## Turn %d - 2026-01-11 14:30:00\n**Speaker:** me\n**Memory-Refs:** [DEC-001]\n\n"
    b"typed %d\n\n---\n\n"
)
RECORDS = ("decisions.yaml", "findings.yaml", "conversation.md")
DELETED = ("decisions.yaml", "metadata.yaml", "agent-states/veritas.yaml", "artifacts/report.md",
           "conversation.md")  # fmt: skip
APPENDED = [RECORD, TURN, b"# a comment\n", b"\n", b"  - broken: [\n", b"    more: text\n",
            b"  - id: CUT", b"text goes on\n\n"]  # fmt: skip
CHOICES = st.integers(0, 99)


def without(contents: Contents, files: set[tuple[str, str]]) -> Contents:
    """Return all but the rows that come from these files, or depend on them."""
    kept = {name: [row for row in rows if row[:2] not in files] for name, rows in contents.items()}
    kept["sessions"] = [row for row in kept["sessions"] if (row[0], "metadata.yaml") not in files]
    scopes = {scope for scope, _ in files}
    kept["topics"] = [row for row in kept["topics"] if row[0] not in scopes]
    return kept


def decide_at_once(session: Session, text: str) -> None:
    with session.transaction() as tx:
        made = tx.record_decision(text, made_by="a")
        tx.add_turn("a", "decided", memory_refs=[made.id])


class Histories(RuleBasedStateMachine):
    """Writers, editors and the filesystem take turns. Seen to fail with a forgotten file's memories
    left behind, and with spans not moved by an edit before them."""

    def __init__(self) -> None:
        super().__init__()
        self.top = Path(tempfile.mkdtemp(prefix="smp-index-"))
        self.memory = Memory(self.top / "sessions")
        self.memory.create()
        self.active = self.memory.root / "active"
        self.index = Index.open(self.top / "index.db")
        self.number = self.steps = 0
        self.unreadable: dict[Path, str] = {}
        for _ in range(2):
            self.new_session()
        write_some(self.memory.sessions()[0])

    def teardown(self) -> None:
        self.index.close()
        shutil.rmtree(self.top)

    def next(self) -> int:
        self.number += 1
        return self.number

    def pick(self, choice: int) -> Session:
        sessions = self.memory.sessions()
        return sessions[choice % len(sessions)]

    def file(self, choice: int, names: tuple[str, ...] = RECORDS) -> Path | None:
        path = self.active / self.pick(choice).id / names[choice % len(names)]
        return path if path.is_file() and not path.is_symlink() else None

    # The library. It may refuse to write into a file that was broken by hand.

    @precondition(lambda self: len(self.memory.sessions()) < 4)
    @rule()
    def new_session(self) -> None:
        self.memory.create_session(id=f"s{self.next()}", topic="auth")

    @rule(choice=CHOICES, kind=st.integers(0, 9))
    def write(self, choice: int, kind: int) -> None:
        session, text = self.pick(choice), f"text {self.next()} ü"
        tags, refs = ["a", "a.b", f"typed{choice % 3}"], ["DEC-001"]
        said = f"{text}: a and b, typed{choice % 3}\n---\n## Turn 1"
        writes: tuple[Callable[[], object], ...] = (
            lambda: session.record_decision(text, made_by="architect", tags=tags),
            lambda: session.record_finding(text, discovered_by="b", tags=["b"], memory_refs=refs),
            lambda: session.add_turn("user", said, memory_refs=refs),
            lambda: session.record_learning(text, learned_by="veritas"),
            lambda: session.record_preference(text, topic="x"),
            lambda: self.memory.everywhere.record_pattern(text),
            lambda: session.save_agent_state("veritas", {"focus": text}),
            lambda: session.save_artifact("report", f"# {text}", tags=["r"]),
            lambda: session.update_metadata(context={"phase": text, "tags": ["said", text[:6]]}),
            lambda: decide_at_once(session, text),
        )
        with suppress(SMPError):
            writes[kind]()

    @rule(choice=CHOICES, other=CHOICES, how=st.sampled_from(["relate", "part", "prefer", "move"]))
    def end(self, choice: int, other: int, how: str) -> None:
        """Say that memories, also of other sessions, no longer hold, or hold again."""
        session, second = self.pick(choice), self.pick(other)
        with suppress(SMPError):
            if how == "relate":
                target = f"{second.id}/{'DEC' if other % 3 else 'FIND'}-001"
                session.relate("DEC-001", target, "supersedes" if other % 2 else "resolves")
            elif how == "part":
                made = session.records("relationship") + session.records("preference")
                session.delete([made[other % len(made)].id], reason="test") if made else None
            elif how == "prefer":
                topic = f"t{other % 2}"
                session.record_preference(f"p{self.next()}", topic=topic, confidence="explicit")
            else:
                session.update_metadata(context={"project_name": f"project {other % 2}"})

    # Hands.

    @rule(choice=CHOICES, what=st.sampled_from(APPENDED))
    def append_by_hand(self, choice: int, what: bytes) -> None:
        if path := self.file(choice):
            with path.open("ab") as file:
                file.write(what.replace(b"%d", b"%d" % self.next()))

    @rule(
        choice=CHOICES,
        old=st.sampled_from([b"text", b"veritas", b"a", b"\n", b"- id", b"version: 1", b"Turn"]),
        new=st.sampled_from([b"", b"TEXT", b"\r\n", b"longer than it was", b": ["]),
        rename=st.booleans(),
    )
    def edit(self, choice: int, old: bytes, new: bytes, *, rename: bool) -> None:
        if path := self.file(choice):
            target = path.with_name("edited~") if rename else path
            target.write_bytes(path.read_bytes().replace(old, new, 1 + choice % 3))
            target.rename(path)

    @rule(choice=CHOICES)
    def delete_file(self, choice: int) -> None:
        if path := self.file(choice, DELETED):
            path.unlink()

    @precondition(lambda self: len(self.memory.sessions()) > 2 and not self.unreadable)
    @rule(choice=CHOICES, how=st.sampled_from(["delete", "away", "rename"]))
    def move_session(self, choice: int, how: str) -> None:
        folder = self.active / self.pick(choice).id
        if how == "delete":
            shutil.rmtree(folder)
        else:
            folder.rename((self.top if how == "away" else self.active) / f"moved{self.next()}")

    @precondition(lambda self: not self.unreadable)
    @rule(choice=CHOICES, how=st.sampled_from(["directory", "link"]))
    def make_unreadable(self, choice: int, how: str) -> None:
        """With the index up to date, so that the memories that must stay are known."""
        if path := self.file(choice):
            self.refresh()
            break_file(path, how)
            self.unreadable[path] = how

    @precondition(lambda self: self.unreadable)
    @rule()
    def make_readable(self) -> None:
        while self.unreadable:
            mend_file(*self.unreadable.popitem())

    # The index.

    @invariant()
    def is_true_after_a_refresh(self) -> None:
        """After two steps of three, so that several changes meet as well."""
        self.steps += 1
        if self.steps % 3:
            self.refresh()

    def refresh(self) -> None:
        before = contents(self.index)["memories"]
        refresh_all(self.memory, self.index)
        held, fresh = contents(self.index), rebuilt(self.memory)
        broken = {key for key, state in self.index.files().items() if state.problem}
        assert without(held, broken) == without(fresh, broken)
        kept = [row for row in before if row[:2] in broken]
        assert [row for row in held["memories"] if row[:2] in broken] == kept
        assert refresh_all(self.memory, self.index) == 0

    @precondition(lambda self: not self.unreadable)
    @rule()
    def rebuild(self) -> None:
        rebuild(self.memory, self.index)
        assert contents(self.index) == rebuilt(self.memory)


# Without shrinking: a failure is read as it is, because making it smaller takes minutes.
Histories.TestCase.settings = settings(
    max_examples=4,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
TestHistories = Histories.TestCase
