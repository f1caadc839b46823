"""What it costs to read straight from the files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from smp_client.model.record import DECISION, TURN

from .measure import Bench, Row, Target, benchmark
from .samples import count_in, file_of, filled_session, megabyte_label

MANY = 10_000


@benchmark("get by id")
def get_one(bench: Bench) -> Iterator[Row]:
    sizes = [(megabyte_label(megabytes), max(count_in(DECISION, megabytes), 1)) for megabytes in bench.megabytes(0, 1, 10)]
    for size, held in [*sizes, (f"{MANY:,} memories", MANY)]:
        session = filled_session(bench.directory, DECISION, held)
        read = partial(_read_bare, file_of(session, DECISION))
        # The search begins at the end of the file, so the first is the hardest to find.
        for place, number in (("first", 1), ("last", held)):
            times = bench.compare(partial(session.get, DECISION.memory_id(number)), read, rounds=200)
            target = Target(seconds=0.001) if held == MANY else None
            yield Row(f"get the {place} decision", size, "read the file", *times, target)


@benchmark("last turns")
def last_turns(bench: Bench) -> Iterator[Row]:
    for megabytes in bench.megabytes(0, 1, 10):
        session = filled_session(bench.directory, TURN, max(count_in(TURN, megabytes), 20))
        read = partial(_read_bare, file_of(session, TURN))
        times = bench.compare(partial(session.turns, last=20), read, rounds=200)
        yield Row("turns(last=20)", megabyte_label(megabytes), "read the file", *times)


def _read_bare(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    content = os.read(descriptor, os.fstat(descriptor).st_size)
    os.close(descriptor)
    return content
