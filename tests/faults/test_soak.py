"""Everything at once: writers of every way, upkeep, deletions, hostile files, kills and signals.

An oracle knows every acknowledged write. At the end nothing is lost and nothing doubled, the daemon's heart
never stood still for ten seconds while it ran, and it obeyed every SIGTERM within ten. The seed is printed.
It takes a minute, or as many seconds as `SMP_SOAK_S` says: `SMP_SOAK_S=600 pytest -m slow -k nothing_stops_it`.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import time
import traceback
from collections import Counter
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pytest
from daemons import PATIENCE_S, SMP, Daemon, smp, wait_until

from smp_client import Memory, Session, SMPError
from smp_client.model.times import now, parse_time

SOAK_S = float(os.environ.get("SMP_SOAK_S", "60"))
PROMISED_S = 10.0  # within which a heart beats and a SIGTERM is obeyed, on whatever machine
SESSIONS = ("s0", "s1", "s2", "s3")
TOKEN = re.compile(r"soak-[a-z0-9]+-\d+-\d+")
WAYS = ("record", "turn", "transaction", "drop", "shell", "command", "upkeep")


class Writer:
    """A process that writes in one way, and notes in a file of its own what was acknowledged."""

    def __init__(self, root: Path, way: str, life: int, seed: int) -> None:
        self.acknowledged = root.parent / f"acknowledged-{way}-{life}"
        self._root, self._way, self._life = root, way, life
        self._random = random.Random(seed)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._write_for_ever()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)

    def end(self) -> str:
        """Kill it; return what is wrong: nothing in the tree may end a writer by itself."""
        if os.waitpid(self.pid, os.WNOHANG) != (0, 0):
            return f"the writer by {self._way} has ended by itself"
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return ""

    def _write_for_ever(self) -> None:
        memory = Memory(self._root)
        number = 0
        with self.acknowledged.open("a") as noted:
            while True:
                number += 3
                count = 3 if self._way == "transaction" else 1
                tokens = [f"soak-{self._way}-{self._life}-{number + more}" for more in range(count)]
                name = self._random.choice(SESSIONS)
                with suppress(SMPError, OSError):
                    if self._way == "upkeep":
                        self._keep_up(memory, name)
                    else:
                        self._write(memory.session(name), tokens)
                        noted.write("".join(f"{token}\n" for token in tokens))
                        noted.flush()
                time.sleep(0.02)

    def _write(self, session: Session, tokens: list[str]) -> None:
        token, place = tokens[0], self._root / "active" / session.id
        if self._way == "record":
            session.record_decision(f"We decided {token}", made_by="a", tags=["soak"])
        elif self._way == "turn":
            session.add_turn("user", f"We said {token}")
        elif self._way == "transaction":
            with session.transaction() as transaction:
                for one in tokens:
                    transaction.record_finding(f"We found {one}", discovered_by="a", severity="low")
        elif self._way == "command":
            words = ["add", session.id, "learning", f"We learned {token}", "--by", "a", "--root", str(self._root), "--json"]
            if subprocess.run([*SMP, *words], capture_output=True, check=False).returncode:
                raise OSError("it was not written")
        elif self._way == "drop":
            temporary = place / f"inbox/.{token}.tmp"
            temporary.write_text(f"type: preference\npreference: We like {token}\nconfidence: explicit\n")
            temporary.rename(place / f"inbox/{token}.yaml")
        else:
            record = f"  - id: {token}\n    timestamp: 2026-01-01T00:00:00Z\n    made_by: a\n    decision: We typed {token}\n"
            # `open` would make the file of a session that has just gone.
            with os.fdopen(os.open(place / "decisions.yaml", os.O_WRONLY | os.O_APPEND), "ab", buffering=0) as file:
                file.write(record.encode())

    def _keep_up(self, memory: Memory, name: str) -> None:
        what = self._random.randrange(7)
        if what == 0:
            memory.session(name).compact(reduction_pct=5)
        elif what == 1:
            memory.session(name).decay()
        elif what == 2:
            memory.archive_session(name)
        elif what == 3:
            memory.delete_session(name, reason="soak")
        elif what == 4 and (decisions := memory.session(name).records("decision")):
            memory.session(name).delete(self._random.choice(decisions).id, reason="soak")
        elif what == 5:
            memory.session(name).bring_back()
        else:
            bring_all_back(memory)


def bring_all_back(memory: Memory) -> None:
    """Bring back whatever is archived, deleted or evicted."""
    for away in memory.archived_sessions():
        with suppress(SMPError, OSError):
            memory.restore_session(away.session)
    for gone in memory.deleted_sessions():
        with suppress(SMPError, OSError):
            memory.undelete_session(gone.session)
    for session in memory.sessions():
        with suppress(SMPError, OSError):
            for batch in {one.batch for one in session.deleted()}:
                session.restore_batch(batch)
            session.bring_back()


HOSTILE = {
    ".smp/policy.json": b'{"redaction": {"enabled": false}}', ".smp/deadlines.json": b"[" * 60_000, ".smp/jobs.json": b"{]",
    ".smp/journal/s0+junk": b"junk", ".smp/journal/s1+000": b'{"version": 1, "steps": [{"file": 1}]}',
    ".smp/locks/s2/decisions.yaml.lock": b"[" * 60_000, ".smp/locks/s3/learnings.yaml.lock": b'{"last": 1e70}',
    ".smp/status.json": b'{"problems": 3}', ".smp/index.db": b"no database", "active/s0/inbox/deep.yaml": b"[" * 30_000,
    "active/s1/inbox/bomb.yaml": b"a: &a [x]\nb: *a\n", "active/s2/inbox/strange\\name.yaml": b"type: nothing\n",
    "active/s3/inbox/nan.json": b'{"type": "decision", "decision": NaN}',
}  # fmt: skip


class Soak:
    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.random = random.Random(seed)
        self.beat_at: datetime | None = None  # when the heart of this daemon beat last
        self._start()
        self.lives = Counter(dict.fromkeys(WAYS, 0))
        self.writers = {way: self._writer(way) for way in WAYS}
        self.done: Counter[str] = Counter()
        self.slowest_start_s = self.oldest_beat_s = self.longest_stop_s = 0.0

    def _start(self) -> None:
        self.daemon = Daemon([self.root], self.root.parent / "log")
        self.started_at, self.beat_at = now(), None

    def _writer(self, way: str) -> Writer:
        self.lives[way] += 1
        return Writer(self.root, way, self.lives[way], self.random.randrange(1 << 30))

    def step(self) -> None:
        self.look()
        what = self.random.choice(["kill a writer"] * 4 + ["hostile"] * 3 + ["SIGSTOP", "SIGTERM", "SIGKILL", "nothing"])
        self.done[what] += 1
        if what == "kill a writer":
            way = self.random.choice(WAYS)
            assert not (problem := self.writers.pop(way).end()), problem
            self.writers[way] = self._writer(way)
        elif what == "hostile":
            name, content = self.random.choice(list(HOSTILE.items()))
            with suppress(OSError):
                (self.root / name).write_bytes(content)
        elif what == "SIGSTOP":
            self.daemon.process.send_signal(signal.SIGSTOP)
            time.sleep(self.random.random())
            self.daemon.process.send_signal(signal.SIGCONT)
        elif what == "SIGTERM":
            self.obeys()
        elif what == "SIGKILL":
            self.daemon.kill()
            self._start()

    def _last_lines(self) -> str:
        lines = [line for line in self.daemon.log.read_text().splitlines() if '"drop taken"' not in line]
        return "\n".join(lines[-40:])

    def obeys(self) -> None:
        began = time.monotonic()
        self.daemon.process.send_signal(signal.SIGTERM)
        code = self.daemon.process.wait(PATIENCE_S)
        self.longest_stop_s = max(self.longest_stop_s, time.monotonic() - began)
        # One that was started a moment ago may not have its handlers yet.
        assert code in (0, -signal.SIGTERM), f"the daemon did not end well: {self._last_lines()}"
        assert self.longest_stop_s < PROMISED_S, f"the daemon did not obey SIGTERM in time: {self._last_lines()}"
        self._start()

    def look(self) -> None:
        assert self.daemon.process.poll() is None, f"the daemon has ended by itself: {self._last_lines()}"
        with suppress(OSError, ValueError, KeyError, TypeError):  # somebody has just written nonsense there
            said = json.loads((self.root / ".smp/status.json").read_text())
            if said["pid"] == self.daemon.process.pid:
                self.beat_at = parse_time(said["heartbeat_at"])
        if self.beat_at is None:
            # It takes the lead and opens the index before its heart beats for the first time.
            self.slowest_start_s = max(self.slowest_start_s, (now() - self.started_at).total_seconds())
            assert self.slowest_start_s < PATIENCE_S, f"the daemon does not come to life: {self._last_lines()}"
            return
        self.oldest_beat_s = max(self.oldest_beat_s, (now() - self.beat_at).total_seconds())
        assert self.oldest_beat_s < PROMISED_S, f"the daemon's heart stands still: {self._last_lines()}"

    def end(self) -> list[str]:
        writers, self.writers = self.writers, {}
        return [problem for writer in writers.values() if (problem := writer.end())]


@pytest.mark.slow
def test_nothing_stops_it_and_nothing_is_lost(tmp_path: Path, short_grace: None) -> None:
    seed, root = random.randrange(1 << 30), tmp_path / "sessions"
    memory = Memory(root)
    for name in SESSIONS:
        memory.create_session(id=name)
    soak = Soak(root, seed)
    try:
        until = time.monotonic() + SOAK_S
        while time.monotonic() < until:
            soak.step()
            time.sleep(0.2)
        assert soak.end() == []
        soak.look()
        wait_until(lambda: _everything_is_back(memory), "everything is in active/")
        assert smp("sync", "--root", root, "--timeout", PATIENCE_S).returncode == 0
        wait_until(lambda: not [*root.glob("active/*/inbox/soak-*.yaml")], "the inboxes are empty")
        assert smp("sync", "--root", root, "--timeout", PATIENCE_S).returncode == 0
        soak.obeys()
    finally:
        soak.end()
        soak.daemon.kill()
    acknowledged = [line for file in tmp_path.glob("acknowledged-*") for line in file.read_text().splitlines()]
    kept = Counter(token for session in memory.sessions() for kind in session.kinds for record in session.records(kind.name)
                   for token in TOKEN.findall(record.text))  # fmt: skip
    aside = {token for path in root.rglob("*") if path.is_file() and ("quarantine" in path.parts or "rejected" in path.parts)
             for token in TOKEN.findall(path.read_bytes().decode("utf-8", "replace"))}  # fmt: skip
    said = f"seed {seed}: {len(acknowledged)} acknowledged, {dict(soak.done)}, oldest heartbeat {soak.oldest_beat_s:.1f} s,"
    print(f"{said} longest stop {soak.longest_stop_s:.1f} s, slowest start {soak.slowest_start_s:.1f} s")
    # Every way could write to the end: in the second half of its writers' lives something was acknowledged.
    # On a busy machine a command may take longer to start than its writer lives.
    late = {way for _, way, life, _ in (token.split("-") for token in acknowledged) if 2 * int(life) > soak.lives[way]}
    assert late | {"command", "upkeep"} == {*WAYS}, said
    assert [token for token in acknowledged if not kept[token] and token not in aside] == [], f"lost; {said}"
    assert [token for token, count in kept.items() if count > 1] == [], f"doubled; {said}"


def _everything_is_back(memory: Memory) -> bool:
    with suppress(SMPError, OSError):
        bring_all_back(memory)
    is_away = any(session.deleted() or session.evicted() for session in memory.sessions())
    return len(memory.sessions()) == len(SESSIONS) and not is_away
