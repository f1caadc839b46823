"""What it costs to start: the library, a query from a new process, and the command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from .measure import Bench, Operation, Row, Target, benchmark
from .processes import CHECKOUT, compiled_environment, smp
from .samples import DECIDED, new_session


@benchmark("import")
def import_client(bench: Bench) -> Iterator[Row]:
    for name, program in (
        ("from smp_client import Memory", "from smp_client import Memory"),
        ("import Memory and Session", "from smp_client import Memory, Session"),
        ("import, and take a lock", "import smp_client, filelock; smp_client.Session; filelock.lock_descriptor"),
        ("import yaml (for comparison)", "import yaml"),
    ):
        times = bench.compare(_process(bench, "-c", program), _process(bench, "-c", "pass"), rounds=30)
        extra = f"{(times[0].median_s - times[1].median_s) * 1000:.0f} ms more"
        target = Target(seconds=0.04) if program == "from smp_client import Memory" else None
        yield Row(name, "", "python -c pass", *times, target, note=extra)


@benchmark("commands")
def commands(bench: Bench) -> Iterator[Row]:
    """A small tree, asked from a new process, with its index up to date."""
    session = new_session(bench.directory)
    root = session.scope.tree.path
    for _ in range(50):
        session.record_decision(**DECIDED)
    search = f"from smp_client import Memory; Memory({root!r}).search('oauth')"
    for name, command, limit_s in (
        ("one query", ["-c", search], 0.06),
        ("smp search", [*smp("search")[1:], "oauth", "--root", root], 0.11),
        ("smp status", [*smp("status")[1:], "--root", root], 0.1),
    ):
        times = bench.compare(_process(bench, *command), _process(bench, "-c", "pass"), rounds=30)
        yield Row(f"{name}, new process", "50 memories", "python -c pass", *times, Target(seconds=limit_s))


def _process(bench: Bench, *arguments: str) -> Operation:
    command, environment = [sys.executable, *arguments], compiled_environment(bench.directory)
    # Status ends with 1 where no daemon runs.
    return partial(subprocess.run, command, cwd=CHECKOUT, env=environment, stdout=subprocess.DEVNULL, check=False)
