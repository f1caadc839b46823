"""Histories of all verbs, with crashes: each memory is always in one place, or purged."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from test_crash import SESSION, crash_after

from smp_client import Memory, SMPError
from smp_client.change.holdings import EVERY, Holding, holdings
from smp_client.disk.session_files import METADATA
from smp_client.passes.tidy import tidy


def text_of(one: Holding) -> str:
    return str(one.value.get("decision") or one.value.get("content") or "")


def later(memory: Memory) -> Memory:
    """So much later that everything has decayed."""
    return Memory(memory.root, clock=lambda: datetime.now(UTC) + timedelta(days=2000))


VERBS: dict[str, Callable[[Memory], Any]] = {
    "delete odd": lambda memory: memory.privacy.delete(SESSION, topic="odd", reason="test"),
    "anonymise": lambda memory: memory.privacy.anonymize(SESSION),  # `restore` undoes it
    "compact": lambda memory: later(memory).session(SESSION).compact(reduction_pct=100),
    "bring back": lambda memory: memory.session(SESSION).bring_back(),
    "archive": lambda memory: memory.archive_session(SESSION),
    "unarchive": lambda memory: memory.restore_session(SESSION),
    "delete the session": lambda memory: memory.delete_session(SESSION, reason="test"),
    "undelete the session": lambda memory: memory.undelete_session(SESSION),
}


class History(RuleBasedStateMachine):
    """A session with everything that can happen to it."""

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        self.root = Path(self._directory.name) / "sessions"
        self.memory = Memory(self.root)
        self.known: set[str] = set()  # the texts of memories that were acknowledged
        self.purged: set[str] = set()
        self.number = 0

    def teardown(self) -> None:
        self.memory.close()
        self._directory.cleanup()

    @initialize()
    def begin(self) -> None:
        session = self.memory.create_session(id=SESSION, user="Anna Berg")
        for _ in range(3):
            self._record(session)

    def _token(self) -> str:
        self.number += 1
        return f"memory number {self.number} of this history"

    def _record(self, session: Any) -> None:
        text = self._token()
        tags = ["even" if self.number % 2 else "odd"]
        session.record_decision(text, made_by="Anna Berg", tags=tags)
        self.known.add(text)
        said = self._token()
        session.add_turn("user", said)
        self.known.add(said)

    def _attempt(self, act: Callable[[Memory], Any]) -> None:
        """A verb may refuse, as on a session that is archived; then nothing has changed."""
        try:
            act(self.memory)
        except SMPError:
            return

    @rule()
    def record(self) -> None:
        self._attempt(lambda memory: self._record(memory.session(SESSION)))

    @rule()
    def append_without_a_lock(self) -> None:
        file = self.root / "active" / SESSION / "decisions.yaml"
        if file.exists():
            text = self._token()
            with file.open("a") as opened:
                opened.write(f"  - id: typed-{self.number}\n    decision: {text}\n")
            self.known.add(text)

    @rule(chosen=st.randoms(use_true_random=False))
    def update(self, chosen: Any) -> None:
        def act(memory: Memory) -> None:
            session = memory.session(SESSION)
            found = session.records("decision")
            if found:
                session.update(chosen.choice(found).id, rationale="looked at again")

        self._attempt(act)

    @rule(chosen=st.randoms(use_true_random=False), steps=st.integers(0, 12), dies=st.booleans())
    def delete(self, chosen: Any, steps: int, dies: bool) -> None:
        found = [one for one in self._holdings("active", "archived", "evicted")
                 if one.id and one.file != METADATA]  # fmt: skip
        if found:
            ids = sorted({one.id for one in chosen.sample(found, min(3, len(found)))})
            self._do(lambda memory: memory.privacy.delete(SESSION, ids, reason="test"), steps, dies=dies)

    @rule(steps=st.integers(0, 12), dies=st.booleans())
    def restore(self, steps: int, dies: bool) -> None:
        batches = [one.batch for one in self.memory.privacy.deleted(SESSION)]
        if batches:
            self._do(lambda memory: memory.privacy.restore(SESSION, batch=batches[0]), steps, dies=dies)

    @rule(steps=st.integers(0, 12), dies=st.booleans())
    def purge(self, steps: int, dies: bool) -> None:
        """Only of what was deleted is nothing left; of what was anonymised, the originals go."""
        listed = self.memory.privacy.deleted(SESSION)
        if listed:
            batch = listed[-1].batch
            gone = [one for one in self._holdings("deleted") if one.facts.get("batch") == batch]
            self.purged |= {text_of(one) for one in gone}
            self._do(lambda memory: memory.privacy.purge_now(SESSION, batch=batch), steps, dies=dies)

    @rule(verb=st.sampled_from(list(VERBS)), steps=st.integers(0, 14), dies=st.booleans())
    def move(self, verb: str, steps: int, dies: bool) -> None:
        self._do(VERBS[verb], steps, dies=dies)

    @rule()
    def tidy_up(self) -> None:
        assert tidy(self.memory).problems == []

    def _do(self, act: Callable[[Memory], Any], steps: int, *, dies: bool) -> None:
        if dies:
            self.memory.close()
            crash_after(steps, act, self.root)
            self.memory = Memory(self.root)
        else:
            self._attempt(act)

    def _holdings(self, *places: Any) -> list[Any]:
        problems: list[str] = []
        # Whoever comes next rolls forward what was cut off.
        self.memory._scope(SESSION).recover()
        found = [*holdings(self.memory, SESSION, places, problems)]
        assert problems == []
        return found

    @invariant()
    def each_memory_is_in_one_place(self) -> None:
        texts = Counter(text for one in self._holdings(*EVERY) if one.place != "undo"
                        if (text := text_of(one)).startswith("memory number"))  # fmt: skip
        assert {text: count for text, count in texts.items() if count > 1} == {}
        assert self.known - self.purged - texts.keys() == set()


TestHistory = pytest.mark.filterwarnings("ignore::DeprecationWarning")(History.TestCase)
TestHistory.settings = settings(
    max_examples=15, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
