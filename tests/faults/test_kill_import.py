"""`kill -9` of an import at every rename and every write: repeated, it ends where it would have ended undisturbed."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from harness import CHANGING, MOVING, Programs, kill_and_repeat, left_behind, needs_strace
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


def done_again(source: str, root: Path) -> dict[str, Any]:
    """What there is after whoever comes next has tidied up and repeated it."""
    memory = open_later(root)
    tidy(memory)
    done = memory.exchange.import_(root / source)
    tidy(memory)
    return {"left": left_behind(root), "problems": done.problems, **contents(root)}


@needs_strace
@pytest.mark.parametrize("cap", [12, pytest.param(10_000, marks=pytest.mark.slow)], ids=["some", "all"])
@pytest.mark.parametrize("program", SOURCES)
def test_an_import_that_is_killed_and_repeated_ends_where_it_would_have_ended(
    runner: Programs, tmp_path: Path, program: str, cap: int
) -> None:
    """Nothing is there twice, missing or left behind, at some calls that change the disk, or at all."""
    source, prepare = SOURCES[program]
    again = partial(done_again, source)
    assert list(kill_and_repeat(runner, program, prepare(tmp_path), (*CHANGING, *MOVING), again, cap=cap)) == []
