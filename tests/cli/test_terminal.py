"""Every listing at 80 columns, on a real pseudo-terminal; hostile texts, and a full output."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
from pathlib import Path

import pytest
from commands import DRIVING, HOSTILE, days_ago, on_a_terminal, run, run_json
from daemons import SMP, smp
from once import copied

from smp_client import Memory, Session
from smp_client.model.progress import tracked
from smp_daemon.cli.output import progress, width

pytestmark = pytest.mark.usefixtures("short_grace")
COLUMNS, LIMIT_BYTES = 80, 4096
LONG = (
    "We keep the refresh tokens in an http-only cookie, since every script can read local storage"
)
TOPICS = {
    "session-2026-01-11-abc123": "authentication and sessions of customers",
    "session-2026-01-11-abc124": "billing",
    "session-2026-01-13-0e0e0e": "日本語のプロジェクト日本語のプロジェクト",
}
ARCHIVED, DELETED, WHOLE = TOPICS


def stocked(root: Path) -> None:
    memory = Memory(root, clock=days_ago(120))
    for name, topic in TOPICS.items():
        session = memory.create_session(id=name, project="E-Commerce Platform", topic=topic)
        session.add_turn("user", f"Please look at {topic}, and at the letter of Jane Doe about it")
        session.record_decision(f"{LONG}: {topic}", made_by="architect", tags=["security.tokens"])
        session.record_finding(f"No rate limit, as Jane Doe found. {LONG}", severity="critical",
                               discovered_by="security-reviewer", tags=["security"])  # fmt: skip
        session.record_learning("x " * 900, learned_by="a-developer-with-a-long-name")
    memory = Memory(root)
    memory.archive_session(ARCHIVED, "done with it for now, since all of it is merged for long")
    memory.privacy.delete(DELETED, ["FIND-001"], reason="made by mistake by somebody")
    memory.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return copied(stocked, tmp_path / ".bmad/sessions")


def shown(line: str, root: Path, columns: int) -> str:
    return on_a_terminal(*line.split(), "--root", root, columns=columns)


LISTINGS = """
sessions --all
search jane rate limit
timeline
topics
restore --list
show --all-about jane
delete --all --text jane --reason r --dry-run
stats
"""


@pytest.mark.parametrize("listing", LISTINGS.strip().splitlines())
def test_no_line_of_a_table_is_wider_than_the_terminal(root: Path, listing: str) -> None:
    """A narrow one shows fewer columns."""
    for columns in (COLUMNS, 50):
        lines = shown(listing, root, columns).splitlines()
        sentences = ("smp ", "smp: ", "1")
        rows = [line for line in lines if not line.startswith(sentences)]
        assert [line for line in rows if width(line) > columns] == []


def test_no_memory_drives_the_terminal_that_it_is_shown_on(tmp_path: Path) -> None:
    """JSON keeps the text."""
    memory = Memory(tmp_path / "s")
    session = memory.create_session(id="hostile", project="日本語のプロジェクト" * 5, topic=HOSTILE)
    session.add_turn("user", f"hostile {HOSTILE}")
    root = ("--root", memory.root)
    seen = on_a_terminal("sessions", *root, columns=100)
    assert on_a_terminal("sessions", *root, columns=100, forked=False) == seen
    for words in (["search", "hostile"], ["timeline"], ["show", "hostile"], ["show", "turn-1"],
                  ["show", "--all-about", "hostile"],
                  ["delete", "hostile", "--dry-run", "--reason", HOSTILE]):  # fmt: skip
        seen += on_a_terminal(*words, *root, columns=30)
    as_json = on_a_terminal("sessions", "--json", *root, columns=100)
    assert not DRIVING.search(seen + as_json)
    assert json.loads(as_json)[0]["topic"] == HOSTILE


def test_an_encoding_without_the_characters_is_no_failure(memory: Memory) -> None:
    memory.create_session(id="s", topic="日本")
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    assert r"\u65e5\u672c" in run(memory.root, "sessions", env=environment)
    assert run_json(memory.root, "sessions", env=environment)[0]["topic"] == "日本"


@pytest.mark.parametrize("buffering", ["", "1"])
def test_a_full_output_is_one_sentence(session: Session, tmp_path: Path, buffering: str) -> None:
    """No traceback, and no list that is cut off in silence, also without a buffer."""
    session.add_turn("user", "word " * 20 * LIMIT_BYTES)
    # A limit would also cut the bytecode that Python writes.
    environment = {**os.environ, "PYTHONUNBUFFERED": buffering, "PYTHONDONTWRITEBYTECODE": "1"}

    def limit() -> None:  # a write that crosses the limit is cut, as on a disk that is just full
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))

    for words, target, why in (
        ("status", "/dev/full", "No space left on device"),
        ("add s1 turn hello", "/dev/full", "No space left on device"),
        ("show s1 turn-1", tmp_path / "out", "File too large"),
    ):
        command = [*SMP, *words.split(), "--root", str(session.memory.root)]
        with Path(target).open("wb") as stdout:
            done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True,
                                  check=False, env=environment,
                                  preexec_fn=None if target == "/dev/full" else limit)  # fmt: skip
        (said,) = done.stderr.splitlines()
        assert (done.returncode, why in said) == (1, True)


def test_a_closed_output_harms_no_file(session: Session) -> None:
    """The next file that is opened gets its number, and no message may go into it."""
    command = f"exec {' '.join(SMP)} add s1 turn hello --root {session.memory.root} >&- 2>&-"
    assert subprocess.run(["bash", "-c", command], check=False).returncode == 0
    assert [turn.text for turn in session.turns()] == ["hello"]
    assert smp("check", "--root", session.memory.root).returncode == 0


def test_colours_are_for_a_terminal_that_wants_them(tmp_path: Path) -> None:
    session = Memory(tmp_path).create_session(id="s1")
    session.record_finding("Slow login", discovered_by="a", severity="critical")
    session.record_decision("Login by cookie", made_by="a")
    session.record_decision("Login by token", made_by="a")
    session.supersede("DEC-001", by="DEC-002")
    arguments = ("search", "login", "--root", tmp_path)
    shown = on_a_terminal(*arguments, columns=100, NO_COLOR="")
    assert "\x1b[31m\x1b[1mfinding" in shown  # a critical one
    assert re.search(r"\x1b\[2m[^\x1b]*Login by cookie", shown)  # dim: it no longer holds
    assert "\x1b" not in on_a_terminal(*arguments, columns=100, NO_COLOR="1")
    assert "\x1b" not in on_a_terminal(*arguments, columns=100, NO_COLOR="", TERM="dumb")
    assert "\x1b" not in smp(*arguments).stdout


def test_long_work_shows_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("smp_daemon.cli.output._REDRAWN_S", 0.0)
    with progress("reading:", hidden_s=0.0):
        for _ in tracked(["a", "b", "c", "d"]):
            for _ in tracked(["inner", "pieces"]):
                pass
    said = capsys.readouterr().err
    assert "reading: █████░░░░░░░░░░░░░░░ 25%, 0:00 left" in said
    assert "75%" in said
    assert said.endswith(" \r")


def test_an_error_in_json_has_its_code(memory: Memory) -> None:
    memory.create_session(id="s1")
    done = smp("show", "nothing", "--json", "--root", memory.root)
    assert json.loads(done.stderr)["error"]["code"] == "MEM_E005"
    done = smp("show", "--nothing", "--json")
    assert "No such option" in json.loads(done.stderr)["error"]["message"]
    assert done.returncode == 2
