"""`smp` in a process of its own that need not load Python and every module first: forked from one that has.

That saves most of the time that a command takes. Whatever depends on how a process starts (its encoding, its
imports) is tested elsewhere.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from multiprocessing import reduction
from pathlib import Path
from typing import Any, NoReturn

from smp_daemon.cli import COMMANDS

_SERVER = multiprocessing.get_context("forkserver")
_MODULES = [
    *(f"smp_daemon.cli.{module}" for module, _ in COMMANDS.values()),
    "smp_client.memory", "smp_client.session", "smp_client.index.database", "smp_client.ask.engine", "smp_client.index.sync",
    "smp_client.change.restore", "smp_client.passes.check", "smp_client.passes.purge", "smp_client.exchange.gate",
    "smp_client.passes.tidy", "smp_daemon.config.file", "smp_daemon.daemon",
]  # fmt: skip
_SERVER.set_forkserver_preload(["pytest", *_MODULES])


def load_everything() -> None:
    """Load what `smp` needs, for a process that forks its own."""
    for name in _MODULES:
        import_module(name)


def starts_alike(environment: Mapping[str, str] | None) -> bool:
    """Whether Python itself would start with this environment as it has started here."""
    names = {name for name in {*os.environ, *(environment or ())} if name.startswith(("PYTHON", "LC_", "LANG"))}
    return environment is None or all(environment.get(name) == os.environ.get(name) for name in names)


class Handed(int):
    """A file descriptor that a new process gets."""

    def __reduce__(self) -> tuple[Callable[[Any], int], tuple[Any]]:
        return _taken, (reduction.DupFd(int(self)),)


def _taken(handed: Any) -> int:
    descriptor: int = handed.detach()
    return descriptor


class Forked:
    """A process that runs `smp`, with what the tests need of `subprocess.Popen`."""

    def __init__(
        self, arguments: Sequence[str], streams: Sequence[int], directory: object = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        place = str(directory or Path.cwd()), dict(os.environ if environment is None else environment)
        begun, begins = os.pipe()
        handed = [Handed(descriptor) for descriptor in (begins, *streams)]
        self._process = _SERVER.Process(target=_become, args=([*arguments], *place, handed))
        self._process.start()
        os.close(begins)
        os.read(begun, 1)  # Python drops a signal that comes right after a fork
        os.close(begun)
        self.pid = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if (code := self._process.exitcode) is None:
            raise subprocess.TimeoutExpired(["smp"], timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def run(
    arguments: Sequence[str], said: str | None, directory: object, environment: Mapping[str, str] | None
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write((said or "").encode())
        given.seek(0)
        streams = [stream.fileno() for stream in (given, out, err)]
        status = Forked(arguments, streams, directory, environment).wait()
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode().replace("\r\n", "\n"))
    return subprocess.CompletedProcess(["smp", *arguments], status, *texts)


def _become(
    arguments: list[str], directory: str, environment: dict[str, str], handed: list[int]
) -> None:
    """Be `smp` in a process of the server, and say when that begins."""
    begins, *streams = handed
    # A shell starts background jobs with SIGINT ignored, and whoever runs the tests may be one.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.close(begins)
    become(arguments, streams, directory, environment)


def become(
    arguments: Sequence[str], streams: Sequence[int], directory: str, environment: Mapping[str, str]
) -> NoReturn:
    """Do what `python -m smp_daemon` does, in this process, with these streams, and exit."""
    from smp_client.change import latecomers
    from smp_client.disk import rewrite
    from smp_daemon.cli import main

    code = 70
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        sys.stdin = os.fdopen(0, closefd=False)
        sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(directory)
        if grace_s := os.environ.get("SMP_TESTS_GRACE_S"):
            latecomers.GRACE_S = rewrite.GRACE_S = float(grace_s)
        sys.argv = ["smp", *arguments]
        try:
            main()
            code = 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        code = 1
    finally:
        os._exit(code)
