"""The log: its lines, where they go, and that no failure of it stops the daemon."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from daemons import PATIENCE_S, settings_file, status, wait_until

from smp_client import Memory
from smp_daemon.config.settings import Configuration
from smp_daemon.log import Log

SMP = [sys.executable, "-c", "from smp_daemon.cli import main; main()"]
LEAST_BYTES = 4096


@contextmanager
def logging_to(path: Path, **settings: Any) -> Iterator[Log]:
    given = {"file": path, "max_bytes": LEAST_BYTES, "keep": 2, **settings}
    log = Log(Configuration({f"log.{name}": value for name, value in given.items()}))
    try:
        yield log
    finally:
        log.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def python(program: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    options = {"capture_output": True, **options}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], text=True, check=True, timeout=60, **options
    )


def tree(tmp_path: Path) -> Path:
    memory = Memory(tmp_path / "sessions")
    memory.create()
    return memory.root


# What a line holds


def test_a_line_is_json_with_its_fields_in_order(tmp_path: Path) -> None:
    """Time, level, component, event and session first, the session null where there is none."""
    with logging_to(tmp_path / "smp.log") as log:
        log.logger.info("indexed", component="indexer", files=3, path=tmp_path, duration_ms=1.5)
        log.logger.bind(component="inbox").warning("refused", session_id="s1", reason="a\nb")
    first, second = lines(tmp_path / "smp.log")
    assert list(first) == [
        "timestamp",
        "level",
        "component",
        "event",
        "session_id",
        "files",
        "path",
        "duration_ms",
    ]
    assert first["timestamp"].endswith("Z")
    assert (first["level"], first["component"], first["session_id"], first["path"]) == (
        "info",
        "indexer",
        None,
        str(tmp_path),
    )
    assert (second["component"], second["session_id"], second["reason"]) == ("inbox", "s1", "a\nb")


def test_only_lines_of_the_wanted_level_are_written_and_that_can_change(tmp_path: Path) -> None:
    """The same logger obeys new settings, also another file, from the next line on."""
    with logging_to(tmp_path / "one.log", level="warning") as log:
        log.logger.info("unwanted")
        log.logger.warning("wanted")
        log.change(Configuration({"log.level": "debug", "log.file": tmp_path / "two.log"}))
        log.logger.debug("wanted now")
    assert [line["event"] for line in lines(tmp_path / "one.log")] == ["wanted"]
    assert [line["event"] for line in lines(tmp_path / "two.log")] == ["wanted now"]


def test_a_terminal_gets_lines_for_people_and_a_pipe_gets_json(tmp_path: Path) -> None:
    """And the setting overrules both."""
    program = ("import sys; from smp_daemon.log import Log\n"
               "from smp_daemon.config.settings import Configuration\n"
               "log = Log(Configuration({'log.format': sys.argv[1]})).logger\n"
               "log.info('ready', component='daemon', root='/x', nothing=None,"
               " empty=[], sessions=2)")  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {
        "TERM": "xterm"
    }

    def on_terminal(form: str, **more: str) -> str:
        ours, theirs = pty.openpty()
        with os.fdopen(ours, "rb", buffering=0) as screen:
            python(program, form, capture_output=False, stderr=theirs, env=environment | more)
            os.close(theirs)
            return screen.read(4096).decode()

    pretty = on_terminal("auto")
    assert "\x1b[" in pretty
    assert "nothing" not in pretty
    assert "empty" not in pretty
    assert (
        pretty.index("ready")
        < pretty.index("sessions")
        < pretty.index("component")
        < pretty.index("root")
    )
    assert "\x1b[" not in on_terminal("auto", NO_COLOR="1")
    assert json.loads(on_terminal("json"))["event"] == "ready"
    assert json.loads(python(program, "auto").stderr)["event"] == "ready"
    plain = python(program, "pretty").stderr
    assert "ready" in plain
    assert "\x1b[" not in plain
    assert not plain.startswith("{")


# A file and its rotation


def test_a_full_file_is_set_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "deep/er/smp.log"
    with logging_to(path) as log:
        for number in range(200):
            log.logger.info("line", component="x", number=number)
        assert not log.problem
    assert {file.name for file in path.parent.iterdir()} == {"smp.log", "smp.log.1", "smp.log.2"}
    assert all(file.stat().st_size <= LEAST_BYTES for file in path.parent.iterdir())
    numbers = [
        line["number"]
        for name in ("smp.log.2", "smp.log.1", "smp.log")
        for line in lines(path.parent / name)
    ]
    assert numbers == list(range(numbers[0], 200))
    assert len(numbers) > 50


def test_log_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    """Directories 0700 and files 0600 from their creation, whatever the umask is."""
    before = os.umask(0)
    try:
        with logging_to(tmp_path / "deep/er/smp.log") as log:
            for number in range(100):
                log.logger.info("line", number=number)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "deep").rglob("*")}
    assert modes == {"er": 0o700, "smp.log": 0o600, "smp.log.1": 0o600, "smp.log.2": 0o600}
    assert (tmp_path / "deep").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["fifo", "link", "directory"])
def test_only_a_plain_file_is_written(tmp_path: Path, kind: str) -> None:
    """A link or a FIFO under the log's name is not followed and not waited for."""
    path = tmp_path / "smp.log"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("")
    if kind == "link":
        path.symlink_to(elsewhere)
    else:
        (os.mkfifo if kind == "fifo" else os.mkdir)(path)
    with logging_to(path) as log:
        log.logger.info("line")
        assert log.problem
    assert elsewhere.read_text() == ""


# Failures


FULL = """
import resource, sys
from pathlib import Path
from smp_daemon.config.settings import Configuration
from smp_daemon.log import Log
log = Log(Configuration({"log.file": Path(sys.argv[1])}))
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
for number in range(50):
    log.logger.info("line", number=number)
print(log.problem)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.logger.info("last")
print(log.problem)
"""


def test_a_line_that_finds_no_room_is_dropped_and_never_written_later(tmp_path: Path) -> None:
    path = tmp_path / "smp.log"
    problem, none = python(FULL, str(path)).stdout.splitlines()
    assert "File too large" in problem
    assert not none
    content = path.read_text().splitlines()
    assert "log lines lost" in content[-2]  # glued to the piece of a line at the limit
    assert json.loads(content[-1])["event"] == "last"
    assert [json.loads(line)["number"] for line in content[:-2]] == list(range(len(content) - 2))
    assert len(content) < 20


def test_a_log_that_fails_is_noted_in_status_until_it_works(tmp_path: Path) -> None:
    """A daemon whose log stands below a plain file leads. With the file gone, the log goes on."""
    root, log = tree(tmp_path), tmp_path / "file/smp.log"
    (tmp_path / "file").write_text("")
    config = settings_file(tmp_path, log={"file": str(log)})
    with subprocess.Popen([*SMP, "run", "--root", str(root), "--config", str(config)]) as process:
        try:

            def noted() -> bool:
                return any("Log lines are lost" in problem for problem in status(root)["problems"])

            wait_until(noted, "status names the log")
            (tmp_path / "file").unlink()
            wait_until(lambda: not noted(), "status no longer does")
            process.terminate()
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
    events = [line["event"] for line in lines(log)]
    assert (events[0], events[-1]) == ("log lines lost", "stopped")


def started(tmp_path: Path, **streams: Any) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([*SMP, "run", "--root", str(tmp_path / "sessions")], **streams)
    while not (tmp_path / "sessions/.smp/locks/+daemon/lead.lock").exists():
        assert process.poll() is None
    return process


def test_a_reader_that_went_away_does_not_stop_the_daemon(tmp_path: Path) -> None:
    """stderr is a pipe whose reader has closed it."""
    ours, theirs = os.pipe()
    os.close(ours)
    process = started(tmp_path, stderr=theirs)
    os.close(theirs)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0


def test_a_reader_that_has_stopped_reading_does_not_stop_the_daemon(tmp_path: Path) -> None:
    """A full pipe with nobody at its other end costs one pause, then nothing."""
    ours, theirs = os.pipe()
    process = None
    try:
        os.set_blocking(theirs, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(theirs, bytes(4096))
        os.set_blocking(theirs, True)
        process = started(tmp_path, stderr=theirs)
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    finally:
        if process is not None:
            process.kill()
            process.wait()
        os.close(ours)
        os.close(theirs)


def test_a_closed_stderr_is_not_mistaken_for_a_file(tmp_path: Path) -> None:
    """Started with `2>&-`, the next file that is opened would get stderr's number."""
    closed = "0<&- 1>&- 2>&-"
    program = f'exec "{sys.executable}" -m smp_daemon run --root "$1" {closed}'
    process = subprocess.Popen(["sh", "-c", program, "sh", str(tmp_path / "sessions")])
    try:
        lead = tmp_path / "sessions/.smp/locks/+daemon/lead.lock"
        while not lead.exists() or b"leading" not in lead.read_bytes():
            assert process.poll() is None
        if sys.platform == "linux":
            assert [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in range(3)] == [
                os.devnull
            ] * 3
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
    json.loads(lead.read_bytes())
