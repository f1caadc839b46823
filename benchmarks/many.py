"""A tree of 10,000 small sessions: what each command costs in a new process, and what the daemon needs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from smp_client import Memory

from .measure import Bench, Row, Target, Timing, benchmark
from .processes import (
    CHECKOUT,
    compiled_environment,
    daemon,
    processor_s,
    resident_mb,
    smp,
)
from .samples import DECIDED, new_session

SESSIONS, MEMORIES = 10_000, 3
COMMANDS = (
    (("sessions",), 1.0),
    (("search", "oauth"), 1.0),
    (("context",), 1.0),
    (("show", "s7"), 1.0),
    (("show", "s7", "DEC-001"), 1.0),
    (("status",), 1.0),
    (("stats",), 2.0),
    (("sync",), 2.0),
    (("new",), 0.5),
    (("add", "s7", "decision", "Use OAuth", "--by", "architect"), 0.5),
)


def tree_of(bench: Bench, sessions: int) -> Path:
    """Make a tree whose sessions are copies of one, as files."""
    first = new_session(bench.directory)
    memory = Memory(first.memory.root)
    made = memory.create_session(id="s0", project="Shop", topic="login")
    for _ in range(MEMORIES):
        made.record_decision(**DECIDED)
    for number in range(1, sessions):
        shutil.copytree(memory.root / "active/s0", memory.root / f"active/s{number}")
    return memory.root


@benchmark("many sessions")
def many_sessions(bench: Bench) -> Iterator[Row]:
    count = bench.rounds(SESSIONS)
    root = tree_of(bench, count)
    size = f"{count:,} x {MEMORIES}"
    with daemon(root) as pid:
        yield _amount("first start, until ready", size, processor_s(pid), "s", Target(seconds=60))
        yield _amount("daemon, memory", size, resident_mb(pid), "MB", Target(below=150))
    with daemon(root) as pid:
        yield _amount("later start, until ready", size, processor_s(pid), "s", Target(seconds=8))
    run = partial(subprocess.run, cwd=CHECKOUT, env=compiled_environment(bench.directory),
                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)  # fmt: skip
    bare = partial(run, [sys.executable, "-c", "pass"])
    for (name, *arguments), limit_s in COMMANDS:
        ask = partial(run, [*smp(name), *arguments, "--root", str(root)])
        times = bench.compare(ask, bare, rounds=30)
        title = f"smp {' '.join([name, *arguments[:2]])}"
        yield Row(title, size, "python -c pass", *times, Target(seconds=limit_s))


def _amount(name: str, size: str, value: float, unit: str, target: Target) -> Row:
    """Return a row of one figure, which has nothing beside it."""
    return Row(name, size, "", Timing(value, value), Timing(value, value), target, unit=unit)
