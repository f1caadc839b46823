"""What was deleted or purged, here or where it comes from, when it is imported from another layout once more."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from layouts_data import CHECKED_EXAMPLE, PER_KIND_EXAMPLE, SINGLE_EXAMPLE, Entry, write_checked, write_lines, write_per_kind
from layouts_reading import stream

from smp_client import Memory
from smp_client.exchange.layouts.sessions import DELETED, SOFT

AT = "2026-01-12T00:00:00Z"
DECISION = SINGLE_EXAMPLE[1]
OTHER: Entry = {**DECISION, "ts": "2026-02-02T09:00:00Z", "data": {"decision": "Use passkeys", "by": "architect"}}


def write_session(place: Path, *lines: Entry) -> Path:
    return write_lines(place / "s1.jsonl", [*lines])


def decisions(memory: Memory) -> dict[str, str]:
    return {one.id: one.text for one in memory.session("s1").records("decision")}


def contents(root: Path) -> dict[str, bytes]:
    names = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in names.items() if not name.startswith(".smp/") and name != "audit.log"}


# Purged here.


@pytest.fixture
def purged(memory: Memory, tmp_path: Path) -> Memory:
    """A turn and a decision came from elsewhere, and were purged."""
    memory.import_(write_session(tmp_path, *SINGLE_EXAMPLE))
    memory.purge_now("s1", ["m002", "turn-1"])
    return memory


def test_a_purged_id_keeps_no_other_memory_out(purged: Memory, tmp_path: Path) -> None:
    """Programs number their memories anew: by its time the one that was purged is told from another that has its id."""
    said: Entry = {**SINGLE_EXAMPLE[0], "ts": "2026-02-02T08:00:00Z", "data": {"role": "user", "content": "Passkeys?"}}
    chosen = {**OTHER, "data": {**OTHER["data"], "references": ["m001"]}}
    done = purged.import_(write_session(tmp_path, said, chosen))
    assert (done.added, done.notes, done.renamed) == (2, [], {"s1": {"turn-1": "turn-2", "m002": "DEC-001"}})
    session = purged.session("s1")
    assert session.get("DEC-001").data["imported_id"] == "m002"
    assert session.get("DEC-001").data["references"] == ["turn-2"]
    assert session.get("turn-2").text == "Passkeys?"
    again = purged.import_(tmp_path / "s1.jsonl")
    assert (again.added, again.problems) == (0, [])
    assert purged.verify_import(tmp_path / "s1.jsonl").is_whole


def test_what_was_purged_itself_stays_away(purged: Memory, tmp_path: Path) -> None:
    """Also where the source has dropped what stood before it, and its messages have other numbers."""
    earlier: Entry = {**SINGLE_EXAMPLE[0], "id": "m000", "ts": "2026-01-11T14:00:00Z"}
    for lines in (SINGLE_EXAMPLE, [earlier, *SINGLE_EXAMPLE]):
        done = purged.import_(write_session(tmp_path, *lines))
        assert done.added == len(lines) - len(SINGLE_EXAMPLE)
        assert all("purged here, and not taken in" in note for note in done.notes)
        assert decisions(purged) == {}
        assert "Hello" not in [turn.text for turn in purged.session("s1").turns() if turn.data.get("imported_id") == "m001"]
        assert purged.verify_import(tmp_path / "s1.jsonl").is_whole


def test_what_was_purged_before_times_were_kept_is_known_by_its_id(purged: Memory, tmp_path: Path) -> None:
    listed = purged.root / "deleted/purged.yaml"
    listed.write_text(re.sub(r"(?m)^    (imported_)?timestamps:.*\n(?:    - .*\n|      .*\n)*", "", listed.read_text()))
    assert "timestamps" not in listed.read_text()
    assert purged.import_(write_session(tmp_path, OTHER)).added == 0


def test_a_purged_id_is_not_given_again_where_the_session_is_gone(purged: Memory, tmp_path: Path) -> None:
    """Somebody has moved it away by hand. What refers to a memory follows it."""
    shutil.rmtree(purged.root / "active/s1")
    finding = {**SINGLE_EXAMPLE[2], "data": {"issue": "No passkeys", "references": ["m002"]}}
    source = write_session(tmp_path, OTHER, finding)
    for dry_run in (True, False):
        done = purged.import_(source, dry_run=dry_run)
        assert (done.added, done.sessions, done.renamed) == (2, {"s1": "new"}, {"s1": {"m002": "DEC-001"}})
    assert decisions(purged) == {"DEC-001": "Use passkeys"}
    assert purged.session("s1").get("m003").data["references"] == ["DEC-001"]
    assert purged.import_(source).added == 0
    assert purged.verify_import(source).is_whole


def test_what_comes_as_deleted_is_compared_with_what_was_purged(purged: Memory, tmp_path: Path) -> None:
    """The one that was purged stays away; another that has only its id comes as deleted, under an id of its own."""
    mark = {"id": "m002", "deleted": True, "ts": AT}
    done = purged.import_(write_session(tmp_path, DECISION, mark))
    assert done.deleted == 0
    assert "m002: purged here, and not taken in" in done.notes[0]
    source = write_session(tmp_path, OTHER, mark)
    assert [purged.import_(source, dry_run=dry_run).deleted for dry_run in (True, False, False)] == [1, 1, 0]
    session = purged.session("s1")
    (gone,) = session.deleted()
    assert session.restore(gone.id).data["imported_id"] == "m002"
    assert decisions(purged) == {gone.id: "Use passkeys"} != {"m002": "Use passkeys"}
    assert purged.import_(source).deleted == 0
    assert purged.verify_import(source).is_whole
    assert purged.import_(write_session(tmp_path, DECISION, mark), purged=True).deleted == 1


def test_nothing_comes_back_of_a_session_that_was_purged(memory: Memory, tmp_path: Path) -> None:
    """Nor is it missed: also not what was deleted there, nor a line that cannot be read."""
    source = write_session(tmp_path, *SINGLE_EXAMPLE, {"id": "m002", "deleted": True})
    source.write_text(source.read_text() + "nonsense\n")
    memory.import_(source)
    memory.purge_now("s1")
    done = memory.import_(source)
    assert (done.sessions, done.deleted, len(done.problems)) == ({"s1": "left out"}, 0, 1), done.problems
    assert not (memory.root / "deleted/s1").exists()
    verified = memory.verify_import(source)
    assert verified.is_whole, verified.missing
    assert verified.sessions["s1"].deleted == 4


# Deleted there, after it was imported.


def mark_single(place: Path, *, is_marked: bool) -> None:
    write_session(place, *SINGLE_EXAMPLE, *([{"id": "m002", "deleted": True, "ts": AT, "reason": "asked to"}] if is_marked else []))


def mark_line(place: Path, *, is_marked: bool) -> None:
    write_session(place, *SINGLE_EXAMPLE[:1], {**DECISION, "deleted": is_marked, "deleted_at": AT})


def mark_per_kind(place: Path, *, is_marked: bool) -> None:
    first = PER_KIND_EXAMPLE["decisions.jsonl"][0]
    entry = {**first, **({"deleted": 1, "deleted_at": AT} if is_marked else {})}
    write_per_kind(place / "sessions/s1", {"session_id": "s1"}, {**PER_KIND_EXAMPLE, "decisions.jsonl": [entry]})


def mark_checked(place: Path, *, is_marked: bool) -> None:
    lines = [{**line, "session_id": "s1"} for line in CHECKED_EXAMPLE]
    gone = [{"id": "mem_abc123xyz", "timestamp": AT, "reason": "asked to"}] if is_marked else []
    write_checked(place / "sessions/s1", {"session_id": "s1"}, lines, gone)


Writer = Callable[..., None]


@pytest.fixture(params=[mark_single, mark_line, mark_per_kind, mark_checked])
def write(request: pytest.FixtureRequest) -> Writer:
    return request.param  # type: ignore[no-any-return]


def test_what_was_deleted_there_since_is_deleted_here(write: Writer, memory: Memory, tmp_path: Path) -> None:
    """It can be restored, when and why are those of the source, and a second time changes nothing."""
    source = tmp_path / "from"
    write(source, is_marked=False)
    memory.import_(source)
    ((memory_id, text),) = decisions(memory).items()
    write(source, is_marked=True)
    told = memory.verify_import(source)
    assert told.changed == [f"s1: {memory_id} is deleted where it comes from, and stands here"]
    plan, done = memory.import_(source, dry_run=True), memory.import_(source)
    assert (done.added, done.deleted, done.problems) == (0, 1, []) == (plan.added, plan.deleted, plan.problems)
    assert (done.sessions["s1"], plan.sessions["s1"]) == ("merged", "merged")
    assert done.notes == plan.notes == [
        f"s1: {memory_id}: deleted where it comes from, and therefore here; smp restore brings it back."
    ]  # fmt: skip
    assert decisions(memory) == {}
    (gone,) = memory.deleted("s1")
    assert (gone.id, gone.deleted_at, gone.reason) == (memory_id, AT, "asked to" if "asked to" in str(contents(source)) else SOFT)
    before = contents(memory.root)
    again = memory.import_(source)
    assert (again.added, again.deleted, contents(memory.root)) == (0, 0, before)
    assert memory.verify_import(source).is_whole
    assert memory.session("s1").restore(memory_id).text == text


def test_what_was_restored_here_stays(write: Writer, memory: Memory, tmp_path: Path) -> None:
    """Also when the source says no more that it is deleted: it is the same memory, and comes only once."""
    source = tmp_path / "from"
    for is_marked in (False, True):
        write(source, is_marked=is_marked)
        memory.import_(source)
    memory.restore("s1", [memory.deleted("s1")[0].id])
    there = decisions(memory)
    for is_marked in (True, False, True):
        write(source, is_marked=is_marked)
        done = memory.import_(source)
        assert (done.added, done.deleted, decisions(memory)) == (0, 0, there)
        assert memory.verify_import(source).is_whole


def test_what_was_restored_here_goes_out_as_what_stands(write: Writer, memory: Memory, tmp_path: Path) -> None:
    """Though it says of itself that it is deleted, since it came like that."""
    write(tmp_path / "from", is_marked=True)
    memory.import_(tmp_path / "from")
    memory.restore("s1", [memory.deleted("s1")[0].id])
    layout = {mark_checked: "jsonl-checked", mark_per_kind: "jsonl-per-kind"}.get(write, "jsonl")
    memory.export_layout(tmp_path / "out", layout=layout)
    other = Memory(tmp_path / "other")
    other.import_(tmp_path / "out")
    assert decisions(other) == decisions(memory) != {}


def test_one_of_ours_that_another_program_deletes_goes_here_too(memory: Memory, tmp_path: Path) -> None:
    """It went there by an export, and has come back from it without a word of where it was."""
    memory.create_session(id="s1").record_decision("Use OAuth", made_by="architect")
    memory.export_layout(tmp_path / "out", layout="jsonl")
    with (tmp_path / "out/s1.jsonl").open("a") as file:
        file.write(json.dumps({"id": "DEC-001", "deleted": True, "ts": AT}) + "\n")
    assert [memory.import_(tmp_path / "out").deleted for _ in range(2)] == [1, 0]
    memory.restore("s1", ["DEC-001"])
    assert (memory.import_(tmp_path / "out").deleted, decisions(memory)) == (0, {"DEC-001": "Use OAuth"})


def drop_single(place: Path) -> None:
    others = [line for line in SINGLE_EXAMPLE if line is not DECISION]
    write_session(place, *others, {"id": "m002", "deleted": True, "ts": AT, "reason": "asked to"})


def drop_checked(place: Path) -> None:
    lines = [{**line, "session_id": "s1"} for line in CHECKED_EXAMPLE if line["id"] != "mem_abc123xyz"]
    gone = [{"id": "mem_abc123xyz", "timestamp": AT, "reason": "asked to"}]
    write_checked(place / "sessions/s1", {"session_id": "s1"}, lines, gone)


@pytest.mark.parametrize(("write_all", "drop"), [(mark_single, drop_single), (mark_checked, drop_checked)])
def test_a_mark_of_which_the_line_is_gone_is_followed(write_all: Writer, drop: Writer, memory: Memory, tmp_path: Path) -> None:
    """The source was compacted since. What was made here, or given that id again, is not meant; nor what is restored."""
    drop(tmp_path / "never")
    assert memory.import_(tmp_path / "never").deleted == 0
    source = tmp_path / "from"
    write_all(source, is_marked=False)
    memory.import_(source)
    ((memory_id, text),) = decisions(memory).items()
    own = memory.session("s1").record_decision("Mine", made_by="me")
    shutil.rmtree(source)
    drop(source)
    assert [memory.import_(source, dry_run=dry_run).deleted for dry_run in (True, False, False)] == [1, 1, 0]
    assert decisions(memory) == {own.id: "Mine"}
    (gone,) = memory.deleted("s1")
    assert (gone.id, gone.deleted_at, gone.reason) == (memory_id, AT, "asked to")
    assert memory.verify_import(source).is_whole
    memory.restore("s1", [memory_id])
    assert (memory.import_(source).deleted, decisions(memory)[memory_id]) == (0, text)


def test_a_mark_alone_does_not_mean_one_of_ours_or_a_later_one(memory: Memory, tmp_path: Path) -> None:
    """Here and there the same number is given to two memories; and an id may be given again after it was deleted."""
    mark = {"id": "DEC-001", "deleted": True, "ts": AT}
    memory.create_session(id="s1").record_decision("Mine", made_by="me", timestamp="2026-01-01T00:00:00Z")
    memory.create_session(id="s2")
    memory.import_(write_lines(tmp_path / "s2.jsonl", [{**OTHER, "id": "DEC-001"}]))
    for name in ("s1", "s2"):
        assert memory.import_(write_lines(tmp_path / f"{name}.jsonl", [SINGLE_EXAMPLE[0], mark])).deleted == 0
        assert [one.id for one in memory.session(name).records("decision")] == ["DEC-001"]


def test_a_deletion_that_was_cut_off_is_finished(memory: Memory, tmp_path: Path) -> None:
    """It went, and somebody died before the record said when and why."""
    mark_single(tmp_path, is_marked=False)
    memory.import_(tmp_path)
    memory.delete("s1", "m002", reason=SOFT, deleted_by="import")
    mark_single(tmp_path, is_marked=True)
    assert memory.import_(tmp_path).deleted == 0
    (gone,) = memory.deleted("s1")
    assert (gone.deleted_at, gone.reason) == (AT, "asked to")
    memory.restore("s1", ["m002"])
    assert memory.import_(tmp_path).deleted == 0


def test_a_deletion_reaches_a_turn_that_has_another_number_and_an_archived_session(memory: Memory, tmp_path: Path) -> None:
    """All are of one second, so that only their ids tell them apart; what stands beside a mark may have been edited here."""
    said = [{**SINGLE_EXAMPLE[0], "id": f"m{number}", "data": {"role": "user", "content": f"message {number}"}}
            for number in range(4)]  # fmt: skip
    memory.import_(write_session(tmp_path, *said, DECISION))
    memory.session("s1").update("m002", rationale="it is known")
    memory.archive_session("s1", "done")
    gone = [{"id": one, "deleted": True, "ts": AT} for one in ("m2", "m002")]
    assert memory.import_(write_session(tmp_path, *said[1:], DECISION, *gone)).deleted == 2
    assert {one.id for one in memory.deleted("s1")} == {"turn-3", "m002"}
    memory.restore_session("s1")
    assert [turn.text for turn in memory.session("s1").turns()] == ["message 0", "message 1", "message 3"]


# Ways to say so.


@pytest.mark.parametrize("value", [True, 1, 1.0, "true", "Yes", " 1 "])
def test_a_mark_may_be_any_true_value(value: Any, tmp_path: Path) -> None:
    """In an entry of any layout, in a line of its own, and in an index."""
    mark_entries(tmp_path, value)
    entries, problems = stream(tmp_path)
    assert problems == []
    assert {entry["session"] for entry in entries if entry["entry"] == DELETED} == {"line", "own", "kinds", "checked", "index"}
    assert not [entry for entry in entries if entry["entry"] == "memory" and entry["file"] == "decisions.yaml"]


@pytest.mark.parametrize("value", [False, 0, None, "", "no", "false", [], "the old table"])
def test_what_does_not_say_yes_is_no_mark(value: Any, tmp_path: Path) -> None:
    mark_entries(tmp_path, value)
    assert not [entry for entry in stream(tmp_path)[0] if entry["entry"] == DELETED]


def mark_entries(place: Path, value: Any) -> None:
    checked = CHECKED_EXAMPLE[2]
    write_lines(place / "line.jsonl", [DECISION, {"id": "m002", "deleted": value}])
    write_lines(place / "own.jsonl", [{**DECISION, "deleted": value}])
    entry = {**PER_KIND_EXAMPLE["decisions.jsonl"][0], "deleted": value}
    write_per_kind(place / "sessions/kinds", {"session_id": "kinds"}, {"decisions.jsonl": [entry]})
    write_checked(place / "sessions/checked", {"session_id": "checked"}, [{**checked, "deleted": value}], [])
    write_checked(place / "sessions/index", {"session_id": "index"}, [checked], [])
    index = {"entries": {checked["id"]: {"deleted": value}}}
    (place / "sessions/index/index.json").write_text(json.dumps(index))


# Two layouts.


def test_a_session_that_comes_in_two_layouts_is_compared_once(memory: Memory, tmp_path: Path) -> None:
    """Another one comes in between; what was met before is not taken for something that is only here."""
    for name in ("s0", "s1", "s2"):
        write_lines(tmp_path / f"{name}.jsonl", SINGLE_EXAMPLE)
    mark_checked(tmp_path, is_marked=False)
    memory.import_(tmp_path)
    memory.session("s1").record_decision("Mine", made_by="me")
    done = memory.verify_import(tmp_path)
    assert done.is_whole
    found = {name: (one.source, one.found, one.extra) for name, one in done.sessions.items()}
    assert found == {"s0": (4, 4, 0), "s1": (7, 7, 1), "s2": (4, 4, 0)}
    assert all(one.source_sha256 == one.tree_sha256 for one in done.sessions.values())
