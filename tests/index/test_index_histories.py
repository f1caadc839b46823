"""The index after any history of writers, editors and the filesystem: it is what a rebuild from
nothing gives."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
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


def without(contents: Contents, files: set[tuple[str, str]]) -> Contents:
    """All but what comes from these files."""
    kept = {name: [row for row in rows if row[:2] not in files] for name, rows in contents.items()}
    kept["sessions"] = [
        row for row in contents["sessions"] if (row[0], "metadata.yaml") not in files
    ]
    scopes = {scope for scope, _ in files}
    kept["mentions"] = [row for row in contents["mentions"] if row[0] not in scopes]
    return kept


class Histories(RuleBasedStateMachine):
    """Writers, editors and the filesystem take turns; after each refresh the index is what a
    rebuild gives.

    Seen to fail with a forgotten file's memories left behind, and with spans not moved by an edit
    before them."""

    def __init__(self) -> None:
        super().__init__()
        self.top = Path(tempfile.mkdtemp(prefix="smp-index-"))
        self.memory = Memory(self.top / "sessions", fsync="batch")
        self.memory.create()
        self.index = Index.open(self.top / "index.db")
        self.number = 0
        self.steps = 0
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

    @property
    def active(self) -> Path:
        return self.memory.root / "active"

    def pick(self, choice: int) -> Session | None:
        sessions = self.memory.sessions()
        return sessions[choice % len(sessions)] if sessions else None

    def file(
        self,
        choice: int,
        names: tuple[str, ...] = ("decisions.yaml", "findings.yaml", "conversation.md"),
    ) -> Path | None:
        session = self.pick(choice)
        path = self.active / session.id / names[choice % len(names)] if session else None
        return path if path and path.is_file() and not path.is_symlink() else None

    # The library.

    @precondition(lambda self: len(self.memory.sessions()) < 4)
    @rule()
    def new_session(self) -> None:
        self.memory.create_session(id=f"s{self.next()}", topic="auth")

    @rule(
        choice=st.integers(0, 99),
        kind=st.sampled_from(["decision", "finding", "turn", "learning", "preference", "pattern"]),
    )
    def record(self, choice: int, kind: str) -> None:
        session, text = self.pick(choice), f"text {self.next()} ü"
        if session is None:
            return
        with ignoring_refusals():
            if kind == "decision":
                session.record_decision(text, made_by="architect", tags=["a", "a.b"])
            elif kind == "finding":
                session.record_finding(
                    text, discovered_by="veritas", tags=["b"], memory_refs=["DEC-001"]
                )
            elif kind == "turn":
                session.add_turn("user", text + "\n---\n## Turn 1", memory_refs=["DEC-001"])
            elif kind == "learning":
                session.record_learning(text, learned_by="veritas")
            elif kind == "preference":
                session.record_preference(text, topic="x")
            else:
                self.memory.everywhere.record_pattern(text)

    @rule(
        choice=st.integers(0, 99),
        other=st.integers(0, 99),
        how=st.sampled_from(["relate", "part", "prefer", "rename"]),
    )
    def end(self, choice: int, other: int, how: str) -> None:
        """What says that memories, also of other sessions, no longer hold, or hold again."""
        session, second = self.pick(choice), self.pick(other)
        if session is None or second is None:
            return
        with ignoring_refusals():
            if how == "relate":
                relation = "supersedes" if other % 2 else "resolves"
                session.relate(
                    "DEC-001", f"{second.id}/{'DEC' if other % 3 else 'FIND'}-001", relation
                )
            elif how == "part":
                made = session.records("relationship") + session.records("preference")
                session.delete([made[other % len(made)].id], reason="test") if made else None
            elif how == "prefer":
                session.record_preference(
                    f"p{self.next()}", topic=f"t{other % 2}", confidence="explicit"
                )
            else:
                session.update_metadata(context={"project_name": f"project {other % 2}"})

    @rule(
        choice=st.integers(0, 99),
        memory_id=st.sampled_from(["DEC-001", "FIND-001", "turn-1", "DEC-002"]),
        pin=st.booleans(),
    )
    def change(self, choice: int, memory_id: str, pin: bool) -> None:
        if session := self.pick(choice):
            with ignoring_refusals():
                session.pin(memory_id) if pin else session.update(
                    memory_id, note=f"note {self.next()}"
                )

    @rule(choice=st.integers(0, 99))
    def save_files(self, choice: int) -> None:
        if session := self.pick(choice):
            with ignoring_refusals():
                session.save_agent_state("veritas", {"focus": f"f{self.next()}"})
                session.save_artifact("report", f"# {self.next()}", tags=["r"])
                session.update_metadata(context={"phase": f"p{self.number}"})

    @rule(choice=st.integers(0, 99))
    def commit(self, choice: int) -> None:
        if session := self.pick(choice):
            with ignoring_refusals(), session.transaction() as tx:
                made = tx.record_decision(f"d{self.next()}", made_by="a")
                tx.add_turn("a", "decided", memory_refs=[made.id])

    # Hands.

    @rule(
        choice=st.integers(0, 99),
        what=st.sampled_from(
            [
                RECORD,
                TURN,
                b"# a comment\n",
                b"\n",
                b"  - broken: [\n",
                b"    more: text\n",
                b"  - id: CUT",
                b"text goes on\n\n",
            ]
        ),
    )
    def append_by_hand(self, choice: int, what: bytes) -> None:
        if path := self.file(choice):
            with path.open("ab") as file:
                file.write(what.replace(b"%d", b"%d" % self.next()))

    @rule(
        choice=st.integers(0, 99),
        old=st.sampled_from([b"text", b"veritas", b"a", b"\n", b"- id", b"version: 1", b"Turn"]),
        new=st.sampled_from([b"", b"TEXT", b"\r\n", b"longer than it was", b": ["]),
        rename=st.booleans(),
    )
    def edit(self, choice: int, old: bytes, new: bytes, rename: bool) -> None:
        if path := self.file(choice):
            content = path.read_bytes().replace(old, new, 1 + choice % 3)
            if rename:
                path.with_name("edited~").write_bytes(content)
                path.with_name("edited~").rename(path)
            else:
                path.write_bytes(content)

    @rule(choice=st.integers(0, 99), share=st.floats(0.5, 1))
    def truncate(self, choice: int, share: float) -> None:
        if path := self.file(choice):
            os.truncate(path, int(path.stat().st_size * share))

    @rule(choice=st.integers(0, 99))
    def delete_file(self, choice: int) -> None:
        names = (
            "decisions.yaml",
            "metadata.yaml",
            "agent-states/veritas.yaml",
            "artifacts/report.md",
            "conversation.md",
        )
        if path := self.file(choice, names):
            path.unlink()

    @precondition(lambda self: len(self.memory.sessions()) > 2)
    @rule(choice=st.integers(0, 99))
    def delete_session(self, choice: int) -> None:
        if session := self.pick(choice):
            shutil.rmtree(self.active / session.id)
            self.unreadable = {
                path: how for path, how in self.unreadable.items() if session.id not in path.parts
            }

    @precondition(lambda self: len(self.memory.sessions()) > 2)
    @rule(choice=st.integers(0, 99), away=st.booleans())
    def move_session(self, choice: int, away: bool) -> None:
        session = self.pick(choice)
        if session and not any(session.id in path.parts for path in self.unreadable):
            place = self.top / f"gone{self.next()}" if away else self.active / f"moved{self.next()}"
            (self.active / session.id).rename(place)

    @precondition(lambda self: not self.unreadable)
    @rule(choice=st.integers(0, 99), how=st.sampled_from(["directory", "link"]))
    def make_unreadable(self, choice: int, how: str) -> None:
        """With the index up to date, so that what must stay of the file is known."""
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

    @rule()
    def reopen(self) -> None:
        self.index.close()
        self.index = Index.open(self.top / "index.db")

    @rule()
    def rebuild(self) -> None:
        if not self.unreadable:
            rebuild(self.memory, self.index)
            assert contents(self.index) == rebuilt(self.memory)


@contextmanager
def ignoring_refusals() -> Iterator[None]:
    """The library may refuse to write into a file that was broken by hand; the index must not
    care."""
    try:
        yield
    except SMPError:
        return


# Without shrinking: a failure is read as it is, because making it smaller takes minutes.
Histories.TestCase.settings = settings(
    max_examples=4,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
TestHistories = Histories.TestCase


@pytest.mark.slow
class TestManyHistories(Histories.TestCase):
    settings = settings(Histories.TestCase.settings, max_examples=12)
