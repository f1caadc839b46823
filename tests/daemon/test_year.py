"""A simulated year: sessions live, age, are archived, brought back, deleted and purged."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from smp_client import Memory, QuotaExceeded, Session
from smp_client.change.holdings import EVERY, holdings
from smp_client.model.record import kind_of_file
from smp_client.passes.compaction import SUMMARIZES, compact, policy_of, trigger
from smp_client.passes.decay import decay
from smp_client.passes.lifecycle import lifecycle
from smp_client.passes.purge import purge
from smp_client.passes.tidy import tidy

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY, RETAINED = timedelta(days=1), timedelta(days=30)


@dataclass
class Known:
    """A session that the simulation has made."""

    name: str
    ends: datetime  # when nobody uses it any more
    texts: dict[str, str] = field(default_factory=dict)  # acknowledged and not purged, by id
    used: datetime = START
    deleted: dict[str, datetime] = field(default_factory=dict)  # memories, and when
    gone_at: datetime | None = None  # when it was deleted whole
    is_purged: bool = False


class Year:
    """Each step is a day."""

    def __init__(self, root: Path, sessions: int, days: int, seed: int) -> None:
        self.now, self.end, self.wanted = START, START + days * DAY, sessions
        self.memory = Memory(root, clock=lambda: self.now, quota_bytes=14_000)
        self.memory.create()
        self.random = random.Random(seed)
        self.known: dict[str, Known] = {}
        self.counts: Counter[str] = Counter()

    def live(self) -> None:
        """Agents write, and people change their minds."""
        due = self.wanted * min(1.5 * (self.now - START) / (self.end - START), 1.0)
        while len(self.known) < due:
            name = f"session-{len(self.known)}"
            self.memory.create_session(id=name)
            ends = self.now + (self.end - START) * self.random.uniform(0.01, 0.16)
            self.known[name] = Known(name, ends)
            self.counts["created"] += 1
        for one in self.known.values():
            if self.now < one.ends and self.is_active(one):
                with suppress(QuotaExceeded):  # all that is there must stay
                    self.write(one, self.memory.session(one.name))
        if self.random.random() < 0.1 * len(self.known):
            with suppress(QuotaExceeded):
                self.meddle(self.random.choice(list(self.known.values())))

    def write(self, one: Known, session: Session) -> None:
        for _ in range(self.random.randrange(1, 8)):
            words = " ".join(self.random.choices(["alpha", "beta", "gamma", "delta"], k=12))
            kind = self.random.randrange(4)
            if kind == 0:
                made = session.record_decision(words, made_by="architect")
            elif kind == 1:
                made = session.record_preference(words, confidence="uncertain")
            else:
                made = session.add_turn("user", words)
            one.texts[made.id], one.used = made.text, self.now
        if (due := trigger(session.size(), policy_of(session))) is not None:
            self.counts["compacted"] += len(compact(session, reduction_pct=due[0]).actions)

    def meddle(self, one: Known) -> None:
        """Somebody deletes, restores or brings back something."""
        chance = self.random.random()
        if self.is_active(one):
            session = self.memory.session(one.name)
            present = [record.id for record in session.records("decision")]
            if chance < 0.5 and present:
                memory_id = self.random.choice(present)
                session.delete(memory_id, reason="no longer wanted")
                one.deleted[memory_id] = self.now
                self.counts["deleted"] += 1
            elif chance < 0.7 and (restorable := [item.id for item in session.deleted()]):
                session.restore(restorable[0])
                del one.deleted[restorable[0]]
            elif chance < 0.8 and session.evicted():
                session.bring_back([session.evicted()[0].id])
            else:
                self.memory.delete_session(one.name, reason="no longer wanted")
                one.gone_at = self.now
                self.counts["sessions deleted"] += 1
        elif one.gone_at is not None and not one.is_purged and chance < 0.5:
            self.memory.undelete_session(one.name)
            one.gone_at, one.used = None, self.now
        elif one.gone_at is None and chance < 0.5:
            self.memory.restore_session(one.name)
            one.used = self.now
            self.counts["unarchived"] += 1

    def keep_house(self) -> None:
        """The daemon's passes, and none of them is early."""
        before = {session.id for session in self.memory.sessions()}
        assert lifecycle(self.memory, archive=True).problems == []
        for name in before - {session.id for session in self.memory.sessions()}:
            assert self.now - self.known[name].used >= RETAINED, f"{name} went too early"
            self.counts["archived"] += 1
        for session in self.memory.sessions():
            assert decay(session).problems == []
        outcome = purge(self.memory)
        assert outcome.problems == []
        for action in outcome.actions:
            one = self.known[action.session]
            if action.type == "purge_session":
                assert one.gone_at is not None
                assert self.now - one.gone_at >= RETAINED, f"{one.name} went too early"
                one.is_purged, one.texts = True, {}
            for memory_id in action.about if action.type == "purge_memories" else ():
                assert self.now - one.deleted.pop(memory_id) >= RETAINED, (memory_id, one.name)
                del one.texts[memory_id]
            self.counts[action.type] += 1
        tidy(self.memory)

    def check(self, one: Known) -> None:
        """Each session, and each of its memories, is in exactly one place."""
        root = self.memory.root
        is_deleted = any(gone.session == one.name for gone in self.memory.deleted_sessions())
        is_archived = (root / "archived" / one.name / "summary.yaml").is_file()
        assert [self.is_active(one), is_archived, is_deleted, one.is_purged].count(True) == 1
        if one.is_purged:
            assert not list(root.glob(f"*/{one.name}"))
            return
        problems: list[str] = []
        found = [held for held in holdings(self.memory, one.name, EVERY, problems)
                 if held.id in one.texts and SUMMARIZES not in held.value and not held.is_file]  # fmt: skip
        assert problems == []
        # A summary of turns has the id of the first of them, which is evicted.
        texts = {held.id: str(held.value.get(kind_of_file(held.file).text, "")) for held in found}
        assert len(texts) == len(found), f"{one.name}: a memory is in two places"
        assert texts == one.texts, f"{one.name}: {texts.keys() ^ one.texts.keys()}"

    def is_active(self, one: Known) -> bool:
        return (self.memory.root / "active" / one.name).is_dir()


@pytest.mark.parametrize(
    ("sessions", "days"), [(4, 110), pytest.param(30, 365, marks=pytest.mark.slow)]
)
def test_a_year(
    tmp_path: Path, sessions: int, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smp_client.change.latecomers.GRACE_S", -1.0)
    monkeypatch.setattr("smp_client.disk.rewrite.GRACE_S", -1.0)
    year = Year(tmp_path / "sessions", sessions, days, seed=8)
    monkeypatch.setattr("smp_client.passes.purge.running_s", lambda: (year.now - START).total_seconds())
    while year.now < year.end:
        year.live()
        year.keep_house()
        if year.now.day % 5 == 0:
            for one in year.known.values():
                year.check(one)
        year.now += DAY
    happened = {"created", "compacted", "archived", "unarchived", "deleted", "sessions deleted",
                "purge_session"}  # fmt: skip
    assert happened <= year.counts.keys(), year.counts
