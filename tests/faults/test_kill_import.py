"""`kill -9` of an import at every rename and every write: repeated, it ends where it would have ended undisturbed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import CHANGING, MOVING, Programs, injection, needs_strace
from programs import SESSION, build, open_later, open_memory

from smp_client.tidy import tidy

pytestmark = pytest.mark.usefixtures("no_grace")


def prepared(directory: Path) -> Path:
    """A tree with a session, and in it an export of another of the same id, a new one, an archived one, and of `global/`."""
    elsewhere = open_memory(directory / "elsewhere")
    session = elsewhere.create_session(id=SESSION)
    session.add_turn("user", "Said elsewhere")
    decision = session.record_decision("another", made_by="ann")
    session.record_finding("one more", discovered_by="ann", memory_refs=[decision.id])
    session.save_agent_state("veritas", {"mood": "other"})
    session.save_artifact("report", "# Another\n")
    elsewhere.create_session(id="new").add_turn("user", "Hello")
    elsewhere.create_session(id="packed").add_turn("user", "Long ago")
    elsewhere.archive_session("packed", "done")
    elsewhere.everywhere.record_preference("Tea")
    base = directory / "base"
    build(base)
    tidy(open_later(base))
    elsewhere.export(base / "incoming.jsonl")
    return base


def contents(root: Path) -> dict[str, Any]:
    names = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in names.items() if not name.startswith(".smp/") and name != "audit.log"}


def done_again(root: Path) -> dict[str, Any]:
    """What there is after whoever comes next has tidied up and repeated it."""
    memory = open_later(root)
    tidy(memory)
    done = memory.import_(root / "incoming.jsonl")
    tidy(memory)
    left = [path.name for name in ("journal", "leaving", "retired", "tmp") for path in (root / ".smp" / name).glob("*")]
    return {"left": left, "problems": done.problems, **contents(root)}


def kill_everywhere(
    runner: Programs, directory: Path, calls_at: tuple[str, ...], variant: str = "sound", every: int = 1
) -> Iterator[str]:
    base = prepared(directory)
    undisturbed = directory / "undisturbed"
    shutil.copytree(base, undisturbed)
    calls = runner.calls("import", undisturbed, directory / "calls", variant)
    wanted = done_again(undisturbed)
    assert wanted["left"] == wanted["problems"] == []
    assert "active/new/conversation.md" in wanted
    assert "archived/packed/summary.yaml" in wanted
    for call in [call for call in calls if call[0] in calls_at][::every]:
        root = directory / "killed"
        shutil.copytree(base, root)
        outcome = runner.run("import", root, variant=variant, strace=injection(call, "signal=KILL"))
        assert outcome.killed, f"the run made no {call}"
        found = done_again(root)
        if found != wanted:
            names = [name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)]
            yield f"killed before {call}, these differ: {names}"
        shutil.rmtree(root)


@needs_strace
def test_an_import_that_is_killed_and_repeated_ends_where_it_would_have_ended(runner: Programs, tmp_path: Path) -> None:
    """Nothing is there twice, nothing is missing, nothing is left behind, at whichever eighth rename or unlink it was killed."""
    assert list(kill_everywhere(runner, tmp_path, MOVING, every=8)) == []


@needs_strace
@pytest.mark.slow
def test_an_import_that_is_killed_anywhere(runner: Programs, tmp_path: Path) -> None:
    """The same for the calls that change the disk; every second of them, of which there are many, and every fourth that moves."""
    assert list(kill_everywhere(runner, tmp_path, CHANGING, every=2)) == []
    (tmp_path / "moving").mkdir()
    assert list(kill_everywhere(runner, tmp_path / "moving", MOVING, every=4)) == []


@needs_strace
@pytest.mark.slow
def test_an_archive_that_comes_file_by_file_would_be_noticed(runner: Programs, tmp_path: Path) -> None:
    """With the summary in its place before the archive, a kill leaves a session that nobody can read."""
    assert any("problems" in problem for problem in kill_everywhere(runner, tmp_path, MOVING, "summary first"))
