"""What it costs to look after sessions as time passes, and how long whoever writes meanwhile has to wait.

A pass begins with a true index, as it has in a daemon. Each stands beside the same bytes read and made durable, or packed, with
nothing else. The machine may be busy with something else: the processor's time that a pass took is told beside the time it took.
"""

from __future__ import annotations

import gzip
import io
import itertools
import multiprocessing
import os
import random
import shutil
import statistics
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache, partial
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from smp_client import Memory, Session, SessionPutAway
from smp_client.change.latecomers import sweep
from smp_client.index.topics import write as write_indexes
from smp_client.model.layout import LEAVING
from smp_client.model.record import DECISION, FINDING, TURN, Kind
from smp_client.text.contents import new_fields
from smp_client.text.format import format_of

from .asking import PEOPLE, TOPICS, vocabulary
from .measure import Bench, Operation, Row, Target, Timing, benchmark
from .processes import wait_until
from .samples import AT, QUOTA_BYTES, megabyte_label, new_session

MEMORIES = 10_000
SPREAD = timedelta(days=32)  # from the oldest memory to the newest
NOW = AT + SPREAD + timedelta(days=8)  # so all of the conversation is old, and half of it has decayed
RECENT = timedelta(days=5)
SOON, LATER = AT + timedelta(days=6), AT + timedelta(days=9)  # when no recent memory is at its least priority yet
DECAY, COMPACTION, ARCHIVE = Target(seconds=1.0), Target(seconds=1.5), Target(seconds=1.5)
LEVEL = 6
Files = Mapping[str, bytes]


@dataclass
class Clock:
    now: datetime = NOW

    def __call__(self) -> datetime:
        return self.now


@dataclass
class Turns:
    """Ours and the bare operation by turns, each after something that is not counted."""

    rounds: int
    ours_s: list[float] = field(default_factory=list)
    bare_s: list[float] = field(default_factory=list)
    processor_s: list[float] = field(default_factory=list)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.rounds))

    def ours(self, operation: Callable[[], Any]) -> Any:
        started, used = time.perf_counter(), time.process_time()
        came = operation()
        self.ours_s.append(time.perf_counter() - started)
        self.processor_s.append(time.process_time() - used)
        return came

    def bare(self, operation: Operation) -> None:
        started = time.perf_counter()
        operation()
        self.bare_s.append(time.perf_counter() - started)

    def row(self, name: str, size: str, against: str, target: Target | None = None, more: str = "") -> Row:
        """The first round warms up."""
        used = f"{1000 * statistics.median(self.processor_s[1:] or self.processor_s):.0f} ms of the processor{more}"
        return Row(name, size, against, _timing(self.ours_s[1:]), _timing(self.bare_s[1:]), target, note=used)


@benchmark("decay")
def decay(bench: Bench) -> Iterator[Row]:
    """Either every priority is another than is shown, or none."""
    memories = MEMORIES // 10 if bench.quick else MEMORIES
    clock = Clock()
    session = _filled(bench, {DECISION: memories // 2, FINDING: memories // 2}, clock, RECENT)
    bare = bench.directory / "bare-decay"
    bare.mkdir()
    _copy_files(session, bare)
    for name, times in (("decay, all priorities differ", (LATER, SOON)), ("decay, nothing differs", (SOON,))):
        turns = Turns(bench.rounds(20) + 1)
        for turn, clock.now in zip(turns, itertools.cycle(times), strict=False):
            _make_index_true(session)
            if len(times) == 1 and not turn:
                session.decay()
                _make_index_true(session)
            outcome = turns.ours(session.decay)
            changed = {name for action in outcome.actions for name in action.about}
            if len(times) > 1 and f"{memories // 2:,} priorities" not in outcome.actions[0].reason:
                raise RuntimeError(f"not all priorities differ: {outcome.actions}")
            turns.bare(partial(_rewrite_bare, bare, changed or None))
        against = "read + write + fsync + rename" if len(times) > 1 else "read"
        yield turns.row(name, f"{memories:,}", against, DECAY)


@benchmark("compaction")
def compaction(bench: Bench) -> Iterator[Row]:
    """By what a session that is nearly full is made smaller; and by all that may go."""
    size = _megabytes(bench)
    for name, reduction_pct, has_indexes in (("compaction, 20 %", 20.0, False), ("compaction, 20 %, YAML indexes", 20.0, True),
                                             ("compaction, all that may go", 100.0, False)):  # fmt: skip
        turns = Turns(bench.rounds(3) + 1)
        freed = 0
        for _ in turns:
            session = _large(bench)
            if has_indexes:
                _write_indexes(session)
            before = _contents(session)
            result = turns.ours(partial(session.compact, reduction_pct=reduction_pct))
            freed = result.counts["bytes_freed"]
            turns.bare(partial(_pack_bare, bench.directory / "bare.gz", _taken_out(session, before)))
            _remove(session)
        more = f", {freed / 1e6:.1f} MB freed"
        # Two thirds go in one step only on demand: there the time that the documents ask for is enough.
        target = COMPACTION if reduction_pct < 100 else Target(seconds=5.0)
        yield turns.row(name, megabyte_label(size), "read + gzip -6 + fsync, as taken out", target, more)


@benchmark("archive")
def archive(bench: Bench) -> Iterator[Row]:
    size = megabyte_label(_megabytes(bench))
    there, back = Turns(bench.rounds(3) + 1), Turns(bench.rounds(3) + 1)
    for _ in there:
        session = _large(bench)
        memory, place = _memory(session), _place(session)
        there.bare(partial(_archive_bare, place, bench.directory / "bare.tar.gz"))
        there.ours(partial(memory.archive_session, session.id))
        _wait_until_gone(memory)
        back.bare(partial(_unarchive_bare, bench.directory / "bare.tar.gz", bench.directory / "bare-back"))
        back.ours(partial(memory.restore_session, session.id))
        shutil.rmtree(bench.directory / "bare-back")
        _remove(session)
    yield there.row("archive", size, "read + tar + gzip -6 + fsync", ARCHIVE)
    yield back.row("unarchive", size, "gunzip + untar + fsync each", ARCHIVE)


@benchmark("purge")
def purge(bench: Bench) -> Iterator[Row]:
    """With another session of the same size, which stays: the index is looked through too."""
    turns = Turns(bench.rounds(3) + 1)
    for _ in turns:
        session = _large(bench)
        memory = _memory(session)
        gone = _fill(memory.create_session(user="benchmark", quota_bytes=QUOTA_BYTES), _half_conversation(_megabytes(bench)))
        memory.delete_session(gone.id, reason="done with it")
        _wait_until_gone(memory)
        copy = shutil.copytree(memory.root / "deleted" / gone.id, bench.directory / "bare-deleted")
        memory.options.clock.now = NOW + timedelta(days=40)  # type: ignore[attr-defined]
        outcome = turns.ours(partial(memory.privacy.purge, force=True))
        if outcome.problems or not outcome.actions:
            raise RuntimeError(f"nothing was purged: {outcome.problems}")
        turns.bare(partial(_remove_bare, copy))
        _remove(session)
    yield turns.row("purge a deleted session", megabyte_label(_megabytes(bench)), "unlink + fsync")


# Whoever writes meanwhile.


def _decay_on(memory: Memory, session_id: str, turn: int) -> None:
    memory.options.clock.now = NOW + timedelta(days=turn % 2)  # type: ignore[attr-defined]
    memory.session(session_id).decay()


def _compact_on(memory: Memory, session_id: str, turn: int) -> None:
    if turn % 2:
        memory.session(session_id).bring_back()
    else:
        memory.session(session_id).compact(reduction_pct=100)


def _archive_on(memory: Memory, session_id: str, turn: int) -> None:
    if turn % 2:
        memory.restore_session(session_id)
    else:
        memory.archive_session(session_id)


PASSES = {"decay": _decay_on, "compaction and back": _compact_on, "archive and back": _archive_on}


@benchmark("write meanwhile")
def write_meanwhile(bench: Bench) -> Iterator[Row]:
    """One pass after the other, over the session that is written to or over another one; a refusal counts as waiting."""
    passes = 4
    for name in PASSES:
        for where in ("another session", "the same session"):
            busy = _large(bench)
            session = busy if where == "the same session" else _memory(busy).create_session(quota_bytes=QUOTA_BYTES)
            write = partial(_write, Memory(_root(busy)), session.id, itertools.count())
            alone = [_seconds(write) for _ in range(bench.rounds(500))]
            with _passes(name, _root(busy), busy.id) as done:
                meanwhile = [_seconds(write) for _ in iter(lambda: done() >= passes, True)]
            alone += [_seconds(write) for _ in range(bench.rounds(500))]
            ours, bare = _timing(meanwhile), _timing(alone)
            note = f"p99 {ours.p99_s / bare.p99_s:.1f} x; longest {1000 * max(meanwhile):.0f} ms of {len(meanwhile):,}"
            yield Row(f"write during {name}", where, "the same, alone", ours, bare, note=note)
            _remove(busy)


def _write(memory: Memory, session_id: str, numbers: Iterator[int]) -> None:
    """Into the files that passes change, by turns."""
    deadline = time.monotonic() + 60
    kind = (TURN, FINDING)[next(numbers) % 2]
    while True:
        try:
            _add(memory.session(session_id), kind)
            return
        except SessionPutAway:
            if time.monotonic() > deadline:
                raise


@contextmanager
def _passes(name: str, root: Path, session_id: str) -> Iterator[Callable[[], float]]:
    """Tell how many are done, by a process of its own that finishes its last. One that has died is done with all."""
    done, stop = multiprocessing.Value("i", 0), multiprocessing.Event()
    process = multiprocessing.Process(target=_keep_passing, args=(name, root, session_id, done, stop))
    process.start()
    try:
        yield lambda: done.value if process.is_alive() else float("inf")
    finally:
        stop.set()
        process.join()
    if process.exitcode:
        raise RuntimeError(f"{name} ended with {process.exitcode}")


def _keep_passing(name: str, root: Path, session_id: str, done: Any, stop: Event) -> None:
    memory = Memory(root, clock=Clock(), count_access=False)
    for turn in itertools.count():
        # What was put away stays put away: whoever writes would wait for ever.
        if stop.is_set() and not turn % 2:
            return
        PASSES[name](memory, session_id, turn)
        done.value += 1


# Sessions.


def _megabytes(bench: Bench) -> float:
    return 0.5 if bench.quick else 10


def _large(bench: Bench) -> Session:
    """One of its own root, half of it old conversation."""
    return _filled(bench, _half_conversation(_megabytes(bench)), Clock())


def _half_conversation(megabytes: float) -> dict[Kind, int]:
    shares = {TURN: 0.5, DECISION: 0.25, FINDING: 0.25}
    return {kind: int(share * megabytes * 1e6 / (len(_records(kind, 100, SPREAD)) / 100)) for kind, share in shares.items()}


def _filled(bench: Bench, counts: dict[Kind, int], clock: Clock, spread: timedelta = SPREAD) -> Session:
    return _fill(new_session(bench.directory, clock=clock, count_access=False), counts, spread)


def _fill(session: Session, counts: dict[Kind, int], spread: timedelta = SPREAD) -> Session:
    """Known to the client as after a write, and to the index."""
    for kind, count in counts.items():
        (_place(session) / kind.file).write_bytes(format_of(kind).empty(session.id, AT, []) + _records(kind, count, spread))
        _add(session, kind)
    _make_index_true(session)
    return session


def _add(session: Session, kind: Kind) -> None:
    if kind is TURN:
        session.add_turn("user", "Who may see the admin pages?")
    elif kind is DECISION:
        session.record_decision("Only admins see the admin pages", made_by="architect")
    else:
        session.record_finding("Anybody sees the admin pages", discovered_by="veritas", severity="critical")


@cache
def _records(kind: Kind, count: int, spread: timedelta) -> bytes:
    """As many memories, from the oldest to the newest; every second finding is resolved."""
    draw = random.Random(count)
    between = spread / count
    rendered = []
    for number in range(1, count + 1):
        fields = new_fields(kind, _fields(kind, draw, number), AT + number * between)
        numbered = {"turn": number} if kind is TURN else {}
        rendered.append(format_of(kind).render({"id": kind.memory_id(number), **numbered, **fields}, 2))
    return b"".join(rendered)


def _fields(kind: Kind, draw: random.Random, number: int) -> dict[str, Any]:
    words, frequencies = vocabulary()

    def say(count: int) -> str:
        return f"{' '.join(draw.choices(words, cum_weights=frequencies, k=count)).capitalize()}."

    who, tags = draw.choice(PEOPLE), sorted(set(draw.choices(TOPICS, k=2)))
    if kind is TURN:
        return {"speaker": who, "type": "message", "content": f"{say(12)} {say(16)} {say(8)}"}
    if kind is DECISION:
        return {"decision": say(12), "made_by": who, "rationale": say(20), "confidence": "high", "tags": tags}
    status = "resolved" if number % 2 else "open"
    return {"finding": say(15), "discovered_by": who, "severity": "important", "tags": tags, "resolution": {"status": status}}


def _make_index_true(session: Session) -> None:
    session.topics()


def _write_indexes(session: Session) -> None:
    memory = _memory(session)
    session._asker().ask(lambda view: write_indexes(memory, view.index, session.id))
    _make_index_true(session)


def _contents(session: Session) -> Files:
    return {path.name: path.read_bytes() for path in sorted(_place(session).iterdir()) if path.is_file()}


def _taken_out(session: Session, before: Files) -> Files:
    """So many bytes of each file, from its beginning, as are gone from it."""
    after = _contents(session)
    return {name: content[: max(len(content) - len(after.get(name, b"")), 0)] for name, content in before.items()}


def _copy_files(session: Session, target: Path) -> None:
    for name, content in _contents(session).items():
        (target / name).write_bytes(content)


def _memory(session: Session) -> Memory:
    return Memory(_root(session), clock=session.scope.options.clock, count_access=False)


def _root(session: Session) -> Path:
    return session.memory.root


def _place(session: Session) -> Path:
    return _root(session) / session.scope.directory


def _remove(session: Session) -> None:
    shutil.rmtree(_root(session))


def _wait_until_gone(memory: Memory) -> None:
    """What was put away stays for a moment for those who had it open, and is removed then."""
    wait_until(lambda: not sweep(memory) and not list((memory.root / LEAVING).iterdir()), look_every_s=0.2)


# The bare operations.


def _rewrite_bare(directory: Path, names: set[str] | None) -> None:
    for path in sorted(directory.iterdir()):
        content = path.read_bytes()
        if names and path.name in names:
            _write_bare(path.with_suffix(".new"), content)
            path.with_suffix(".new").rename(path)


def _pack_bare(target: Path, files: Files) -> None:
    _write_bare(target, gzip.compress(b"".join(files.values()), LEVEL))


def _archive_bare(directory: Path, target: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=LEVEL) as archive:
        archive.add(directory, "")
    _write_bare(target, packed.getvalue())


def _unarchive_bare(packed: Path, target: Path) -> None:
    with tarfile.open(packed, "r:gz") as archive:
        for entry in archive:
            opened = archive.extractfile(entry) if entry.isfile() else None
            if opened:
                (target / entry.name).parent.mkdir(parents=True, exist_ok=True)
                _write_bare(target / entry.name, opened.read())


def _remove_bare(directory: Path) -> None:
    shutil.rmtree(directory)
    descriptor = os.open(directory.parent, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def _write_bare(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _seconds(operation: Operation) -> float:
    started = time.perf_counter()
    operation()
    return time.perf_counter() - started


def _timing(times: list[float]) -> Timing:
    ordered = sorted(times)
    return Timing(statistics.median(ordered), ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)])
