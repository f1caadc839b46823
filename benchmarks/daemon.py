"""What it costs to look after a memory: until what is written is found, from nothing, and when nothing happens."""

from __future__ import annotations

import itertools
import multiprocessing
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from smp_client import Memory, Session
from smp_client.disk.session_files import render_artifact
from smp_client.index.database import Index
from smp_client.index.take_in import rebuild
from smp_client.model.layout import INDEX_FILE
from smp_client.model.record import DECISION
from smp_client.text.format import format_of

from .measure import Bench, Row, Target, Timing, benchmark, exponent_of
from .processes import (
    CHECKOUT,
    compiled_environment,
    daemon,
    processor_s,
    resident_mb,
    smp,
    wait_until,
)
from .samples import (
    AT,
    DECIDED,
    QUOTA_BYTES,
    append_bare,
    bare_file,
    content,
    count_in,
    file_of,
    megabyte_label,
    new_session,
    rendered,
)

WRITERS = 16
PAUSES_S = {"alone": None, "16 writers, 10/s each": 0.1}
BURST_FILES = 20_000
SESSIONS, MEMORIES = 100, 1_000
IDLE_S = 20.0
SETTLE_S = 5.0  # after the start, until the last derived file is written
# What a daemon takes at rest: its unit, and what we hold. The first start indexes everything: so long for 100 sessions.
RESTING = {
    "first start, until ready": ("s", Target(seconds=30.0)), "later start, until ready": ("s", Target(seconds=2.0)),
    "idle daemon, of a core": ("%", Target(below=0.5)), "idle daemon, memory": ("MB", Target(below=100)),
}  # fmt: skip


@benchmark("write to found")
def write_to_found(bench: Bench) -> Iterator[Row]:
    for who, pause_s in PAUSES_S.items():
        session = new_session(bench.directory)
        root = session.memory.root
        bare = partial(append_bare, bare_file(bench.directory, b""), rendered(DECISION, 1))
        with daemon(root), _writers(root, pause_s), _reader(root) as reader:
            times = bench.compare(partial(_write_and_find, session, reader), bare, rounds=300)
        yield Row("write, until a query finds it", who, "append + fsync", *times, Target(p99_seconds=0.1))


def _write_and_find(session: Session, reader: sqlite3.Connection) -> None:
    wanted = (session.id, session.record_decision(**DECIDED).id)
    wait_until(lambda: reader.execute("SELECT 1 FROM memories WHERE scope = ? AND id = ?", wanted).fetchone() is not None)


@contextmanager
def _reader(root: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(f"{(root / INDEX_FILE).as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def _writers(root: Path, pause_s: float | None) -> Iterator[None]:
    """Others that write to sessions of their own meanwhile; None is nobody."""
    count = 0 if pause_s is None else WRITERS
    writers = [multiprocessing.Process(target=_keep_writing, args=(root, pause_s)) for _ in range(count)]
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        for writer in writers:
            writer.terminate()
            writer.join()


def _keep_writing(root: Path, pause_s: float) -> None:
    session = Memory(root).create_session(quota_bytes=QUOTA_BYTES)
    while True:
        session.record_decision(**DECIDED)
        time.sleep(pause_s)


@benchmark("burst")
def burst(bench: Bench) -> Iterator[Row]:
    """Dropped by another program, which neither locks nor waits."""
    total = bench.rounds(BURST_FILES)
    session = new_session(bench.directory)
    root = session.memory.root
    names = itertools.count(1)
    directories = [root / session.scope.path("artifacts"), bench.directory / "burst"]
    directories[1].mkdir()
    with daemon(root), _reader(root) as reader:
        bare = _seconds(lambda: _write_files(directories[1], total, names))
        ours = _seconds(lambda: _write_and_find_files(directories[0], total, names, reader))
    rate = f"{total / ours.median_s:.0f} files/s"
    yield Row("new files, until all are found", f"{total:,} files", "write them", ours, bare, note=rate)


def _write_files(directory: Path, total: int, names: Iterator[int]) -> None:
    for name in itertools.islice(names, total):
        (directory / f"note-{name}.md").write_bytes(render_artifact(f"note-{name}", "Tokens live for 15 minutes.", {}, AT))


def _write_and_find_files(directory: Path, total: int, names: Iterator[int], reader: sqlite3.Connection) -> None:
    _write_files(directory, total, names)
    wait_until(lambda: _artifacts(reader) == total, 0.05)


def _artifacts(reader: sqlite3.Connection) -> int:
    found: int = reader.execute("SELECT COUNT(*) FROM memories WHERE type = 'artifact'").fetchone()[0]
    return found


@benchmark("rebuild")
def rebuild_all(bench: Bench) -> Iterator[Row]:
    for megabytes in bench.megabytes(1, 10):
        session = new_session(bench.directory)
        text = content(DECISION, count_in(DECISION, megabytes))
        file_of(session, DECISION).write_bytes(text)
        yield _rebuilt(bench, session.memory.root, megabyte_label(megabytes), [text])
    memory, texts, size = _many_sessions(bench)
    yield _rebuilt(bench, memory.root, size, texts)


def _rebuilt(bench: Bench, root: Path, size: str, texts: list[bytes]) -> Row:
    index = Index.open(root / INDEX_FILE)
    try:
        times = bench.compare(partial(rebuild, Memory(root), index), partial(_parse_all, texts), rounds=3)
    finally:
        index.close()
    speed = f"{sum(map(len, texts)) / times[0].median_s / 1e6:.3g} MB/s"
    return Row("rebuild the index", size, "parse the same", *times, Target(ratio=1), note=speed)


def _parse_all(texts: list[bytes]) -> None:
    for text in texts:
        format_of(DECISION).parse(text)


def _many_sessions(bench: Bench, sessions: int = 0) -> tuple[Memory, list[bytes], str]:
    sessions = sessions or bench.rounds(SESSIONS)
    text = content(DECISION, MEMORIES)
    memory = Memory(new_session(bench.directory).memory.root)
    for number in range(sessions):
        file_of(memory.create_session(id=f"s{number}", quota_bytes=QUOTA_BYTES), DECISION).write_bytes(text)
    return memory, [text] * sessions, f"{sessions} x {MEMORIES:,}"


@benchmark("sessions")
def sessions(bench: Bench) -> Iterator[Row]:
    """The daemon with ten times as many sessions: how long it takes to be ready, and what it takes when nothing happens."""
    few = bench.rounds(SESSIONS)
    awake_s = IDLE_S / 4 if bench.quick else IDLE_S
    measured: dict[int, dict[str, float]] = {}
    for count in (few, 10 * few):
        memory, _, _ = _many_sessions(bench, count)
        measured[count] = found = {}
        found["first start, until ready"] = _seconds_until_ready(memory.root)
        found["later start, until ready"] = _seconds_until_ready(memory.root)
        with daemon(memory.root) as pid:
            _settle(pid)
            before = processor_s(pid)
            time.sleep(awake_s)
            # One tick of the clock is the least that can be told.
            found["idle daemon, of a core"] = 100 * max(processor_s(pid) - before, 0.01) / awake_s
            found["idle daemon, memory"] = resident_mb(pid)
        for name, (unit, target) in RESTING.items():
            amounts = {each: values[name] for each, values in measured.items()}
            grows = f"n^{exponent_of(amounts):.2f}" if len(amounts) > 1 else ""
            longer = max(count / SESSIONS, 1.0)
            limit: Target | None = replace(target, seconds=target.seconds * longer) if target.seconds else target
            if unit == "%" and count > SESSIONS:
                limit = None  # the design has one for a hundred sessions
            yield Row(name, f"{count:,} x {MEMORIES:,}", f"with {few:,} sessions", _once(found[name]),
                      _once(measured[few][name]), limit, grows, unit)  # fmt: skip


def _seconds_until_ready(root: Path) -> float:
    """Of the processor, which do not depend on what else the machine does."""
    with daemon(root) as pid:
        return processor_s(pid)


def _settle(pid: int) -> None:
    """Until it has written all that follows from the first scan."""
    calm = 0
    while calm < 3:  # in a row, for on a busy machine it may only have had no turn
        used = processor_s(pid)
        time.sleep(SETTLE_S)
        calm = calm + 1 if processor_s(pid) - used < 0.02 * SETTLE_S else 0


@benchmark("status from the shell")
def status(bench: Bench) -> Iterator[Row]:
    memory, _, size = _many_sessions(bench)
    environment = compiled_environment(bench.directory)
    run = partial(subprocess.run, cwd=CHECKOUT, env=environment, stdout=subprocess.DEVNULL, check=False)
    ask, bare = partial(run, [*smp("status"), "--root", str(memory.root)]), partial(run, [sys.executable, "-c", "pass"])
    with daemon(memory.root) as pid:
        _settle(pid)
        yield Row("smp status", size, "python -c pass", *bench.compare(ask, bare, rounds=30), Target(seconds=0.1))
    yield Row("smp status, daemon down", size, "python -c pass", *bench.compare(ask, bare, rounds=30), Target(seconds=0.1))


def _seconds(operation: Callable[[], object]) -> Timing:
    started = time.perf_counter()
    operation()
    return _once(time.perf_counter() - started)


def _once(value: float) -> Timing:
    return Timing(value, value)
