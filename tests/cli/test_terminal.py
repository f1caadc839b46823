"""Every listing at 80 columns, on a real pseudo-terminal: no line is wider, and nothing that tells rows apart is cut."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from commands import on_a_terminal
from daemons import smp
from once import copied

from smp_client import Memory
from smp_daemon.cli.output import cut_text, width, wrapped

pytestmark = pytest.mark.usefixtures("short_grace")
COLUMNS = 80
LONG = "We keep the refresh tokens in an http-only cookie, since every script on the page can read local storage"
TOPICS = {
    "session-2026-01-11-abc123": "authentication and sessions of customers", "session-2026-01-11-abc124": "billing",
    "session-2026-01-12-ffff00": "search in the shop", "session-2026-01-13-0e0e0e": "日本語のプロジェクト日本語のプロジェクト",
}  # fmt: skip
ARCHIVED, DELETED, ANONYMISED, WHOLE = TOPICS


def days_ago(days: float) -> Callable[[], datetime]:
    then = datetime.now(UTC) - timedelta(days=days)
    return lambda: then


def stocked(root: Path) -> None:
    memory = Memory(root, clock=days_ago(120))
    for name, topic in TOPICS.items():
        session = memory.create_session(id=name, project="E-Commerce Platform", topic=topic, user="jane")
        session.add_turn("user", f"Please look at {topic}, and at what Jane Doe of Elm Street 5 wrote about it last week")
        session.record_decision(f"{LONG}: {topic}", made_by="architect", tags=["security.tokens", "frontend"])
        session.record_decision("Use PostgreSQL 16", made_by="architect", tags=["database"])
        session.record_finding(f"The login has no rate limit, as Jane Doe found. {LONG}", discovered_by="security-reviewer",
                               severity="critical", tags=["security"])  # fmt: skip
        session.record_learning("x " * 900, learned_by="a-developer-with-a-long-name")
        session.relate("DEC-001", "FIND-001", "resolves")
        session.save_artifact("report-of-the-review", f"# Report\n{LONG}")
    memory.everywhere.record_pattern("Jane Doe likes tabs", learned_by="dev")
    memory = Memory(root)
    memory.archive_session(ARCHIVED, "done with it for now, since all of it is merged and nobody will look at it")
    memory.delete(DELETED, ["DEC-002", "FIND-001"], reason="made by mistake, and nobody wants to have it any more")
    memory.anonymize(ANONYMISED)
    gone = memory.create_session(id="gone-1")
    gone.add_turn("user", "x")
    memory.delete_session("gone-1", reason="made by mistake")
    memory.close()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Below the working directory, as the tree of a project is."""
    monkeypatch.chdir(tmp_path)
    return copied(stocked, tmp_path / ".bmad/sessions")


def shown(*arguments: object, fails: bool = False) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", on_a_terminal(*arguments, columns=COLUMNS, fails=fails))


LISTINGS = [
    "sessions", "sessions --all", "search jane rate limit", "search rate limit --explain", "search --session latest --explain",
    "timeline", "timeline latest", "topics", "topics latest", "restore --list", "show 0e0e0e", f"show {ARCHIVED}",
    "show global", f"show {WHOLE} DEC-001", f"show {ARCHIVED} DEC-001", f"show {DELETED} FIND-001",
    "show --all-about jane", f"compact {WHOLE} --reduce 2 --dry-run", f"compact {WHOLE} --estimate", "compact --all --list",
    f"archive {WHOLE} --dry-run", "archive --due --dry-run", "delete --all --text jane --reason r --dry-run --yes",
    f"delete {WHOLE} --reason r --dry-run --yes", f"anonymize {WHOLE} --dry-run", "decay --dry-run", "purge --dry-run",
]  # fmt: skip


@pytest.mark.parametrize("listing", LISTINGS)
def test_no_line_of_a_listing_is_wider_than_the_terminal(root: Path, listing: str) -> None:
    lines = shown(*listing.split(), "--root", root.relative_to(Path.cwd())).splitlines()
    assert lines
    assert [line for line in lines if width(line) > COLUMNS] == []


def test_status_is_not_wider_either(root: Path) -> None:
    """No daemon runs, so it fails; a sentence of it needs two lines."""
    lines = shown("status", "--root", root.relative_to(Path.cwd()), fails=True).splitlines()
    assert lines[0] == "down  .bmad/sessions"
    assert "  ! No daemon is running for this root. smp run starts one, and smp service" in lines
    assert [line for line in lines if width(line) > COLUMNS] == []


def test_sessions_are_told_apart_by_their_endings_which_are_taken_as_names(root: Path) -> None:
    """Not by their beginnings, which are the same; what the table shows can be typed."""
    lines = shown("sessions", "--root", root).splitlines()[1:]
    names = [line.split()[0].removeprefix("…") for line in lines]
    assert sorted(names) == ["0e0e0e", "abc124", "ffff00"]
    found = [json.loads(smp("show", name, "--json", "--root", root).stdout)["id"] for name in names]
    assert sorted(found) == [DELETED, ANONYMISED, WHOLE]
    results = shown("search", "refresh tokens", "--root", root)
    assert {"…abc123", "…abc124", "…ffff00", "…0e0e0e"} <= set(results.split())




def test_what_no_longer_holds_is_marked_also_where_the_text_is_cut(root: Path) -> None:
    """In a table, on a line of its own and in the timeline."""
    for listing in (["search", "rate limit"], ["search", "rate limit", "--explain"], ["timeline", WHOLE]):
        assert re.search(r"… \[resolved by DEC-001\]$", shown(*listing, "--root", root), re.MULTILINE)
    text = "A text that is longer than the table has room for [superseded by session-2026-01-11-abc123/DEC-001]"
    assert cut_text(text, 70) == "A text that is long… [superseded by session-2026-01-11-abc123/DEC-001]"
    assert cut_text("short [archived]", 40) == "short [archived]"
    assert all(width(cut_text(text, columns)) <= columns for columns in range(1, 120))


def test_a_pipe_gets_every_column_whole(root: Path) -> None:
    lines = smp("search", "refresh tokens", "--type", "decision", "--root", root).stdout.splitlines()
    assert lines[0].split() == ["SCORE", "ID", "SESSION", "TYPE", "WHEN", "TEXT"]
    assert not any("…" in line for line in lines)
    assert any(ARCHIVED in line and LONG in line for line in lines)
    assert not any(line.startswith("    ") for line in lines)


def test_the_timeline_has_a_limit(root: Path) -> None:
    """The last ones; how many came before is said."""
    whole = json.loads(smp("timeline", WHOLE, "--json", "--root", root).stdout)
    done = smp("timeline", WHOLE, "--limit", 2, "--json", "--root", root)
    assert json.loads(done.stdout) == whole[-2:]
    assert done.stderr == f"{len(whole) - 2} earlier ones are not listed.\n"
    assert smp("timeline", WHOLE, "--limit", 200, "--root", root).stderr == ""
    assert smp("timeline", WHOLE, "--limit", 0, "--root", root).returncode == 2


@pytest.mark.parametrize(("text", "lines"), [
    ("one two three", ["one two", "  three"]), ("  one two", ["  one two"]), ("", [""]),
    ("one a-word-that-is-longer three", ["one a-word-that-is-longer", "  three"]),
])  # fmt: skip
def test_a_sentence_is_broken_between_words(text: str, lines: list[str]) -> None:
    assert wrapped(text, 9, 2).split("\n") == lines
