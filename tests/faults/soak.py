"""The soak: many processes work on one tree through every door, and each is killed again and again.

    python tests/faults/soak.py --minutes 30

It goes in rounds, each with a tree of its own. In a round, drivers (`doors.py`) write, change,
move, erase and ask beside a daemon; every second round is for commands, MCP and purges. All are
killed at random moments, or kill themselves before some change of the disk. The daemon is stopped
and paused too, and somebody writes hostile files.
Every operation stands in a ledger (`ledger.py`). At the end of a round the tree is held against the
ledgers (`verdict.py`). A tree with a fault is kept, and `--seed` repeats the chances of a run.
`test_soak.py` does one round.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import doors
import mcp.server.stdio  # noqa: F401  # so that no process has to load it
import verdict
from daemons import PATIENCE_S
from death import die_before
from doors import (
    DOORS,
    EDITED,
    QUOTA_BYTES,
    SHARED,
    SLOW_DOORS,
    SMALL,
    Agent,
    Command,
    Driver,
    Life,
    die_with_parent,
)
from forking import become, load_everything
from ledger import BROKEN, DONE, REFUSED, UNCLEAR, Book, Ledger
from verdict import Verdict

from smp_client import Memory
from smp_client.model.times import now, parse_time

ROUND_S = 60.0
BEFORE = "before-the-verdict"  # the tree as the last kill left it
PROMISED_S = 10.0  # within which a heart beats and a SIGTERM is obeyed
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: the orphans of killed drivers are ours
_DAEMON_LIFE_S = 7.0  # on the average
_SETTINGS = {
    "lifecycle": {"check_every_s": 3},
    "scan": {"every_s": 5},
    "decay": {"cron": "* * * * *"},
    "archive": {"cron": "* * * * *"},
    "purge": {"cron": "* * * * *"},
}

INNER = (Command, Agent)  # with processes of their own
SLOW_EVERY = 2  # rounds, the last of which is for the slow doors
LEFT_ALONE = "h0"  # a name that no bundle can hold keeps its session from being moved
# Somebody writes nonsense where SMP keeps what it can make again, and into inboxes. The notes of
# the last ids are those of a session whose ids an editor gives.
HOSTILE = {
    ".smp/policy.json": b'{"redaction": {"enabled": false}}',
    ".smp/deadlines.json": b"[" * 60_000,
    ".smp/jobs.json": b"{]",
    ".smp/journal/s0+junk": b"junk",
    ".smp/journal/s1+000": b'{"version": 1, "steps": [{"file": 1}]}',
    f".smp/locks/{EDITED}/decisions.yaml.lock": b"[" * 60_000,
    f".smp/locks/{EDITED}/learnings.yaml.lock": b'{"last": 1e70}',
    ".smp/status.json": b'{"problems": 3}',
    ".smp/index.db": b"no database",
    "active/s0/inbox/deep.yaml": b"[" * 30_000,
    "active/s1/inbox/bomb.yaml": b"a: &a [x]\nb: *a\n",
    f"active/{LEFT_ALONE}/inbox/strange\\name.yaml": b"type: nothing\n",
    "active/q0/inbox/nan.json": b'{"type": "decision", "decision": NaN}',
}


@dataclass
class Figures:
    """Everything that is counted over all rounds."""

    kills: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)  # door and outcome
    verbs: Counter[tuple[str, str]] = field(default_factory=Counter)  # done: door and verb
    faults: Counter[str] = field(default_factory=Counter)
    sought: Counter[str] = field(default_factory=Counter)
    hostile: int = 0  # files
    oldest_beat_s: float = 0.0
    longest_stop_s: float = 0.0

    def lines(self) -> list[str]:
        acknowledged = sum(self.verbs.values())
        said = [f"kills: {self.kills.total()} {dict(self.kills)}"]
        said.append(f"hostile files: {self.hostile}")
        said.append(f"acknowledged operations: {acknowledged}")
        for door in sorted({door for door, _ in self.outcomes}):
            done = {verb: count for (one, verb), count in self.verbs.items() if one == door}
            counts = [
                f"{self.outcomes[door, outcome]} {outcome}"
                for outcome in (DONE, REFUSED, UNCLEAR, BROKEN)
            ]
            said.append(f"  {door}: {', '.join(counts)}; {done}")
        said.append(f"memories: {dict(self.sought)}")
        said.append(f"oldest heartbeat {self.oldest_beat_s:.1f} s")
        said.append(f"longest stop {self.longest_stop_s:.1f} s")
        sorts = ("lost", "doubled", "resurrected", "id given twice", "purged bytes")
        said.append(", ".join(f"{sort}: {self.faults[sort]}" for sort in sorts))
        others = {sort: count for sort, count in self.faults.items() if sort not in sorts}
        said.append(f"other faults: {others or 'none'}")
        return said


class Driven:
    """A driver's slot: the process that lives now, and the ledger of all its lives."""

    def __init__(self, root: Path, slot: str, door: type[Driver]) -> None:
        self._root = root
        self.slot = slot
        self.door = door
        self.book = Book(root.parent / f"ledger-{slot}")
        self._ledger = Ledger(self.book.path)
        self._lives = 0
        self.pid = 0
        self.ends_at = 0.0

    def start(self, chance: random.Random) -> None:
        self._lives += 1
        life_s = self.door.life_s
        self.ends_at = time.monotonic() + min(chance.expovariate(1 / life_s), 4 * life_s)
        own = random.Random(chance.randrange(1 << 60))
        life = Life(self._root, self.slot, self._lives, own, self.book, self._ledger)
        self.pid = os.fork()
        if self.pid == 0:
            os.setpgid(0, 0)
            doors.live(life)
        with suppress(PermissionError, ProcessLookupError):
            os.setpgid(self.pid, self.pid)

    def is_dead(self) -> bool:
        """Return whether it has killed itself; it must not end otherwise."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            assert code == -signal.SIGKILL, f"the driver {self.slot} has ended by itself: {code}"
            self._bury()
        return bool(pid)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self._bury()

    def _bury(self) -> None:
        """Wait for everything that it has started, so that its next life is alone."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-self.pid, 0)
        self.book.close()

    def kill_inner(self) -> bool:
        """Kill the process that it has started, and let it live."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        with suppress(OSError, ProcessLookupError):
            for pid in children.read_text().split():
                os.kill(int(pid), signal.SIGKILL)
                return True
        return False


class Watched:
    """The daemon, which is killed too, and whose heart is watched."""

    def __init__(self, root: Path, figures: Figures) -> None:
        self._root = root
        self._figures = figures
        self.log = root.parent / "daemon.log"
        self._config = root.parent / "smp.yaml"
        self._config.write_text(json.dumps(_SETTINGS))
        self.pid = 0
        self.ends_at = 0.0
        self._started_at = now()
        self._beat_at: datetime | None = None

    def start(self, chance: random.Random, *, dies: bool = True) -> None:
        die_at = doors.some_change(chance, 3000) if dies and chance.random() < 0.5 else None
        life_s = min(chance.expovariate(1 / _DAEMON_LIFE_S), 4 * _DAEMON_LIFE_S)
        self.ends_at = time.monotonic() + life_s
        self._started_at = now()
        self._beat_at = None
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.pid = os.fork()
        if self.pid == 0:
            die_with_parent()
            if die_at is not None:
                die_before(die_at)
            streams = [os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY), log]
            called = ["run", "--root", str(self._root), "--config", str(self._config)]
            become(called, streams, str(self._root.parent), os.environ.copy())
        os.close(log)

    def is_dead(self) -> bool:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            assert code == -signal.SIGKILL, f"the daemon has ended by itself: {code}; {self.log}"
        return bool(pid)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def pause(self, seconds: float) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        began = time.monotonic()
        os.kill(self.pid, signal.SIGTERM)
        while (found := os.waitpid(self.pid, os.WNOHANG))[0] == 0:
            assert time.monotonic() - began < PATIENCE_S, f"it does not stop: {self.log}"
            time.sleep(0.01)
        self._note(stop_s=time.monotonic() - began)
        code = os.waitstatus_to_exitcode(found[1])
        # One that was started a moment ago may not have its handlers yet.
        assert code in (0, -signal.SIGTERM, -signal.SIGKILL), f"it ended with {code}: {self.log}"

    def look(self) -> None:
        """Its heart beats."""
        with suppress(OSError, ValueError, KeyError, TypeError):  # hostile files among them
            said = json.loads((self._root / ".smp/status.json").read_text())
            if said["pid"] == self.pid:
                self._beat_at = parse_time(said["heartbeat_at"])
        if self._beat_at is not None:
            self._note(beat_s=(now() - self._beat_at).total_seconds())
        else:
            age_s = (now() - self._started_at).total_seconds()
            assert age_s < PATIENCE_S, f"it does not come to life: {self.log}"

    def _note(self, *, beat_s: float = 0.0, stop_s: float = 0.0) -> None:
        self._figures.oldest_beat_s = max(self._figures.oldest_beat_s, beat_s)
        self._figures.longest_stop_s = max(self._figures.longest_stop_s, stop_s)
        assert beat_s < PROMISED_S, f"its heart stands still: {self.log}"
        assert stop_s < PROMISED_S, f"it does not obey SIGTERM in time: {self.log}"


class Round:
    """One tree from its making to the verdict."""

    def __init__(
        self, directory: Path, seed: int, figures: Figures, driven: Mapping[str, type[Driver]]
    ) -> None:
        self.root = directory / "sessions"
        self._chance = random.Random(seed)
        self._figures = figures
        self._daemon = Watched(self.root, figures)
        self._slots = [Driven(self.root, slot, door) for slot, door in driven.items()]

    def run(self, seconds: float) -> Verdict:
        in_child(self._make)
        self._daemon.start(self._chance)
        for slot in self._slots:
            slot.start(self._chance)
        try:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                self._step()
                time.sleep(0.01)
        finally:
            for slot in self._slots:
                slot.kill()
                self._figures.kills["driver"] += 1
        return self._judge()

    def _make(self) -> str:
        memory = Memory(self.root)
        for name in (*SHARED, EDITED, LEFT_ALONE):
            memory.create_session(id=name, user="Anna Berg", agents=["agent-a"])
        memory.create_session(id=SMALL, quota_bytes=QUOTA_BYTES)
        memory.close()
        return ""

    def _step(self) -> None:
        kills = self._figures.kills
        moment = time.monotonic()
        for slot in self._slots:
            if slot.is_dead():
                kills["driver, at a change"] += 1
                slot.start(self._chance)
            elif moment > slot.ends_at:
                slot.kill()
                kills["driver"] += 1
                slot.start(self._chance)
        if self._chance.random() < 0.01:
            slot = self._chance.choice([one for one in self._slots if one.door in INNER])
            kills["command or server"] += slot.kill_inner()
        self._daemon.look()
        if self._daemon.is_dead():
            kills["daemon, at a change"] += 1
            self._daemon.start(self._chance)
        elif moment > self._daemon.ends_at:
            self._daemon.pause(self._chance.uniform(0, 0.5))
            if self._chance.random() < 0.25:
                self._daemon.stop()
            else:
                self._daemon.kill()
                kills["daemon"] += 1
            self._daemon.start(self._chance)
        if self._chance.random() < 0.01:
            name, content = self._chance.choice([*HOSTILE.items()])
            with suppress(OSError):  # the session may be away
                (self.root / name).write_bytes(content)
                self._figures.hostile += 1

    def _judge(self) -> Verdict:
        """Bring everything back, take in the drops, stop the daemon, and look."""
        if self._chance.random() < 0.5:
            self._daemon.kill()
        else:
            self._daemon.stop()
        books = [slot.book for slot in self._slots]
        # The verdict changes the tree, so whoever looks for a cause needs it as it was.
        shutil.copytree(self.root, self.root.with_name(BEFORE), symlinks=True)
        found = Verdict.loaded(in_child(self._bring_back))
        self._daemon.start(self._chance, dies=False)
        drops = Verdict.loaded(in_child(self._wait_for_drops))
        self._daemon.stop()
        judged = Verdict.loaded(in_child(lambda: verdict.judge(self.root, books).dumped()))
        for one in (found, drops):
            for sort, some in one.faults.items():
                judged.faults[sort] += some
        for book in books:
            self._count(book)
            for said in book.broken:
                judged.add("broken", said)
        self._figures.sought.update(judged.figures)
        self._figures.faults.update({sort: len(said) for sort, said in judged.faults.items()})
        return judged

    def _bring_back(self) -> str:
        found = Verdict()
        memory = Memory(self.root)
        verdict.bring_back(memory, found)
        memory.close()
        return found.dumped()

    def _wait_for_drops(self) -> str:
        found = Verdict()
        until = time.monotonic() + PATIENCE_S
        while waiting := [*self.root.glob("active/*/inbox/[!.]*.*")]:
            if time.monotonic() > until:
                found.add("inbox", f"not taken in: {waiting[:5]}")
                break
            time.sleep(0.05)
        return found.dumped()

    def _count(self, book: Book) -> None:
        for (door, verb, outcome), count in book.outcomes.items():
            self._figures.outcomes[door, outcome] += count
            if outcome == DONE:
                self._figures.verbs[door, verb] += count
        self._figures.kills["command or server, at a change"] += book.killed


def in_child(act: Callable[[], str]) -> str:
    """Do something in a process of its own, so that this one has no file of the tree open."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            die_with_parent()
            os.close(read_end)
            with os.fdopen(write_end, "w") as said:
                said.write(act())
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
        finally:
            os._exit(code)
    os.close(write_end)
    with os.fdopen(read_end) as heard:
        answer = heard.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 0, f"it ended with {code}"
    return answer


def soak(seconds: float, seed: int, directory: Path, round_s: float = ROUND_S) -> Figures:
    """Go on for so long. Print the figures, and the faults of each round."""
    load_everything()
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)
    figures = Figures()
    ends_at = time.monotonic() + seconds
    number = 0
    while (left_s := ends_at - time.monotonic()) > 1 or not number:
        number += 1
        place = directory / f"round-{number}"
        place.mkdir(parents=True)
        driven = DOORS if number % SLOW_EVERY else SLOW_DOORS
        going = Round(place, seed + number, figures, driven)
        judged = going.run(min(round_s, max(left_s, 5.0)))
        done = sum(figures.verbs.values())
        said = f"round {number} (seed {seed + number})"
        print(f"{said}: {figures.kills.total()} kills and {done} acknowledged so far", flush=True)
        if judged.faults:
            print("\n".join(judged.lines()), flush=True)
            (place / "verdict.json").write_text(judged.dumped())
            print(f"  the tree is kept: {place}", flush=True)
        else:
            shutil.rmtree(place)
    print("\n".join(figures.lines()), flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="Soak SMP through every door, under kills.")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--round", type=float, default=ROUND_S, help="seconds of one round")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--directory", type=Path, help="where the trees are made")
    given = parser.parse_args()
    directory = given.directory or Path(tempfile.mkdtemp(prefix="smp-soak-"))
    print(f"seed {given.seed}, in {directory}", flush=True)
    figures = soak(60 * given.minutes, given.seed, directory, given.round)
    sys.exit(1 if figures.faults else 0)


if __name__ == "__main__":
    main()
