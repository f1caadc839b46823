"""A round of the soak: every door at once, hostile files, kills and signals; nothing is lost.

It takes a minute, or as many as `SMP_SOAK_MINUTES` says. See `soak.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MINUTES = os.environ.get("SMP_SOAK_MINUTES", "1")


@pytest.mark.slow
def test_nothing_stops_it_and_nothing_is_lost(tmp_path: Path) -> None:
    program = [sys.executable, str(Path(__file__).with_name("soak.py"))]
    options = ["--minutes", MINUTES, "--directory", str(tmp_path)]
    done = subprocess.run([*program, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
