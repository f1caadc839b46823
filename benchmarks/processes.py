"""A real daemon as a process of its own, and what the kernel says of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
PATIENCE_S = 1800.0
_LOOK_EVERY_S = 0.0005


@contextmanager
def daemon(root: Path) -> Iterator[int]:
    """The process id of a daemon that has taken in all of the root."""
    log = root.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen([*smp("run"), "--root", str(root)], cwd=CHECKOUT, stderr=output, stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: b'"ready"' in log.read_bytes() or process.poll() is not None, look_every_s=0.05)
        if process.poll() is not None:
            raise RuntimeError(log.read_text())
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def smp(command: str) -> list[str]:
    return [sys.executable, "-m", "smp_daemon", command]


def compiled_environment(directory: Path) -> dict[str, str]:
    """With compiled modules, as after an installation, whatever the environment says about writing them."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(directory / "compiled")
    return environment


def wait_until(condition: Callable[[], bool], look_every_s: float = _LOOK_EVERY_S) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("what was waited for did not come true")
        time.sleep(look_every_s)


def processor_s(pid: int) -> float:
    """The processor's time that a process has had, in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024 / 1e6
