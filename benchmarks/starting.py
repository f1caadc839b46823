"""What it costs to start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from .measure import Bench, Row, Target, benchmark
from .processes import CHECKOUT, compiled_environment


@benchmark("import")
def import_client(bench: Bench) -> Iterator[Row]:
    for name, program in (
        ("from smp_client import Memory", "from smp_client import Memory"),
        ("import Memory and Session", "from smp_client import Memory, Session"),
        ("import, and take a lock", "import smp_client, filelock; smp_client.Session; filelock.lock_descriptor"),
        ("import yaml (for comparison)", "import yaml"),
    ):
        times = bench.compare(partial(_python, bench, program), partial(_python, bench, "pass"), rounds=30)
        extra = f"{(times[0].median_s - times[1].median_s) * 1000:.0f} ms more"
        target = Target(seconds=0.04) if program == "from smp_client import Memory" else None
        yield Row(name, "", "python -c pass", *times, target, note=extra)


def _python(bench: Bench, program: str) -> None:
    subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT, env=compiled_environment(bench.directory), check=True)
