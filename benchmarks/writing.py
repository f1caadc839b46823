"""What it costs to write."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path

from smp_client import Memory
from smp_client.records import DECISION, TURN, Kind

from .measure import Bench, Row, Target, benchmark
from .samples import (
    DECIDED,
    add,
    append_bare,
    bare_file,
    content,
    count_in,
    file_of,
    filled_session,
    megabyte_label,
    new_session,
    rendered,
)  # fmt: skip

PROCESSES = 16
BATCH = 100


@benchmark("record one, durable")
def record_one(bench: Bench) -> Iterator[Row]:
    for kind, name in ((DECISION, "record_decision"), (TURN, "add_turn")):
        for megabytes in bench.megabytes(0, 1, 10):
            session = filled_session(bench.directory, kind, count_in(kind, megabytes))
            bare = bare_file(bench.directory, file_of(session, kind).read_bytes())
            added = rendered(kind, count_in(kind, megabytes) + 1)
            times = bench.compare(
                lambda session=session, kind=kind: add(session, kind),
                lambda bare=bare, added=added: append_bare(bare, added),
                rounds=600, block=20,
            )  # fmt: skip
            yield Row(f"{name}, durable", megabyte_label(megabytes), "append + fsync", *times, Target(ratio=3))


@benchmark("record at 10 MB against at 0")
def record_in_large(bench: Bench) -> Iterator[Row]:
    megabytes = bench.megabytes(1, 10)[-1]
    for kind, name in ((DECISION, "record_decision"), (TURN, "add_turn")):
        large = filled_session(bench.directory, kind, count_in(kind, megabytes))
        small = new_session(bench.directory)
        times = bench.compare(
            lambda large=large, kind=kind: add(large, kind), lambda small=small, kind=kind: add(small, kind), rounds=400, block=20
        )
        # The design says "the same"; a fifth is what the disk alone differs by.
        yield Row(f"{name}, durable", megabyte_label(megabytes), "the same at 0 MB", *times, Target(ratio=1.2))


@benchmark("record without fsync")
def record_unsynced(bench: Bench) -> Iterator[Row]:
    """What our own work costs, without the disk's."""
    session = filled_session(bench.directory, DECISION, 0, fsync="batch")
    bare = bare_file(bench.directory, b"")
    added = rendered(DECISION, 1)

    def write() -> None:
        descriptor = os.open(bare, os.O_WRONLY | os.O_APPEND)
        os.write(descriptor, added)
        os.close(descriptor)

    yield Row("record_decision, fsync='batch'", "0 MB", "append", *bench.compare(lambda: add(session, DECISION), write, rounds=1000))


@benchmark("record 100 at once")
def record_batch(bench: Bench) -> Iterator[Row]:
    for megabytes in bench.megabytes(0, 1, 10):
        held = count_in(DECISION, megabytes)
        whole = filled_session(bench.directory, DECISION, held)
        batched = filled_session(bench.directory, DECISION, held, fsync="batch")
        added = b"".join(rendered(DECISION, held + number) for number in range(BATCH))

        def transaction(whole: object = whole) -> None:
            with whole.transaction() as pending:  # type: ignore[attr-defined]
                for _ in range(BATCH):
                    pending.record_decision(**DECIDED)

        def batch(batched: object = batched) -> None:
            for _ in range(BATCH):
                batched.record_decision(**DECIDED)  # type: ignore[attr-defined]
            batched.sync()  # type: ignore[attr-defined]

        for name, ours in (("100 decisions in a transaction", transaction), ("100 decisions, then sync()", batch)):
            bare = bare_file(bench.directory, content(DECISION, held))
            times = bench.compare(ours, lambda bare=bare: append_bare(bare, added), rounds=30)  # noqa: B023
            yield Row(name, megabyte_label(megabytes), "one append + fsync", *times, note=_each(times[0].median_s))


def _each(seconds: float) -> str:
    return f"{seconds / BATCH * 1e6:.0f} µs for each"


@benchmark("update one record")
def update_one(bench: Bench) -> Iterator[Row]:
    for megabytes in bench.megabytes(0, 1, 10):
        session = filled_session(bench.directory, DECISION, max(count_in(DECISION, megabytes), 10))
        after = file_of(session, DECISION).read_bytes()
        bare = bare_file(bench.directory, after)
        middle = DECISION.memory_id(max(count_in(DECISION, megabytes), 10) // 2)
        confidence = iter(("low", "medium", "high") * 1000)

        def update(session: object = session, middle: str = middle, confidence: Iterator[str] = confidence) -> None:
            session.update(middle, confidence=next(confidence))  # type: ignore[attr-defined]

        times = bench.compare(update, lambda bare=bare, after=after: _replace_bare(bare, after), rounds=100 if megabytes < 10 else 20)
        yield Row("update one decision", megabyte_label(megabytes), "write + fsync + rename", *times)


def _replace_bare(path: Path, after: bytes) -> None:
    temporary = path.with_suffix(".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(descriptor, after)
    os.fsync(descriptor)
    os.close(descriptor)
    os.rename(temporary, path)


@benchmark("16 processes")
def many_processes(bench: Bench) -> Iterator[Row]:
    """Every process writes the same number, so the time for each record says what waiting for each other costs."""
    session = filled_session(bench.directory, DECISION, 0)
    bare = bare_file(bench.directory, b"")
    total = bench.rounds(1600)
    ours, append = (_add_many, (session.scope.tree.root, session.id, DECISION)), (_append_many, (bare, rendered(DECISION, 1)))
    for name, against, one, other, alone in (
        ("16 processes, one file", "16 processes, append + fsync", ours, append, PROCESSES),
        ("16 processes, one file", "1 process, one file", ours, ours, 1),
    ):
        times = bench.compare(
            lambda one=one: _run(PROCESSES, total // PROCESSES, *one),
            lambda other=other, alone=alone: _run(alone, total // alone, *other),
            rounds=3,
        )  # fmt: skip
        yield Row(name, f"{total} records", against, *times, note=f"{total / times[0].median_s:.0f} records/s")


def _run(processes: int, records: int, work: Callable[..., None], arguments: tuple[object, ...]) -> None:
    barrier = multiprocessing.Barrier(processes + 1)
    workers = [multiprocessing.Process(target=work, args=(barrier, records, *arguments)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _add_many(_: Barrier, records: int, root: Path, session_id: str, kind: Kind) -> None:
    session = Memory(root).session(session_id)
    for _number in range(records):
        add(session, kind)


def _append_many(_: Barrier, records: int, path: Path, added: bytes) -> None:
    for _number in range(records):
        append_bare(path, added)


_ = time
