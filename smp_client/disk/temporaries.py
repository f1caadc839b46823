"""Names for files that are written aside, in `.smp/tmp/`, before they get their own.

Each names the process that makes it: when that is gone, the file is nobody's. A process is known by
its number only where that was given: by this kernel since it was started, to this container.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path

from ..model.layout import TEMPORARY

_MADE = re.compile(r".*\.([0-9a-f]{12})\.([0-9]{1,10})")


def temporary_name(beginning: str = "") -> str:
    """Return a name that nobody has."""
    unique = f"{beginning}{os.urandom(16).hex()}"
    return f"{TEMPORARY}/{unique}.{_numbered_here() or '-'}.{os.getpid()}"


def maker_is_gone(name: str) -> bool:
    """Return whether the process that made it is sure to be no more."""
    made = _MADE.fullmatch(name)
    if made is None or made[1] != _numbered_here():
        return False
    try:
        os.kill(int(made[2]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    with suppress(OSError):
        # One that was killed keeps its number until somebody asks how it ended.
        said = Path(f"/proc/{made[2]}/stat").read_text().rpartition(")")[2]
        return said.split()[:1] == ["Z"]
    return False


@functools.cache
def _numbered_here() -> str:
    """Return one text for all processes whose numbers we understand; empty where none is known."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        container = os.stat("/proc/self/ns/pid")
    except OSError:
        return ""
    said = f"{started} {container.st_dev} {container.st_ino}"
    return hashlib.sha256(said.encode()).hexdigest()[:12]
