"""The log: its lines, where they go, and that no failure of it stops the daemon."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from daemons import PATIENCE_S, Daemon, settings_file, status, wait_until

from smp_client import Memory
from smp_daemon.config.settings import Configuration
from smp_daemon.log import Log

SMP = [sys.executable, "-m", "smp_daemon"]
LEAST_BYTES = 4096
SECRET = "ghp_" + "40Ab3dE5gH7jK9mN1pQ3sT5vW7yZ9bD1fG3h"


def log_to(path: Path, **settings: Any) -> Log:
    given = {"file": path, "max_bytes": LEAST_BYTES, **settings}
    return Log(Configuration({f"log.{name}": value for name, value in given.items()}))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_is_json_with_its_fields_in_order(tmp_path: Path) -> None:
    """Time, level, component, session (null where there is none) and message come first."""
    log = log_to(tmp_path / "smp.log")
    log.logger.info("indexed", component="indexer", files=3, path=tmp_path)
    log.logger.bind(component="inbox").warning("refused", session_id="s1", reason="a\nb")
    first, second = lines(tmp_path / "smp.log")
    assert list(first)[:5] == ["timestamp", "level", "component", "session_id", "message"]
    assert first.pop("timestamp").endswith("Z")
    assert first == {"level": "info", "component": "indexer", "event": "indexed",
                     "message": "indexed", "session_id": None, "files": 3, "path": str(tmp_path)}  # fmt: skip
    assert (second["component"], second["session_id"], second["reason"]) == ("inbox", "s1", "a\nb")


def test_a_secret_stands_in_no_line_wherever_it_comes_from(tmp_path: Path) -> None:
    """Nor in a traceback, a list, a mapping, a path, or on a terminal."""
    log = log_to(tmp_path / "smp.log")
    values = {"drop": f"{SECRET}.yaml", "files": [{SECRET: Path(SECRET)}], "names": {SECRET}}
    try:
        raise OSError(2, "No such file", SECRET)
    except OSError:
        log.logger.exception(f"{SECRET} failed", component="x", session_id=SECRET, **values)
    assert SECRET not in (tmp_path / "smp.log").read_text()
    (line,) = lines(tmp_path / "smp.log")
    assert line["drop"].endswith(".yaml")
    assert "No such file" in line["exception"]


def test_only_lines_of_the_wanted_level_are_written(tmp_path: Path) -> None:
    log = log_to(tmp_path / "smp.log", level="warning")
    log.logger.info("unwanted")
    log.logger.warning("wanted")
    assert [line["event"] for line in lines(tmp_path / "smp.log")] == ["wanted"]


def test_a_terminal_gets_lines_for_people_and_a_pipe_gets_json() -> None:
    program = ("from smp_daemon.log import Log\n"
               "from smp_daemon.config.settings import Configuration\n"
               "log = Log(Configuration()).logger\n"
               "log.info('ready', component='daemon', nothing=None, sessions=2)")  # fmt: skip
    command = [sys.executable, "-c", program]
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen:
        subprocess.run(command, stderr=theirs, check=True)
        os.close(theirs)
        pretty = screen.read(4096).decode()
    assert re.match(r"[^ ]*Z \[info *\] ready +component=daemon sessions=2\s*$", pretty), pretty
    piped = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert json.loads(piped)["event"] == "ready"


def test_a_full_file_is_rotated_and_all_are_for_their_owner_alone(tmp_path: Path) -> None:
    """The oldest goes. Directories 0700 and files 0600 from their creation, whatever the umask."""
    path, before = tmp_path / "deep/er/smp.log", os.umask(0)
    try:
        log = log_to(path)
        for number in range(200):
            log.logger.info("line", component="x", number=number)
    finally:
        os.umask(before)
    assert not log.problem
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "deep").rglob("*")}
    assert modes == {"er": 0o700, "smp.log": 0o600, "smp.log.1": 0o600}
    assert all(file.stat().st_size <= LEAST_BYTES for file in path.parent.iterdir())
    numbers = [line["number"] for name in (".1", "") for line in lines(Path(f"{path}{name}"))]
    assert numbers == list(range(numbers[0], 200))
    assert len(numbers) > 25


@pytest.mark.parametrize("kind", ["fifo", "link", "directory"])
def test_only_a_plain_file_is_written(tmp_path: Path, kind: str) -> None:
    """A link or a FIFO under the log's name is not followed and not waited for."""
    path, elsewhere = tmp_path / "smp.log", tmp_path / "elsewhere"
    elsewhere.write_text("")
    if kind == "link":
        path.symlink_to(elsewhere)
    else:
        (os.mkfifo if kind == "fifo" else os.mkdir)(path)
    log = log_to(path)
    log.logger.info("line")
    assert log.problem
    assert elsewhere.read_text() == ""


def test_a_log_that_fails_is_noted_in_status_until_it_works(memory: Memory, tmp_path: Path) -> None:
    """A daemon whose log stands below a plain file leads. With the file gone, the log goes on."""
    log, root = tmp_path / "file/smp.log", memory.root
    (tmp_path / "file").write_text("")
    memory.create()
    daemon = Daemon([root], tmp_path / "err", settings_file(tmp_path, log={"file": str(log)}))

    def is_noted() -> bool:
        return any("Log lines are lost" in problem for problem in status(root)["problems"])

    try:
        wait_until(is_noted, "status names the log")
        (tmp_path / "file").unlink()
        wait_until(lambda: not is_noted(), "status no longer does")
        assert daemon.stop() == 0
    finally:
        daemon.kill()
    assert lines(log)[-1]["event"] == "stopped"


@pytest.mark.parametrize("reader", ["gone", "asleep"])
def test_a_reader_of_stderr_does_not_stop_the_daemon(tmp_path: Path, reader: str) -> None:
    """A pipe whose reader has closed it, and a full one that nobody reads."""
    ours, theirs = os.pipe()
    if reader == "gone":
        os.close(ours)
    else:
        os.set_blocking(theirs, False)
        with suppress(BlockingIOError):
            while True:
                os.write(theirs, bytes(4096))
        os.set_blocking(theirs, True)
    root = tmp_path / "sessions"
    process = subprocess.Popen([*SMP, "run", "--root", str(root)], stderr=theirs)
    os.close(theirs)
    try:
        wait_until((root / ".smp/status.json").exists, "it works")
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        if reader == "asleep":
            os.close(ours)
