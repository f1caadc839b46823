"""The program of a power failure: one process that writes, moves and erases until it dies.

    python tests/faults/power.py work ROOT LEDGERS SEED VARIANT
    python tests/faults/power.py judge ROOT LEDGERS

It has drivers of the soak, which take turns: a second process would sync the journal of the
filesystem, and with it changes that this one forgot to sync. In its last turn it kills itself
before some change of the disk, or right behind an acknowledgement. Then its disk gets no power.
The ledgers are on another disk. `judge` prints the faults of the tree as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import programs
import verdict
from doors import (
    EDITED,
    QUOTA_BYTES,
    SHARED,
    SMALL,
    Driver,
    Dropper,
    Eraser,
    Keeper,
    Library,
    Life,
    NotDone,
    Porter,
    Victim,
)
from ledger import DONE, REFUSED, Book, Ledger
from verdict import Verdict

from smp_client import Memory, Session
from smp_client.disk.quarantine import waiting
from smp_daemon.ingest.inbox import take_in

PLACES = {
    "archive": "archived",
    "delete session": "deleted",
    "unarchive": "active",
    "undelete session": "active",
}


class Observed(Life):
    """A life whose notes are on another disk."""

    @property
    def scratch(self) -> Path:
        return self.book.path.parent


def take_all(session: Session) -> None:
    """Take in the drops of a session as the daemon does."""
    drops = waiting(session.memory.tree, f"active/{session.id}")
    for drop in take_in(session, drops):
        if drop.outcome == "rejected":
            raise AssertionError(f"{drop.name}: {drop.reason}")


class Mover(Driver):
    """Moves a session, one step a turn."""

    door = "move"

    def act(self) -> None:
        memory = self.memory
        archived = [one.session for one in memory.archived_sessions()]
        deleted = [one.session for one in memory.deleted_sessions()]
        name = self.chance.choice((*SHARED, SMALL, EDITED))
        if name in archived and self.chance.random() < 0.8:
            self.do("unarchive", lambda: memory.restore_session(name), name)
        elif name in deleted:
            self.do("undelete session", lambda: memory.undelete_session(name), name)
        elif name not in archived and self.chance.random() < 0.5:
            self.do("archive", lambda: memory.archive_session(name), name)
        else:
            self.do("delete session", lambda: memory.delete_session(name, reason="power"), name)


class SyncedDropper(Dropper):
    """Syncs each drop, and takes drops in."""

    def act(self) -> None:
        if self.chance.random() < 0.6:
            super().act()
        else:
            name = self.session()
            self.do("take in", lambda: take_all(self.memory.session(name)))

    def drop(self, inbox: Path, name: str, content: str) -> None:
        super().drop(inbox, name, content)
        self._sync(inbox / name)
        self._sync(inbox)

    def _sync(self, path: Path) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise NotDone(str(error)) from error
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class SyncedVictim(Victim):
    """Makes and purges sessions. It writes by the library alone, which syncs."""

    bare_writes = False


# The drivers, and how often each has a turn.
TURNS: dict[str, tuple[type[Driver], int]] = {
    "lib": (Library, 25),
    "era": (Eraser, 25),
    "mov": (Mover, 20),
    "kee": (Keeper, 8),
    "dro": (SyncedDropper, 12),
    "por": (Porter, 5),
    "vic": (SyncedVictim, 8),
}


def build(root: Path) -> None:
    memory = Memory(root)
    for name in (*SHARED, EDITED):
        memory.create_session(id=name, user="Anna Berg", agents=["agent-a"])
    memory.create_session(id=SMALL, quota_bytes=QUOTA_BYTES)
    memory.close()


def books(ledgers: Path) -> list[Book]:
    return [Book(ledgers / slot) for slot in TURNS]


def work(root: Path, ledgers: Path, seed: int, variant: str) -> None:
    """Let the drivers take turns, and die in or right behind the last."""
    chance = random.Random(seed)
    programs.VARIANTS[variant]()
    drivers: list[Driver] = []
    for slot, (driver, _) in TURNS.items():
        own = random.Random(chance.randrange(1 << 60))
        drivers.append(driver(_life(root, ledgers / slot, own)))
        drivers[-1].mortality = 0.0
    weights = [weight for _, weight in TURNS.values()]
    for _ in range(chance.randrange(5, 40)):
        _take_turn(chance.choices(drivers, weights=weights)[0])
    last = chance.choice(drivers)
    last.mortality = chance.choice([0.0, 1.0])
    _take_turn(last)
    os.kill(os.getpid(), signal.SIGKILL)


def _life(root: Path, path: Path, chance: random.Random) -> Life:
    """Return a life that knows of the lives before it."""
    ledger = Ledger(path)
    book = Book(path)
    book.close()
    number = 1 + len(book.fates)  # greater than that of any life that made a memory
    return Observed(root, path.name, number, chance, book, ledger)


def _take_turn(driver: Driver) -> None:
    driver.act()
    driver.life.book.catch_up()


def _places(ledger: Path) -> dict[str, set[str]]:
    """Return where each session may be, by the ledger of the mover."""
    places = {name: {"active"} for name in (*SHARED, SMALL, EDITED)}
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    for begun, ended in zip(lines, [*lines[1:], {}], strict=True):
        if begun.get("verb") not in PLACES:
            continue
        outcome = ended.get("outcome")
        place = PLACES[begun["verb"]]
        if outcome == DONE:
            places[begun["session"]] = {place}
        elif outcome != REFUSED:
            places[begun["session"]].add(place)
    return places


def _check_places(memory: Memory, ledger: Path, found: Verdict) -> None:
    archived = {one.session for one in memory.archived_sessions()}
    deleted = {one.session for one in memory.deleted_sessions()}
    for name, places in _places(ledger).items():
        place = "archived" if name in archived else "deleted" if name in deleted else "active"
        if place not in places:
            found.add("moved", f"{name} is {place}, not {sorted(places)}")


def judge(root: Path, ledgers: Path) -> Verdict:
    """Return the faults of a tree whose disk was without power."""
    found = Verdict()
    memory = Memory(root)
    _check_places(memory, ledgers / "mov", found)
    verdict.bring_back(memory, found)
    for session in memory.sessions():
        take_all(session)
    memory.close()
    kept = books(ledgers)
    for book in kept:
        book.close()
        for said in book.broken:
            found.add("broken", said)
    judged = verdict.judge(root, kept)
    for sort, some in found.faults.items():
        judged.faults[sort] += some
    return judged


def main(arguments: Sequence[str]) -> None:
    what, root, ledgers = arguments[0], Path(arguments[1]), Path(arguments[2])
    if what == "work":
        work(root, ledgers, int(arguments[3]), arguments[4])
    else:
        print(judge(root, ledgers).dumped())


if __name__ == "__main__":
    main(sys.argv[1:])
