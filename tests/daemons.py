"""Real daemons for the tests: started as processes, asked through `smp`, and killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from derived_rows import contents
from forking import Forked, run, starts_alike

from smp_client import Memory
from smp_client.index.database import Index
from smp_client.index.take_in import rebuild
from smp_client.model.layout import INDEX_FILE

SMP = [sys.executable, "-m", "smp_daemon"]
PATIENCE_S = 60.0  # for what takes moments: long enough for any machine, so that only what hangs fails
_PAUSE = threading.Event()  # never set: only so as not to take the processor from what is waited for


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """Looks until it is so; a test that hangs says what for."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never came true: {what}"
        _PAUSE.wait(0.01)
    return found


@contextmanager
def no_hang() -> Iterator[None]:
    """For work whose time must not grow with the square of its size: it takes seconds on a slow machine, else hours."""

    def give_up(*_: object) -> None:
        raise AssertionError(f"still at it after {PATIENCE_S:.0f} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def elsewhere(program: str, *arguments: object) -> Iterator[Callable[[str], str]]:
    """Run a program in another process until the end of the block; it has said its first line.

    Call it with a line: the program gets it, and answers with a line.
    """
    command, pipe = [sys.executable, "-c", program, *map(str, arguments)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        given, said = process.stdin, process.stdout
        assert given
        assert said
        assert said.readline(), "it has failed"

        def tell(line: str) -> str:
            given.write(f"{line}\n")
            given.flush()
            return said.readline().rstrip("\n")

        yield tell
        given.close()
        process.wait(PATIENCE_S)


def smp(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    if options.keys() <= {"input", "cwd", "env"} and starts_alike(options.get("env")):
        return run([*map(str, arguments)], options.get("input"), options.get("cwd"), options.get("env"))
    return subprocess.run([*SMP, *map(str, arguments)], capture_output=True, text=True, check=False, **options)


def started(
    arguments: Sequence[object], streams: Sequence[int], env: Mapping[str, str], *, forked: bool = True
) -> Forked | subprocess.Popen[bytes]:
    """`smp` with these as its input, its output and its errors."""
    told = [*map(str, arguments)]
    if forked and starts_alike(env):
        return Forked(told, streams, None, env)
    given, out, err = streams
    return subprocess.Popen([*SMP, *told], stdin=given, stdout=out, stderr=err, env=env)


def status(root: Path, *flags: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(smp("status", "--root", root, "--json", *flags).stdout)
    return found


def settings_file(directory: Path, **sections: Any) -> Path:
    """A configuration, given as sections of settings."""
    file = directory / "smp.yaml"
    file.write_text(json.dumps(sections))  # JSON is YAML
    return file


class Daemon:
    def __init__(self, roots: Sequence[Path], log: Path, config: Path | None = None, program: Sequence[str] = ()) -> None:
        self.log = log
        named = [part for root in roots for part in ("--root", str(root))] + (["--config", str(config)] if config else [])
        self.process: Forked | subprocess.Popen[bytes]
        with log.open("ab") as output, open(os.devnull, "r+b") as nothing:
            if program:
                self.process = subprocess.Popen([*program, "run", *named], stderr=output, stdin=nothing)
            else:
                self.process = Forked(["run", *named], [nothing.fileno(), nothing.fileno(), output.fileno()])

    def lines(self) -> list[dict[str, Any]]:
        whole = self.log.read_text().rpartition("\n")[0]  # of a line that is just written, a reader may see a part
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    def said(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["event"] == event and line.get("pid", self.process.pid) == self.process.pid]

    def wait_ready(self, roots: int = 1) -> None:
        def is_ready() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return len(self.said("ready")) >= roots

        wait_until(is_ready, "the daemon is ready")

    def pause(self) -> None:
        """Has it stand still, at a moment when it is in nobody's way."""

        def is_at_rest() -> bool:
            self.process.send_signal(signal.SIGSTOP)
            wait_until(lambda: Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", "it stands")
            held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
            own = [one[1] for one in held if one[-5:-4] == ["WRITE"] and one[-4] == str(self.process.pid)]
            if own == ["FLOCK"]:  # the one by which it leads
                return True
            self.process.send_signal(signal.SIGCONT)
            return False

        wait_until(is_at_rest, "the daemon holds no lock but its own")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def running(*roots: Path, log: Path, config: Path | None = None) -> Iterator[Daemon]:
    daemon = Daemon(roots, log, config)
    try:
        daemon.wait_ready(len(roots))
        yield daemon
    finally:
        daemon.kill()


def index_contents(root: Path) -> dict[str, Any]:
    """What the index on disk holds; opened for writing because its own check of the words needs that."""
    index = Index.open(root / INDEX_FILE)
    try:
        return contents(index)
    finally:
        index.close()


def rebuilt_contents(root: Path) -> dict[str, Any]:
    index = Index.in_memory()
    try:
        rebuild(Memory(root), index)
        return contents(index)
    finally:
        index.close()


def wait_until_true(root: Path) -> None:
    """The index is what a rebuild would give; the daemon itself writes metadata now and then, so it may take a look or two."""
    wait_until(lambda: index_contents(root) == rebuilt_contents(root), "the index equals a rebuild")
