"""A simulated year: sessions live, age, are archived, brought back, deleted and purged."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from smp_client import Memory, QuotaExceeded, Record, Session
from smp_client.change.holdings import EVERY, holdings
from smp_client.model.record import SESSION_KINDS, kind_of_file
from smp_client.passes import overdue
from smp_client.passes.compaction import SUMMARIZES, compact, policy_of, trigger
from smp_client.passes.decay import decay
from smp_client.passes.lifecycle import lifecycle
from smp_client.passes.purge import purge
from smp_client.passes.tidy import tidy

START = datetime(2026, 1, 1, tzinfo=UTC)
QUOTA_BYTES = 14_000
ARCHIVED_AFTER, RETAINED = timedelta(days=30), timedelta(days=30)


@dataclass
class Known:
    """What the simulation knows of a session that it has made."""

    name: str
    ends: datetime  # when nobody uses it any more
    # Of every memory that was acknowledged and not purged, by id.
    texts: dict[str, str] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)  # that may never be taken out
    used: datetime = START
    deleted: dict[str, datetime] = field(default_factory=dict)  # memories, and when
    gone_at: datetime | None = None  # when it was deleted whole
    is_purged: bool = False


class Year:
    def __init__(self, root: Path, sessions: int, days: int, seed: int) -> None:
        self.now = START
        self.end = START + timedelta(days=days)
        self.memory = Memory(root, clock=lambda: self.now, quota_bytes=QUOTA_BYTES)
        self.memory.create()
        self.random = random.Random(seed)
        self.wanted = sessions
        self.known: dict[str, Known] = {}
        self.counts: dict[str, int] = {}
        self._signatures: dict[str, object] = {}

    # What agents and people do.

    def live(self, step: timedelta) -> None:
        due = self.wanted * min(1.5 * (self.now - START) / (self.end - START), 1.0)
        while len(self.known) < due:
            self._create()
        for one in self.known.values():
            chance = 150 * step / (self.end - START)
            if self.now < one.ends and self._is_active(one) and self.random.random() < chance:
                self._write(one)
        if self.known and self.random.random() < 0.001 * self.wanted * step / timedelta(hours=1):
            with suppress(QuotaExceeded):
                self._meddle(self.random.choice(list(self.known.values())))

    def _create(self) -> None:
        name = f"session-{len(self.known)}"
        topic = self.random.choice(["payments", "login", "search"])
        self.memory.create_session(id=name, user="user-1", topic=topic)
        ends = self.now + (self.end - START) * self.random.uniform(0.01, 0.16)
        self.known[name] = Known(name, ends, used=self.now)
        self._count("created")

    def _write(self, one: Known) -> None:
        session = self.memory.session(one.name)
        one.used = self.now
        try:
            for _ in range(self.random.randrange(1, 6)):
                speaker = self.random.choice(["user", "architect"])
                self._note(one, session.add_turn(speaker, self._words("We decided it.")))
            self._record(one, session, self.random.randrange(5))
            session.save_agent_state("veritas", {"seen": len(one.texts)})
        except QuotaExceeded:
            self._count("refused")  # all that is there must stay
        self._make_room(session)

    def _record(self, one: Known, session: Session, kind: int) -> None:
        if kind == 0:
            made = session.record_decision(self._words("Use it"), made_by="architect")
            self._note(one, made, kept=True)
        elif kind == 1:
            found = session.record_finding(self._words("It breaks"), discovered_by="veritas")
            self._note(one, found, kept=True)
            if self.random.random() < 0.5:
                session.resolve_finding(found.id, resolved_by="architect", action_taken="mended")
                one.kept.discard(found.id)
        elif kind in (2, 3):
            confidence = "explicit" if kind == 2 else "uncertain"
            liked = session.record_preference(self._words("Rather so"), confidence=confidence)
            self._note(one, liked, kept=kind == 2)
        else:
            learned = session.record_learning(self._words("So it is"), learned_by="veritas")
            is_pinned = self.random.random() < 0.3
            self._note(one, learned, kept=is_pinned)
            if is_pinned:
                session.pin(learned.id)

    def _note(self, one: Known, record: Record, *, kept: bool = False) -> None:
        one.texts[record.id] = record.text
        one.kept |= {record.id} if kept else set()

    def _make_room(self, session: Session) -> None:
        """As the daemon does after every write."""
        due = trigger(session.size(), policy_of(session))
        if due is not None:
            result = compact(session, reduction_pct=due[0])
            self._count("compacted", len(result.actions))

    def _meddle(self, one: Known) -> None:
        """Somebody reads, deletes, restores or brings back something."""
        chance = self.random.random()
        if self._is_active(one):
            session = self.memory.session(one.name)
            present = self._present(session)
            standing = [name for name in one.texts if name not in one.deleted and name in present]
            if chance < 0.4 and standing:
                session.get(self.random.choice(standing))
                one.used = self.now
            elif chance < 0.7 and standing:
                memory_id = self.random.choice(standing)
                session.delete(memory_id, reason="no longer wanted")
                one.deleted[memory_id] = self.now
                self._count("deleted")
            elif chance < 0.8 and (restorable := [item.id for item in session.deleted()]):
                memory_id = self.random.choice(restorable)
                session.restore(memory_id)
                del one.deleted[memory_id]
                self._count("restored")
            elif chance < 0.9 and session.evicted():
                session.bring_back([session.evicted()[0].id])
                self._count("brought back")
            else:
                self._delete(one)
        elif one.gone_at is not None and not one.is_purged and chance < 0.5:
            self.memory.undelete_session(one.name)
            one.gone_at, one.used = None, self.now
            self._count("undeleted")
        elif one.gone_at is None and chance < 0.5:
            self.memory.restore_session(one.name)
            one.used = self.now
            self._count("unarchived")
        elif one.gone_at is None and chance < 0.6:
            self._delete(one)

    def _delete(self, one: Known) -> None:
        self.memory.delete_session(one.name, reason="no longer wanted")
        one.gone_at = self.now
        self._count("sessions deleted")

    # What the daemon does.

    def keep_house(self, step: timedelta) -> None:
        if self.now.hour % 6:
            return  # which is often enough
        before = {session.id for session in self.memory.sessions()}
        archives = self.now.hour < step / timedelta(hours=1) or step > timedelta(hours=12)
        assert lifecycle(self.memory, archive=archives).problems == []
        for name in before - {session.id for session in self.memory.sessions()}:
            assert self.now - self.known[name].used >= ARCHIVED_AFTER, f"{name} went too early"
            self._count("archived")
        if self.now.hour % 12 == 0:
            for session in self.memory.sessions():
                assert decay(session).problems == []
        if self.now.weekday() == 6 and self.now.hour < step / timedelta(hours=1):
            self._purge()
        tidy(self.memory)

    def _purge(self) -> None:
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
                one.kept.discard(memory_id)
            self._count(action.type)

    # What must be so, always.

    def check(self, *, all_of_it: bool = False) -> None:
        for one in self.known.values():
            places = [self.memory.root / place for place in ("active", "archived", "deleted")]
            signature = [_signature(place / one.name) for place in places]
            if not all_of_it and self._signatures.get(one.name) == (signature, one.is_purged):
                continue
            self._signatures[one.name] = (signature, one.is_purged)
            self._check(one)

    def _check(self, one: Known) -> None:
        root = self.memory.root
        places = {
            "active": (root / "active" / one.name).is_dir(),
            "archived": (root / "archived" / one.name / "summary.yaml").is_file(),
            "deleted": any(gone.session == one.name for gone in self.memory.deleted_sessions()),
            "purged": one.is_purged,
        }
        assert sum(places.values()) == 1, f"{one.name} is in {places}"
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
        if places["deleted"]:
            return  # its evicted memories are packed with it, and are looked at when it is back
        assert texts == one.texts, f"{one.name}: {texts.keys() ^ one.texts.keys()}"
        if places["active"]:
            standing = {held.id for held in found if held.place == "active"}
            lost = {memory_id for memory_id in one.kept if memory_id not in one.deleted} - standing
            assert lost == set(), f"{one.name}: {lost} may never be evicted"
            size = self.memory.session(one.name).size()
            # The YAML indexes are written by whoever looks after it.
            assert size.total_bytes <= size.quota_bytes + 12_000

    def _is_active(self, one: Known) -> bool:
        return (self.memory.root / "active" / one.name).is_dir()

    def _present(self, session: Session) -> set[str]:
        turns = {turn.id for turn in session.turns() if turn.data.get("type") != "summary"}
        others = (session.records(kind.name) for kind in SESSION_KINDS[1:])
        return turns | {record.id for records in others for record in records}

    def _words(self, beginning: str) -> str:
        words = [self.random.choice(["alpha", "beta", "gamma", "delta"]) for _ in range(12)]
        return f"{beginning} {' '.join(words)}"

    def _count(self, what: str, times: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + times


def _signature(directory: Path) -> list[tuple[str, int, int, int]]:
    found = []
    for path, _, files in os.walk(directory):
        for file in sorted(files):
            status = os.stat(os.path.join(path, file))
            found.append((file, status.st_ino, status.st_size, status.st_mtime_ns))
    return found


@pytest.fixture
def quick_root(tmp_path: Path) -> Iterator[Path]:
    """On a filesystem in memory where there is one."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path / "sessions"
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory) / "sessions"


@pytest.mark.parametrize(
    ("sessions", "days", "hours", "seed"),
    [(4, 110, 24, 3), pytest.param(6, 140, 24, 1, marks=pytest.mark.slow),
     pytest.param(30, 365, 2, 1, marks=pytest.mark.slow)],
)  # fmt: skip
def test_a_year(
    quick_root: Path, sessions: int, days: int, hours: int, seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Each memory is in exactly one place."""
    monkeypatch.setattr("smp_client.change.move.GRACE_S", -1.0)
    monkeypatch.setattr("smp_client.disk.rewrite.GRACE_S", -1.0)
    year, step = Year(quick_root, sessions, days, seed=seed), timedelta(hours=hours)
    monkeypatch.setattr(overdue, "running_s", lambda: (year.now - START).total_seconds())
    while year.now < year.end:
        year.live(step)
        year.keep_house(step)
        year.check()
        year.now += step
    year.check(all_of_it=True)
    happened = {"created", "compacted", "archived", "unarchived", "deleted", "sessions deleted",
                "purge_session"}  # fmt: skip
    assert happened <= year.counts.keys(), year.counts
