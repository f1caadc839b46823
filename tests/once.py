"""Trees that many tests begin with: made once in each process of the tests, then copied, which takes a tenth of the time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path


@cache
def _made(make: Callable[[Path], object]) -> tempfile.TemporaryDirectory[str]:
    directory = tempfile.TemporaryDirectory(prefix="smp-tests-")  # removed when this process ends
    make(Path(directory.name) / "tree")
    return directory


def copied(make: Callable[[Path], object], root: Path) -> Path:
    """What this makes of a path, there."""
    shutil.copytree(Path(_made(make).name) / "tree", root, symlinks=True, copy_function=shutil.copy)  # as new as if made here
    return root
