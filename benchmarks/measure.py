"""Taking two times side by side, and what a benchmark gives back.

Times differ from one machine and one minute to the next, so only ratios of times taken in the same minute on the same
filesystem say anything. Ours and the bare operation therefore take turns all through a measurement, and the median of each
counts.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

Operation = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """Seconds for one operation, or so much of the row's unit."""

    median_s: float
    p99_s: float


@dataclass(frozen=True)
class Target:
    """What we hold: a ratio, a time, the time that 99 of 100 take, an amount of the row's unit, or how it grows with the size."""

    ratio: float | None = None
    seconds: float | None = None
    p99_seconds: float | None = None
    below: float | None = None
    exponent: float | None = None

    def __str__(self) -> str:
        if self.exponent is not None:
            return f"<= n^{self.exponent:g}"
        if self.ratio is not None:
            return f"<= {self.ratio:g} x"
        if self.p99_seconds is not None:
            return f"p99 < {self.p99_seconds * 1000:g} ms"
        return f"< {self.below:g}" if self.below is not None else f"< {(self.seconds or 0) * 1000:g} ms"

    def held(self, row: Row) -> bool:
        if self.exponent is not None:
            return row.exponent is not None and row.exponent <= self.exponent
        if self.ratio is not None:
            return row.ratio <= self.ratio
        if self.p99_seconds is not None:
            return row.ours.p99_s < self.p99_seconds
        return row.ours.median_s < (self.seconds or self.below or 0)


@dataclass(frozen=True)
class Row:
    name: str
    size: str  # of what is there already, or of what is read
    against: str  # what the bare operation is
    ours: Timing
    bare: Timing
    target: Target | None = None
    note: str = ""
    unit: str = "s"
    exponent: float | None = None  # where the bare operation is ours at a smaller size

    @property
    def ratio(self) -> float:
        return self.ours.median_s / self.bare.median_s

    @property
    def held(self) -> bool | None:
        return self.target.held(self) if self.target else None


@dataclass(frozen=True)
class Bench:
    """Where to work, and how long."""

    directory: Path
    quick: bool = False

    def rounds(self, full: int) -> int:
        return max(full // 10, 3) if self.quick else full

    def megabytes(self, *sizes: float) -> tuple[float, ...]:
        """The sizes to measure at; a quick run leaves out the large ones, which take long to make."""
        return tuple(size for size in sizes if size <= 1) if self.quick else sizes

    def compare(self, ours: Operation, bare: Operation, *, rounds: int, block: int = 1) -> tuple[Timing, Timing]:
        """Both operations by turns, `block` times each; the first tenth warms up and is thrown away.

        A block above 1 is for operations on the disk: what one leaves unwritten, the next has to wait for, so each should
        mostly follow itself.
        """
        times: dict[Operation, list[float]] = {ours: [], bare: []}
        turns = -(-self.rounds(rounds) // block)
        gc.collect()
        for turn in range(turns + max(turns // 10, 1)):
            # Whoever goes second finds warmer caches, so they change places.
            for operation in (ours, bare) if turn % 2 else (bare, ours):
                times[operation] += [_timed(operation) for _ in range(block)]
        return _timing(times[ours][-turns * block :]), _timing(times[bare][-turns * block :])


def _timed(operation: Operation) -> float:
    started = time.perf_counter()
    operation()
    return time.perf_counter() - started


def _timing(times: list[float]) -> Timing:
    ordered = sorted(times)
    return Timing(statistics.median(ordered), ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)])


def exponent_of(amounts: dict[int, float]) -> float:
    """Return the e of n^e that fits these times or amounts by size best: 0 does not grow, 1 grows in proportion."""
    logs = [(math.log(size), math.log(max(amount, 1e-9))) for size, amount in amounts.items()]
    return statistics.linear_regression(*zip(*logs, strict=True)).slope


Rows = Callable[[Bench], Iterator[Row]]


@dataclass(frozen=True)
class Benchmark:
    theme: str
    name: str
    rows: Rows


BENCHMARKS: list[Benchmark] = []


def benchmark(name: str) -> Callable[[Rows], Rows]:
    """Marks a function as a benchmark of the theme that its module is."""

    def register(rows: Rows) -> Rows:
        BENCHMARKS.append(Benchmark(rows.__module__.rpartition(".")[2], name, rows))
        return rows

    return register
