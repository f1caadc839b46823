"""The log: what a line holds, where it goes, and that no failure of it stops the work it speaks of."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from daemons import PATIENCE_S, no_hang

from smp_daemon.log import Log, start
from smp_daemon.log_output import Output, RotatingFile, Stream
from smp_daemon.settings import LogSettings

SMP = [sys.executable, "-c", "from smp_daemon.cli import main; main()"]
LEAST_BYTES = 4096


@contextmanager
def logging_to(path: Path, **settings: Any) -> Iterator[Log]:
    log = start(LogSettings(**{"file": path, "max_bytes": LEAST_BYTES, "keep": 2, **settings}))
    try:
        yield log
    finally:
        log.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def python(program: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    options = {"capture_output": True, **options}
    return subprocess.run([sys.executable, "-c", program, *arguments], text=True, check=True, timeout=60, **options)


# What a line holds


def test_a_line_is_json_with_its_fields_in_order(tmp_path: Path) -> None:
    """Time, level, component, event and session first, the session null where there is none; then the values."""
    with logging_to(tmp_path / "smp.log") as log:
        log.logger.info("indexed", component="indexer", files=3, path=tmp_path, duration_ms=1.5)
        log.logger.bind(component="inbox").warning("refused", session_id="s1", reason="a\nb")
    first, second = lines(tmp_path / "smp.log")
    assert list(first) == ["timestamp", "level", "component", "event", "session_id", "files", "path", "duration_ms"]
    assert first["timestamp"].endswith("Z")
    assert (first["level"], first["component"], first["session_id"], first["path"]) == ("info", "indexer", None, str(tmp_path))
    assert (second["component"], second["session_id"], second["reason"]) == ("inbox", "s1", "a\nb")


def test_an_exception_is_in_its_line(tmp_path: Path) -> None:
    with logging_to(tmp_path / "smp.log") as log:
        try:
            raise RuntimeError("this and that")
        except RuntimeError:
            log.logger.exception("broken", component="x")
    (line,) = lines(tmp_path / "smp.log")
    assert line["level"] == "error"
    assert "RuntimeError: this and that" in line["exception"]


def test_only_lines_of_the_wanted_level_are_written_and_that_can_change(tmp_path: Path) -> None:
    """The same logger obeys new settings, also another file, from the next line on: what SIGHUP needs."""
    with logging_to(tmp_path / "one.log", level="warning") as log:
        log.logger.info("unwanted")
        log.logger.warning("wanted")
        log.change(LogSettings(level="debug", file=tmp_path / "two.log"))
        log.logger.debug("wanted now")
    assert [line["event"] for line in lines(tmp_path / "one.log")] == ["wanted"]
    assert [line["event"] for line in lines(tmp_path / "two.log")] == ["wanted now"]


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("I will not be shown")

    __repr__ = __str__


@pytest.mark.parametrize("value", [Hostile(), float("nan"), "\udcff", b"\xff", {1: {2}}, {"circle": None}])
@pytest.mark.parametrize("form", ["json", "pretty"])
def test_a_value_that_cannot_be_shown_does_not_stop_the_work(tmp_path: Path, value: Any, form: str) -> None:
    if isinstance(value, dict) and "circle" in value:
        value["circle"] = value
    with logging_to(tmp_path / "smp.log", format=form) as log:
        log.logger.info("odd", component="x", value=value)
        assert log.lost_lines == 0
    (line,) = (tmp_path / "smp.log").read_text().splitlines()
    assert "odd" in line


def test_a_terminal_gets_lines_for_people_and_a_pipe_gets_json(tmp_path: Path) -> None:
    """And the setting overrules both: JSON on the terminal, readable lines, without colours, into the pipe."""
    program = ("import sys; from smp_daemon.log import start; from smp_daemon.settings import LogSettings\n"
               "log = start(LogSettings(format=sys.argv[1])).logger\n"
               "log.info('ready', component='daemon', root='/x', nothing=None, empty=[], sessions=2)")  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}

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
    assert pretty.index("ready") < pretty.index("sessions") < pretty.index("component") < pretty.index("root")
    assert "\x1b[" not in on_terminal("auto", NO_COLOR="1")
    assert json.loads(on_terminal("json"))["event"] == "ready"
    assert json.loads(python(program, "auto").stderr)["event"] == "ready"
    plain = python(program, "pretty").stderr
    assert "ready" in plain
    assert "\x1b[" not in plain
    assert not plain.startswith("{")


# A file and its rotation


def test_a_full_file_is_set_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    """No file is larger than it may be, only as many are kept as wanted, and their lines follow each other without a gap."""
    path = tmp_path / "deep/er/smp.log"
    with logging_to(path) as log:
        for number in range(200):
            log.logger.info("line", component="x", number=number)
        assert log.lost_lines == 0
    assert {file.name for file in path.parent.iterdir()} == {"smp.log", "smp.log.1", "smp.log.2"}
    assert all(file.stat().st_size <= LEAST_BYTES for file in path.parent.iterdir())
    numbers = [line["number"] for name in ("smp.log.2", "smp.log.1", "smp.log") for line in lines(path.parent / name)]
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


def test_fewer_are_kept_when_fewer_are_wanted(tmp_path: Path) -> None:
    """Those that an earlier setting has left go too; files with other names stay."""
    for name in ("smp.log.3", "smp.log.17", "smp.log.old", "smp.log.1x", "other.log.9"):
        (tmp_path / name).write_text("x\n")
    with logging_to(tmp_path / "smp.log", keep=1) as log:
        for number in range(100):
            log.logger.info("line", number=number)
    assert {path.name for path in tmp_path.iterdir()} == {"smp.log", "smp.log.1", "smp.log.old", "smp.log.1x", "other.log.9"}


def test_a_file_that_was_taken_away_is_made_anew(tmp_path: Path) -> None:
    """logrotate renames it and may put an empty one in its place, a person removes it or its directory: the next line is in the
    file that has the name now. A log that looked only whether there is one went on in the file that was taken away."""
    path = tmp_path / "logs/smp.log"
    with logging_to(path) as log:
        log.logger.info("first")
        path.rename(tmp_path / "taken.log")
        log.logger.info("second")
        path.rename(tmp_path / "taken too.log")
        path.write_text("")
        log.logger.info("third")
        assert [line["event"] for line in lines(path)] == ["third"]
        path.unlink()
        path.parent.rmdir()
        log.logger.info("fourth")
        assert log.lost_lines == 0
    assert [line["event"] for line in lines(tmp_path / "taken.log")] == ["first"]
    assert [line["event"] for line in lines(tmp_path / "taken too.log")] == ["second"]
    assert [line["event"] for line in lines(path)] == ["fourth"]


def test_a_line_that_a_killed_daemon_left_unfinished_does_not_swallow_the_next(tmp_path: Path) -> None:
    (tmp_path / "smp.log").write_text('{"event": "hal')
    with logging_to(tmp_path / "smp.log") as log:
        log.logger.info("whole")
    assert [json.loads(line)["event"] for line in (tmp_path / "smp.log").read_text().splitlines()[1:]] == ["whole"]


def test_many_threads_write_whole_lines(tmp_path: Path) -> None:
    """Eight threads through several rotations: every line is there once and is whole."""
    with logging_to(tmp_path / "smp.log", max_bytes=20_000, keep=1000) as log:
        def write(thread: int) -> None:
            for number in range(200):
                log.logger.info("line", thread=thread, number=number)

        threads = [threading.Thread(target=write, args=[thread]) for thread in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert log.lost_lines == 0
    found = [(line["thread"], line["number"]) for path in tmp_path.iterdir() for line in lines(path)]
    assert len(list(tmp_path.iterdir())) > 2
    assert sorted(found) == [(thread, number) for thread in range(8) for number in range(200)]


@pytest.mark.parametrize("kind", ["fifo", "link", "directory"])
def test_only_a_plain_file_is_written(tmp_path: Path, kind: str) -> None:
    """A link or a FIFO under the log's name is not followed and not waited for: the lines count as lost."""
    path = tmp_path / "smp.log"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("")
    if kind == "link":
        path.symlink_to(elsewhere)
    else:
        (os.mkfifo if kind == "fifo" else os.mkdir)(path)
    with logging_to(path) as log:
        log.logger.info("line")
        assert log.lost_lines == 1
    assert elsewhere.read_text() == ""


# Failures


def test_a_rotation_that_fails_neither_stops_the_log_nor_lets_it_grow_for_ever(tmp_path: Path) -> None:
    """Lines go on in the old file to twice its size, with one line that says why; then they are counted, and the count is said."""
    obstacle = tmp_path / "smp.log.1"
    (obstacle / "inside").mkdir(parents=True)
    with logging_to(tmp_path / "smp.log", keep=1) as log:
        for number in range(300):
            log.logger.info("line", number=number)
        assert (tmp_path / "smp.log").stat().st_size <= 2 * LEAST_BYTES
        lost = log.lost_lines
        assert 0 < lost < 300
        (obstacle / "inside").rmdir()
        obstacle.rmdir()
        log.logger.info("last")
        assert log.lost_lines == lost
    said = lines(tmp_path / "smp.log.1")
    assert [line["event"] for line in said].count("log rotation failed") == 1
    assert len([line for line in said if line["event"] == "line"]) == 300 - lost
    last = lines(tmp_path / "smp.log")
    assert [line["event"] for line in last] == ["log lines lost", "last"]
    assert last[0]["lost"] == lost


FULL = """
import json, resource, sys
from pathlib import Path
from smp_daemon.log import start
from smp_daemon.settings import LogSettings
log = start(LogSettings(file=Path(sys.argv[1])))
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
for number in range(50):
    log.logger.info("line", number=number)
lost = log.lost_lines
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.logger.info("last")
print(lost, log.lost_lines)
"""


def test_lines_that_found_no_room_are_counted_and_the_count_is_said(tmp_path: Path) -> None:
    """A limit that cuts a line in two: every line in the file is whole, and the first after it says how many are missing.
    Without taking the piece back, the line at the limit was `{"timestamp": "2026-01-…` and nothing more."""
    path = tmp_path / "smp.log"
    done = python(FULL, str(path))
    before, after = map(int, done.stdout.split())
    said = lines(path)
    assert [line["event"] for line in said[-2:]] == ["log lines lost", "last"]
    assert said[-2]["lost"] == before == after == 50 - (len(said) - 2)
    assert said[-2]["level"] == "warning"
    (complaint,) = [json.loads(line) for line in done.stderr.splitlines()]
    assert complaint["event"] == "log cannot be written"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_disk_loses_lines_and_nothing_else(tmp_path: Path) -> None:
    """A daemon with its log on a full tmpfs leads, works and stops cleanly; with room again it says what was lost."""
    disk, root = tmp_path / "disk", tmp_path / "sessions"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=True)
    try:
        with contextlib.suppress(OSError), (disk / "ballast").open("wb", buffering=0) as ballast:
            while True:
                ballast.write(bytes(4096))
        (tmp_path / "smp.yaml").write_text(f"log: {{file: {disk}/smp.log}}\n")
        with subprocess.Popen([*SMP, "run", "--root", str(root), "--config", str(tmp_path / "smp.yaml")],
                              stderr=subprocess.PIPE, text=True) as process:  # fmt: skip
            try:
                assert process.stderr is not None
                assert json.loads(process.stderr.readline())["event"] == "log cannot be written"
                (disk / "ballast").unlink()
                process.terminate()
                assert process.wait(PATIENCE_S) == 0
            finally:
                process.kill()
        said = lines(disk / "smp.log")
        assert said[0]["event"] == "log lines lost"
        assert said[0]["lost"] >= 1
        assert "No space left" in said[0]["reason"]
        assert said[-1]["event"] == "stopped"
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_full_device_costs_the_lines_alone() -> None:
    with Path("/dev/full").open("wb") as full:
        output = Output(Stream(full.fileno()), lambda says, **values: says)
        for _ in range(5):
            output.info("line")
        assert output.lost_lines == 5
        ours, theirs = os.pipe()
        output.redirect(Stream(theirs), None)
        output.info("again")
        assert os.read(ours, 1000) == b"log lines lost\nagain\n"
        assert output.lost_lines == 5
        os.close(ours)
        os.close(theirs)


def test_a_file_that_cannot_be_made_is_said_on_stderr_and_used_when_it_can(tmp_path: Path) -> None:
    """`smp run` with its log below a plain file leads and stops cleanly, and has told why there is no log."""
    (tmp_path / "file").write_text("")
    (tmp_path / "smp.yaml").write_text(f"log: {{file: {tmp_path}/file/smp.log}}\n")
    with subprocess.Popen([*SMP, "run", "--root", str(tmp_path / "sessions"), "--config", str(tmp_path / "smp.yaml")],
                          stderr=subprocess.PIPE, text=True) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            said = json.loads(process.stderr.readline())
            assert (said["event"], said["component"]) == ("log cannot be written", "log")
            assert "Not a directory" in said["reason"]
            (tmp_path / "file").unlink()
            process.terminate()
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
    assert lines(tmp_path / "file/smp.log")[0]["event"] == "log lines lost"


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
    """A full pipe with nobody at its other end costs one pause, then nothing. With a plain write, the first line that did not fit
    waited for ever, and SIGTERM with it."""
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


def test_after_a_stall_lines_are_whole_again() -> None:
    """Lines that the pipe had no room for are lost as a whole, a torn one ends where it was torn, and the count is said."""
    ours, theirs = os.pipe()
    output = Output(Stream(theirs), lambda says, **values: json.dumps({"event": says, **values}))
    long = json.dumps({"event": "long", "text": "x" * 10_000})
    with no_hang():
        for _ in range(100):
            output.info(long)
    lost = output.lost_lines
    assert 0 < lost < 100
    content = bytearray()
    while select.select([ours], [], [], 0)[0]:
        content += os.read(ours, 65536)
    output.info(json.dumps({"event": "last"}))
    content += os.read(ours, 65536)
    whole = []
    for line in content.decode().splitlines():
        with contextlib.suppress(ValueError):
            whole.append(json.loads(line))
    assert [line["event"] for line in whole] == ["long"] * (100 - lost) + ["log lines lost", "last"]
    assert whole[-2]["lost"] == lost
    os.close(ours)
    os.close(theirs)


def test_a_closed_stderr_is_not_mistaken_for_a_file(tmp_path: Path) -> None:
    """Started with `2>&-`, the next file that is opened would get stderr's number. The daemon works, and what goes to stderr
    goes nowhere: not into a file of the tree."""
    program = f'exec "{sys.executable}" -c "from smp_daemon.cli import main; main()" run --root "$1" 0<&- 1>&- 2>&-'
    process = subprocess.Popen(["sh", "-c", program, "sh", str(tmp_path / "sessions")])
    try:
        lead = tmp_path / "sessions/.smp/locks/+daemon/lead.lock"
        while not lead.exists() or b"leading" not in lead.read_bytes():
            assert process.poll() is None
        if sys.platform == "linux":
            assert [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in range(3)] == [os.devnull] * 3
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
    json.loads(lead.read_bytes())


def test_closing_says_what_was_lost_while_it_still_can(tmp_path: Path) -> None:
    """The last lines of a daemon are not lost without a word when the disk has room again only as it stops."""
    (tmp_path / "file").write_text("")
    file = RotatingFile(tmp_path / "file/smp.log", LEAST_BYTES, 1)
    output = Output(file, lambda says, **values: json.dumps({"event": says, **values}))
    output.info("lost")
    (tmp_path / "file").unlink()
    output.close()
    assert [line["event"] for line in lines(tmp_path / "file/smp.log")] == ["log lines lost"]
