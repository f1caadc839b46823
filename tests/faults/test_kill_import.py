"""`kill -9` of an import at every rename and every write: repeated, it ends where it would have ended undisturbed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import CHANGING, MOVING, Programs, injection, needs_strace
from programs import SESSION, build, open_later, open_memory

from smp_client.passes.tidy import tidy

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
    elsewhere.exchange.export(base / "incoming.jsonl")
    return base


def contents(root: Path) -> dict[str, Any]:
    """Every byte of the memories; of deletions only which, because each has a name of its own."""
    held = {str(path.relative_to(root)): path.read_bytes() for path in (root / "active").rglob("*") if path.is_file()}
    held |= {str(path.relative_to(root)): path.read_bytes() for path in (root / "global").rglob("*") if path.is_file()}
    kept = {name: content for name, content in held.items() if "/indexes/" not in name and not name.endswith("metadata.yaml")}
    return {**kept, "deleted": sorted(one.id for one in open_later(root).privacy.deleted(SESSION))}


def prepared_layout(directory: Path) -> Path:
    """A tree with a session, and in it a folder of another program with a session of the same id."""
    base = directory / "base"
    build(base)
    tidy(open_later(base))
    kinds = ("conversation", "decision", "finding")
    lines = [{"id": f"m{number}", "type": kinds[number % 3], "ts": "2026-01-11T14:30:00Z",
              "data": {"content": f"Text {number}", "issue": "x", "decision": f"Use {number}", "by": "a"}}
             for number in range(30)]  # fmt: skip
    (base / "incoming").mkdir()
    for name in (SESSION, "new"):
        marked = [*lines, {"id": "m3", "deleted": True, "ts": "2026-01-12T00:00:00Z"}]
        (base / f"incoming/{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in marked))
    return base


SOURCES = {"import": ("incoming.jsonl", prepared), "import_layout": ("incoming", prepared_layout)}


def done_again(root: Path, source: str) -> dict[str, Any]:
    """What there is after whoever comes next has tidied up and repeated it."""
    memory = open_later(root)
    tidy(memory)
    done = memory.exchange.import_(root / source)
    tidy(memory)
    left = [path.name for name in ("journal", "leaving", "retired", "tmp") for path in (root / ".smp" / name).glob("*")]
    return {"left": left, "problems": done.problems, **contents(root)}


def kill_everywhere(
    runner: Programs, directory: Path, calls_at: tuple[str, ...], program: str = "import", every: int = 1
) -> Iterator[str]:
    source, prepare = SOURCES[program]
    base = prepare(directory)
    undisturbed = directory / "undisturbed"
    shutil.copytree(base, undisturbed)
    calls = runner.calls(program, undisturbed, directory / "calls")
    wanted = done_again(undisturbed, source)
    assert wanted["left"] == wanted["problems"] == []
    assert "active/new/conversation.md" in wanted
    for call in [call for call in calls if call[0] in calls_at][::every]:
        root = directory / "killed"
        shutil.copytree(base, root)
        outcome = runner.run(program, root, strace=injection(call, "signal=KILL"))
        assert outcome.killed, f"the run made no {call}"
        found = done_again(root, source)
        if found != wanted:
            names = [name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)]
            yield f"killed before {call}, these differ: {names}"
        shutil.rmtree(root)


@needs_strace
@pytest.mark.parametrize("program", SOURCES)
def test_an_import_that_is_killed_and_repeated_ends_where_it_would_have_ended(
    runner: Programs, tmp_path: Path, program: str
) -> None:
    """Nothing is there twice, nothing is missing, nothing is left behind, at every eighth call that changes the disk."""
    assert list(kill_everywhere(runner, tmp_path, (*CHANGING, *MOVING), program, every=8)) == []


@needs_strace
@pytest.mark.slow
@pytest.mark.parametrize("program", SOURCES)
def test_an_import_that_is_killed_anywhere(runner: Programs, tmp_path: Path, program: str) -> None:
    """Nothing is lost or doubled at any call that changes the disk."""
    assert list(kill_everywhere(runner, tmp_path, (*CHANGING, *MOVING), program)) == []
