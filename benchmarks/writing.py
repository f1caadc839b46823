"""What it costs to write."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path

from smp_client import Memory, Redaction, Session
from smp_client.model.record import DECISION, TURN, Kind

from .measure import Bench, Row, Target, benchmark
from .samples import (
    DECIDED,
    add,
    append_bare,
    bare_file,
    count_in,
    file_of,
    filled_session,
    megabyte_label,
    new_session,
    rendered,
)  # fmt: skip

PROCESSES = 16
BATCH = 100
EACH_S = 0.00015  # a record in a transaction
NAMES = ((DECISION, "record_decision"), (TURN, "add_turn"))


@benchmark("record one, durable")
def record_one(bench: Bench) -> Iterator[Row]:
    for kind, name in NAMES:
        for megabytes in bench.megabytes(0, 1, 10):
            session = filled_session(bench.directory, kind, count_in(kind, megabytes))
            bare = bare_file(bench.directory, file_of(session, kind).read_bytes())
            added = rendered(kind, count_in(kind, megabytes) + 1)
            times = bench.compare(partial(add, session, kind), partial(append_bare, bare, added), rounds=600, block=20)
            yield Row(f"{name}, durable", megabyte_label(megabytes), "append + fsync", *times, Target(ratio=2.5))


@benchmark("record at 10 MB against at 0")
def record_in_large(bench: Bench) -> Iterator[Row]:
    megabytes = bench.megabytes(1, 10)[-1]
    for kind, name in NAMES:
        large = filled_session(bench.directory, kind, count_in(kind, megabytes))
        small = new_session(bench.directory)
        times = bench.compare(partial(add, large, kind), partial(add, small, kind), rounds=600, block=20)
        # The design says "the same"; a fifth is what the disk alone differs by.
        yield Row(f"{name}, durable", megabyte_label(megabytes), "the same at 0 MB", *times, Target(ratio=1.2))


@benchmark("redact what is clean")
def redact_clean(bench: Bench) -> Iterator[Row]:
    """What every write pays for the search for secrets; mostly there is none."""
    redaction = Redaction()
    for name, value, limit_s in (("a text", DECIDED["rationale"], 5e-6), ("a decision", DECIDED, 15e-6)):
        times = bench.compare(partial(redaction.redacted_value, value), partial(json.dumps, value), rounds=5000, block=50)
        yield Row(f"redact {name}", "", "json.dumps", *times, Target(seconds=limit_s))


@benchmark("record 100 at once")
def record_batch(bench: Bench) -> Iterator[Row]:
    for megabytes in bench.megabytes(0, 1, 10):
        held = count_in(DECISION, megabytes)
        session = filled_session(bench.directory, DECISION, held)
        bare = bare_file(bench.directory, file_of(session, DECISION).read_bytes())
        added = b"".join(rendered(DECISION, held + number) for number in range(BATCH))
        ours, other = bench.compare(partial(_add_in_transaction, session), partial(append_bare, bare, added), rounds=30)
        each = f"{ours.median_s / BATCH * 1e6:.0f} µs for each"
        limit = Target(seconds=EACH_S * BATCH)
        yield Row("100 decisions in a transaction", megabyte_label(megabytes), "one append + fsync", ours, other, limit, each)


def _add_in_transaction(session: Session) -> None:
    with session.transaction() as transaction:
        for _ in range(BATCH):
            transaction.record_decision(**DECIDED)


@benchmark("update one record")
def update_one(bench: Bench) -> Iterator[Row]:
    for megabytes in bench.megabytes(0, 1, 10):
        held = max(count_in(DECISION, megabytes), 1)
        session = filled_session(bench.directory, DECISION, held)
        after = file_of(session, DECISION).read_bytes()
        bare = bare_file(bench.directory, after)
        update = partial(_update, session, DECISION.memory_id(held // 2 + 1), cycle(("low", "medium", "high")))
        times = bench.compare(update, partial(_replace_bare, bare, after), rounds=200 if megabytes <= 1 else 30)
        yield Row("update one decision", megabyte_label(megabytes), "write + fsync + rename", *times)


def _update(session: Session, memory_id: str, confidences: Iterator[str]) -> None:
    session.update(memory_id, confidence=next(confidences))


def _replace_bare(path: Path, after: bytes) -> None:
    temporary = path.with_suffix(".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(descriptor, after)
    os.fsync(descriptor)
    os.close(descriptor)
    os.rename(temporary, path)


@benchmark("16 processes")
def many_processes(bench: Bench) -> Iterator[Row]:
    """The same number of records written by many at once, and by one."""
    total = bench.rounds(1600)
    session = filled_session(bench.directory, DECISION, 0)
    add_many = partial(_add_many, session.memory.root, session.id, DECISION)
    append_many = partial(_append_many, bare_file(bench.directory, b""), rendered(DECISION, 1))
    together = partial(_share, PROCESSES, total, add_many)
    for against, other in (
        ("16 processes, append + fsync", partial(_share, PROCESSES, total, append_many)),
        ("1 process, one file", partial(_share, 1, total, add_many)),
    ):
        times = bench.compare(together, other, rounds=5)
        rate = f"{total / times[0].median_s:.0f} against {total / times[1].median_s:.0f} records/s"
        yield Row("16 processes, one file", f"{total} records", against, *times, note=rate)


def _share(processes: int, total: int, work: Callable[[int], None]) -> None:
    workers = [multiprocessing.Process(target=work, args=(total // processes,)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _add_many(root: Path, session_id: str, kind: Kind, records: int) -> None:
    session = Memory(root).session(session_id)
    for _ in range(records):
        add(session, kind)


def _append_many(path: Path, added: bytes, records: int) -> None:
    for _ in range(records):
        append_bare(path, added)
