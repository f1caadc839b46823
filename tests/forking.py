"""`smp` in a process of its own that need not load Python and every module first: forked from one that has, which saves most of the
time that a command takes. Whatever depends on how a process starts (its encoding, what it imports) is tested elsewhere.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def starts_alike(environment: Mapping[str, str] | None) -> bool:
    """Whether Python itself would start with this environment as it has started here."""
    names = {name for name in {*os.environ, *(environment or ())} if name.startswith(("PYTHON", "LC_", "LANG"))}
    return environment is None or all(environment.get(name) == os.environ.get(name) for name in names)


class Forked:
    """A process that runs `smp`, with what the tests need of `subprocess.Popen`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._said = connection, b""
        self.returncode: int | None = None
        self.pid = int(self._line(None) or 0)
        assert self.pid, "it was never run"

    def _line(self, timeout_s: float | None) -> bytes | None:
        """What the server says next; none where it takes longer."""
        self._connection.settimeout(timeout_s)
        try:
            while b"\n" not in self._said:
                more = self._connection.recv(64)
                assert more, "the server of this process is gone"
                self._said += more
        except (TimeoutError, BlockingIOError):
            return None
        line, _, self._said = self._said.partition(b"\n")
        return line

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        if (code := self._ended(timeout)) is None:
            raise subprocess.TimeoutExpired(["smp"], timeout or 0)
        return code

    def _ended(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and (line := self._line(timeout_s)) is not None:
            self.returncode = int(line)
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forking:
    """The side of the tests: one server for this process, started when it is first asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._address: str | None = None

    def start(
        self, arguments: list[str], streams: list[int], directory: object = None, environment: Mapping[str, str] | None = None
    ) -> Forked:
        told = {"arguments": arguments, "environment": dict(os.environ if environment is None else environment),
                "directory": str(directory or Path.cwd())}  # fmt: skip
        request = json.dumps(told).encode()
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._server())
        socket.send_fds(connection, [f"{len(request)}\n".encode()], streams)
        connection.sendall(request)
        return Forked(connection)

    def run(
        self, arguments: list[str], said: str | None, directory: object, environment: Mapping[str, str] | None
    ) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write((said or "").encode())
            given.seek(0)
            streams = [stream.fileno() for stream in (given, out, err)]
            status = self.start(arguments, streams, directory, environment).wait()
            texts = []
            for stream in (out, err):
                stream.seek(0)
                texts.append(stream.read().decode().replace("\r\n", "\n"))
        return subprocess.CompletedProcess(["smp", *arguments], status, *texts)

    def _server(self) -> str:
        with self._lock:
            if self._address is None:
                # A name that is no file: nothing is left behind when both are killed.
                address = f"\0smp-tests-{os.getpid()}-{id(self)}"
                listening = socket.socket(socket.AF_UNIX)
                listening.bind(address)
                listening.listen(64)
                command = [sys.executable, __file__, str(listening.fileno())]
                server = subprocess.Popen(command, pass_fds=[listening.fileno()], stdin=subprocess.PIPE)
                listening.close()
                atexit.register(server.communicate)  # its input ends, also where this process is killed: then it ends too
                self._address = address
        return self._address


def _serve(listening: socket.socket) -> None:
    from smp_daemon.cli import COMMANDS

    for module, _ in COMMANDS.values():
        importlib.import_module(f"smp_daemon.cli.{module}")
    for name in _LOADED:
        importlib.import_module(name)
    waiting = select.poll()
    for stream in (listening, sys.stdin):
        waiting.register(stream, select.POLLIN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that are done need not be waited for
    while all(number == listening.fileno() for number, _ in waiting.poll()):
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            _answer(connection)
            os._exit(0)
        connection.close()


def _answer(connection: socket.socket) -> None:
    head, streams, _, _ = socket.recv_fds(connection, 1 << 16, 3)
    size, _, request = head.partition(b"\n")
    while len(request) < int(size):
        request += connection.recv(1 << 16)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    begun, begins = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(begun)
        os.close(begins)  # from here on: Python drops a signal that comes earlier after a fork
        connection.close()
        _become(json.loads(request), streams)
    for descriptor in (begins, *streams):
        os.close(descriptor)
    os.read(begun, 1)
    with suppress(BrokenPipeError, ConnectionResetError):  # who does not want to know has gone on
        connection.sendall(f"{pid}\n".encode())
        connection.sendall(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n".encode())


def _become(request: dict[str, object], streams: list[int]) -> None:
    """What `python -m smp_daemon` does, in this process."""
    from smp_client.change import move
    from smp_client.disk import rewrite
    from smp_daemon.cli import main

    code = 70
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
        os.environ.clear()
        os.environ.update(request["environment"])  # type: ignore[call-overload]
        os.chdir(str(request["directory"]))
        if grace_s := os.environ.get("SMP_TESTS_GRACE_S"):
            move.GRACE_S = rewrite.GRACE_S = float(grace_s)
        sys.argv = ["smp", *request["arguments"]]  # type: ignore[misc]
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


_LOADED = (
    "smp_client.memory", "smp_client.session", "smp_client.index.database", "smp_client.ask.engine", "smp_client.index.sync",
    "smp_client.change.restore", "smp_client.passes.check", "smp_client.passes.purge", "smp_client.exchange.gate",
    "smp_client.passes.tidy", "smp_daemon.config.file", "smp_daemon.daemon",
)  # fmt: skip

if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
