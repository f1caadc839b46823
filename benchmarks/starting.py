"""What it costs to start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from .measure import Bench, Row, benchmark

_CHECKOUT = Path(__file__).resolve().parent.parent


@benchmark("import")
def import_client(bench: Bench) -> Iterator[Row]:
    for name, program in (
        ("import smp_client", "import smp_client"),
        ("import, and take a lock", "import smp_client, filelock; filelock.lock_descriptor"),
        ("import yaml (for comparison)", "import yaml"),
    ):
        times = bench.compare(partial(_python, bench, program), partial(_python, bench, "pass"), rounds=30)
        extra = f"{(times[0].median_s - times[1].median_s) * 1000:.0f} ms more"
        yield Row(name, "", "python -c pass", *times, note=extra)


def _python(bench: Bench, program: str) -> None:
    # With compiled modules, as after an installation, whatever the environment says about writing them.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(bench.directory / "compiled")
    subprocess.run([sys.executable, "-c", program], cwd=_CHECKOUT, env=environment, check=True)
