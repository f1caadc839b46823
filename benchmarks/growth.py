"""How the time of each operation grows: with the memories of a session, and with the sessions of a tree.

Each is measured at one, ten and a hundred times the size. `n^0` does not grow, and `n^1` grows in proportion.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from smp_client import Memory, Session
from smp_client.index.database import Index
from smp_client.index.status import read_status
from smp_client.index.take_in import rebuild
from smp_client.model.layout import INDEX_FILE
from smp_client.passes.check import check

from .asking import QUESTION, fill_session, filled_memory
from .measure import Bench, Operation, Row, Target, Timing, benchmark, exponent_of
from .samples import DECIDED, QUOTA_BYTES, new_session

LONGEST_S = 1.5  # the operations of all sizes are repeated for so long, but at least three times
SIZES = (100, 1_000, 10_000)
IN_EACH = 100
# What grows, at the most: nothing that only touches one memory, all else in proportion. The rest is the noise of a machine.
FLAT, LINEAR = 0.15, 1.1


@dataclass(frozen=True)
class Grown:
    name: str
    of: Callable[[Memory, Session], Operation]
    at_most: float


def _archive_and_restore(memory: Memory, session: Session) -> Operation:
    def there_and_back() -> None:
        memory.archive_session(session.id)
        memory.restore_session(session.id)

    return there_and_back


def _delete_and_restore(_: Memory, session: Session) -> Operation:
    def there_and_back() -> None:
        session.delete("DEC-001", reason="measured")
        session.restore("DEC-001")

    return there_and_back


def _update(_: Memory, session: Session) -> Operation:
    numbers = itertools.count()
    return lambda: session.update("DEC-001", number=next(numbers))


def _rebuild(memory: Memory, _: Session) -> Operation:
    def build() -> None:
        index = Index.in_memory()
        rebuild(memory, index)
        index.close()

    return build


def _hundred(_: Memory, session: Session) -> Operation:
    def record() -> None:
        with session.transaction() as transaction:
            for _ in range(100):
                transaction.record_decision(**DECIDED)

    return record


# The questions come first: what is written afterwards is read by the next of them.
OF_A_SESSION = (
    Grown("get", lambda _, session: lambda: session.get("DEC-003"), FLAT),
    Grown("by_topic, limit=20", lambda _, session: lambda: session.by_topic("cache", limit=20), LINEAR),
    Grown("search, one word", lambda _, session: lambda: session.search("refresh"), LINEAR),
    Grown("search, a question", lambda _, session: lambda: session.search(QUESTION), LINEAR),
    Grown("topics", lambda _, session: session.topics, LINEAR),
    Grown("summary", lambda _, session: session.summary, LINEAR),
    Grown("check", lambda memory, _: lambda: check(memory), LINEAR),
    Grown("decay, nothing differs", lambda _, session: session.decay, LINEAR),
    Grown("rebuild the index", _rebuild, LINEAR),
    Grown("archive and restore", _archive_and_restore, LINEAR),
    Grown("delete one and restore it", _delete_and_restore, LINEAR),
    Grown("update one", _update, LINEAR),
    Grown("record one, durable", lambda _, session: lambda: session.record_decision(**DECIDED), FLAT),
    Grown("record 100 in a transaction", _hundred, FLAT),
)
OF_A_TREE = (
    # A relationship of any session may say that the memory no longer holds, so each session is looked at.
    Grown("get of one session", lambda _, session: lambda: session.get("DEC-003"), LINEAR),
    Grown("search in one session", lambda _, session: lambda: session.search("refresh"), LINEAR),
    Grown("search everywhere", lambda memory, _: lambda: memory.search("refresh"), LINEAR),
    Grown("list the sessions", lambda memory, _: memory.sessions, LINEAR),
    Grown("status", lambda memory, _: lambda: read_status(memory), LINEAR),
    Grown("check", lambda memory, _: lambda: check(memory), LINEAR),
    Grown("rebuild the index", _rebuild, LINEAR),
    Grown("record one, durable", lambda _, session: lambda: session.record_decision(**DECIDED), FLAT),
)


@benchmark("memories of a session")
def memories(bench: Bench) -> Iterator[Row]:
    sizes = SIZES[:-1] if bench.quick else SIZES
    trees = {size: filled_memory(bench, size) for size in sizes}
    yield from _rows(OF_A_SESSION, trees, "memories")


@benchmark("sessions of a tree")
def sessions(bench: Bench) -> Iterator[Row]:
    trees = {count: _tree(bench, count) for count in ((1, 10) if bench.quick else (1, 10, 100))}
    yield from _rows(OF_A_TREE, trees, f"sessions x {IN_EACH}")


def _tree(bench: Bench, count: int) -> Memory:
    memory = Memory(new_session(bench.directory).memory.root)
    for number in range(count):
        fill_session(memory.create_session(quota_bytes=QUOTA_BYTES), IN_EACH, number % 10)
    index = Index.open(memory.root / INDEX_FILE)
    rebuild(memory, index)
    index.close()
    return memory


def _rows(operations: tuple[Grown, ...], trees: dict[int, Memory], what: str) -> Iterator[Row]:
    for grown in operations:
        times = _timed({size: grown.of(memory, _largest(memory)) for size, memory in trees.items()})
        exponent = exponent_of({size: timing.median_s for size, timing in times.items()})
        (small, bare), *_, (large, ours) = times.items()
        steps = ", ".join(f"{1000 * timing.median_s:.3g} ms" for timing in times.values())
        yield Row(grown.name, f"{large:,} {what}", f"{small:,}", ours, bare, Target(exponent=grown.at_most),
                  f"{steps}: n^{exponent:.2f}", exponent=exponent)  # fmt: skip


def _largest(memory: Memory) -> Session:
    return max(memory.sessions(), key=lambda session: session.size().total_bytes)


def _timed(operations: dict[int, Operation]) -> dict[int, Timing]:
    """All sizes by turns, so that a busy machine slows all of them."""
    times: dict[int, list[float]] = {size: [] for size in operations}
    for turn in itertools.count():
        if turn > 3 and sum(map(sum, times.values())) > LONGEST_S:
            break
        for size, operation in operations.items():
            started = time.perf_counter()
            operation()
            if turn:  # the first warms up
                times[size].append(time.perf_counter() - started)
    return {size: Timing(statistics.median(each), max(each)) for size, each in times.items()}
