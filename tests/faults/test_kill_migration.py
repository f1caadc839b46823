"""`kill -9` of a move from another layout at every call that changes the disk: begun again, it ends where it would have ended."""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import CHANGING, MOVING, Programs, injection, needs_strace
from programs import move_in, open_later, open_memory

from smp_client import Memory
from smp_client.tidy import tidy

sys.path.insert(0, str(Path(__file__).parents[1]))  # whoever runs only the faults

from test_importing_layouts import WRITERS, contents

pytestmark = pytest.mark.usefixtures("no_grace")
LAYOUTS = [name for name in WRITERS if name != "smp"]  # which test_kill_import.py has


def prepared(directory: Path, layout: str, *, there: bool) -> Path:
    """The source, with a line that cannot be read, and a tree: empty, or with a session of the same name."""
    base = directory / "base"
    WRITERS[layout](base / "incoming")
    for path in sorted((base / "incoming").rglob("*.jsonl"))[:1]:
        path.write_text(path.read_text() + '{"id": "torn')
    if there:
        memory = open_memory(base / "sessions")
        memory.create_session(id="s1").add_turn("user", "I was here before.")
        memory.session("s1").record_decision("Mine", made_by="me")
        tidy(open_later(base / "sessions"))
    return base


def state(base: Path) -> dict[str, Any]:
    """Every byte of the tree and of the backup; of what came as deleted only which: each deletion has a name of its own."""
    memory = Memory(base / "sessions")
    files = {name: content for name, content in contents(base / "sessions").items() if not name.startswith("deleted/")}
    left = [path.name for name in ("journal", "leaving", "retired", "tmp") for path in (memory.root / ".smp" / name).glob("*")]
    backup = {str(path.relative_to(base)): path.read_bytes() for path in (base / "backup-pre-smp").rglob("*") if path.is_file()}
    return {"left": left, "deleted": sorted(item.id for item in memory.deleted("s1")), **files, **backup}


def done_again(base: Path) -> dict[str, Any]:
    memory = open_later(base / "sessions")
    if memory.root.is_dir():
        tidy(memory)
    move_in(memory)
    tidy(memory)
    assert memory.verify_import(base / "incoming").is_whole
    return state(base)


def kill_everywhere(
    runner: Programs, directory: Path, layout: str, calls_at: tuple[str, ...], *, there: bool, every: int
) -> Iterator[str]:
    """At one in so many of the calls, each time at others."""
    base = prepared(directory, layout, there=there)
    # Always at the same path, which the backup has in its name.
    place = directory / "place"
    shutil.copytree(base, place)
    calls = runner.calls("move_in", place / "sessions", directory / "calls")
    wanted = done_again(place)
    assert wanted["left"] == []
    assert "sessions/active/s1/metadata.yaml" not in wanted
    assert "active/s1/metadata.yaml" in wanted
    assert any(name.startswith("backup-pre-smp/") for name in wanted)
    for call in [call for call in calls if call[0] in calls_at][random.randrange(every) :: every]:
        shutil.rmtree(place)
        shutil.copytree(base, place)
        outcome = runner.run("move_in", place / "sessions", strace=injection(call, "signal=KILL"))
        assert outcome.killed, f"the run made no {call}"
        found = done_again(place)
        if found != wanted:
            names = [name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)]
            yield f"killed before {call}, these differ: {json.dumps(names)}"


@needs_strace
@pytest.mark.parametrize(
    ("layout", "there"),
    [pytest.param(layout, there, id=f"{layout}-{'merged' if there else 'new'}", marks=[] if there == at % 2 else pytest.mark.slow)
     for at, layout in enumerate(LAYOUTS) for there in (False, True)],
)  # fmt: skip
def test_a_move_that_is_killed_and_begun_again_ends_where_it_would_have_ended(
    runner: Programs, tmp_path: Path, layout: str, there: bool
) -> None:
    """Nothing is there twice, nothing is missing, nothing is left behind; here at some of the renames and unlinks."""
    assert list(kill_everywhere(runner, tmp_path, layout, MOVING, there=there, every=12)) == []


@needs_strace
@pytest.mark.slow
@pytest.mark.parametrize("there", [False, True], ids=["new", "merged"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_move_that_is_killed_anywhere(runner: Programs, tmp_path: Path, layout: str, there: bool) -> None:
    """The same for every call that changes the disk; some of them each time."""
    assert list(kill_everywhere(runner, tmp_path, layout, CHANGING, there=there, every=40)) == []
