"""What is imported more than once, in one go or later: by its id, its time and what it says each memory is told from any other."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from layouts_data import Entry, write_checked, write_lines, write_per_kind

from smp_client import Invalid, Memory

AT = "2026-01-11T14:31:00Z"


def said(text: str, memory_id: Any = "d1", at: str = AT, **further: Any) -> Entry:
    return {"id": memory_id, "type": "decision", "ts": at, "data": {"decision": text, "by": "architect", **further}}


def message(memory_id: str, at: str = AT) -> Entry:
    return {"id": memory_id, "type": "conversation", "ts": at, "data": {"role": "user", "content": f"message {memory_id}"}}


def write(place: Path, *lines: Entry) -> Path:
    return write_lines(place / "s1.jsonl", [*lines])


def write_kinds(place: Path, **files: list[Entry]) -> Path:
    write_per_kind(place / "sessions/s1", {"session_id": "s1"}, {f"{name}.jsonl": lines for name, lines in files.items()})
    return place


def checked(entry: Entry, **further: Any) -> Entry:
    return {"id": entry["id"], "session_id": "s1", "timestamp": entry["ts"], "type": entry["type"], "content": entry["data"],
            "importance": 1.0, "decay_factor": 1.0, "tags": [], "references": [], **further}  # fmt: skip


def standing(memory: Memory) -> dict[str, str]:
    return {one.id: one.text for one in memory.session("s1").records("decision")}


def is_settled(memory: Memory, source: Path) -> bool:
    """A further import adds and changes nothing, and nothing is missing."""
    before = {path: path.read_bytes() for path in sorted((memory.root / "active").rglob("*.*")) if path.is_file()}
    again = memory.import_(source)
    assert (again.added, again.deleted, again.problems) == (0, 0, [])
    assert before == {path: path.read_bytes() for path in sorted((memory.root / "active").rglob("*.*")) if path.is_file()}
    verified = memory.verify_import(source)
    assert not verified.missing + verified.changed
    return verified.is_whole


# One session in several places of one source.


def test_a_session_in_two_places_comes_once(memory: Memory, tmp_path: Path) -> None:
    source = tmp_path / "from"
    for place in (".bmad/memory", "memory"):
        write(source / place, message("a1"), said("alpha"), *([said("only here", "d2")] if place == "memory" else []))
    for dry_run in (True, False):
        done = memory.import_(source, dry_run=dry_run)
        assert (done.added, done.skipped, done.sessions, done.problems) == (3, 2, {"s1": "new"}, [])
    assert standing(memory) == {"d1": "alpha", "d2": "only here"}
    assert [turn.text for turn in memory.session("s1").turns()] == ["message a1"]
    assert is_settled(memory, source)


def test_a_dry_run_knows_what_came_before_into_a_session_that_is_there(memory: Memory, tmp_path: Path) -> None:
    memory.create_session(id="s1").add_turn("user", "I was here before.")
    for place in ("memory", ".bmad/memory"):
        write(tmp_path / "from" / place, message("a1"), said("alpha"))
    told = [memory.import_(tmp_path / "from", dry_run=dry_run) for dry_run in (True, False)]
    assert [(one.added, one.skipped, one.sessions) for one in told] == [(2, 2, {"s1": "merged"})] * 2


def test_a_session_in_three_layouts_comes_once(memory: Memory, tmp_path: Path) -> None:
    source, one = tmp_path / "from", said("alpha")
    write_kinds(source / "memory", decisions=[{"id": "d1", "timestamp": AT, "decision": "alpha", "made_by": "architect"}])
    write(source / ".bmad/memory", one)
    write_checked(source / "sessions/s1", {"session_id": "s1"}, [checked(one)], [])
    assert memory.import_(source).added == 1
    assert standing(memory) == {"d1": "alpha"}
    assert is_settled(memory, source)


def test_two_places_that_say_something_else_do_not_change_each_other(memory: Memory, tmp_path: Path) -> None:
    source = tmp_path / "from"
    write(source / "memory", said("alpha"))
    write(source / ".bmad/memory", said("beta"))
    assert memory.import_(source).added == 2
    assert sorted(standing(memory).values()) == ["alpha", "beta"]
    assert is_settled(memory, source)


def test_what_is_shared_in_two_places_comes_once(memory: Memory, tmp_path: Path) -> None:
    source = tmp_path / "from"
    for place in ("memory", ".bmad/memory"):
        write_kinds(source / place, decisions=[])
        (source / place / "shared").mkdir()
        (source / place / "shared/agent-knowledge.json").write_text(json.dumps({"version": "1", "architect": ["Tests first"]}))
    done = memory.import_(source)
    assert (done.added, done.problems) == (1, [])
    assert [one.text for one in memory.everywhere.records("pattern")] == ["Tests first"]


# Deleted there.


@pytest.mark.parametrize("is_known", [False, True])
def test_what_was_said_anew_under_a_deleted_id_stands(is_known: bool, memory: Memory, tmp_path: Path) -> None:
    """Also at the same moment; what was deleted can be restored."""
    if is_known:
        memory.import_(write(tmp_path, said("version A")))
    source = write(tmp_path, said("version A"), {"id": "d1", "deleted": True}, said("version B"))
    assert memory.import_(source).deleted == 1
    assert [*standing(memory).values()] == ["version B"]
    (gone,) = memory.deleted("s1")
    assert is_settled(memory, source)
    assert memory.session("s1").restore(gone.id).text == "version A"


def test_an_entry_that_says_that_it_is_deleted_takes_no_other_with_it(memory: Memory, tmp_path: Path) -> None:
    first = {"id": "d1", "timestamp": AT, "decision": "version A", "made_by": "a"}
    source = write_kinds(tmp_path / "from", decisions=[{**first, "deleted": True}, {**first, "decision": "version B"}])
    assert memory.import_(source).deleted == 1
    assert [*standing(memory).values()] == ["version B"]
    assert is_settled(memory, source)


@pytest.mark.parametrize("way", ["index", "tombstone", "line"])
def test_an_id_is_the_same_as_a_number_and_as_a_text(way: str, memory: Memory, tmp_path: Path) -> None:
    source = tmp_path / "from"
    if way == "line":
        write(source, said("gone", 5), {"id": "5", "deleted": True})
    else:
        tombstones = [{"id": "5", "timestamp": AT}] if way == "tombstone" else []
        write_checked(source / "sessions/s1", {"session_id": "s1"}, [checked(said("gone", 5))], tombstones)
        index = {"entries": {"5": {"deleted": True}}} if way == "index" else {}
        (source / "sessions/s1/index.json").write_text(json.dumps(index))
    assert (memory.import_(source).deleted, standing(memory)) == (1, {})
    assert is_settled(memory, source)


def test_the_number_of_what_is_only_a_mark_is_not_given_again(memory: Memory, tmp_path: Path) -> None:
    memory.import_(write(tmp_path, said("one", "DEC-001"), {"id": "DEC-002", "deleted": True}))
    assert memory.session("s1").record_decision("mine", made_by="me").id == "DEC-003"


# Deleted here.


def test_what_was_deleted_here_under_another_id_stays_deleted(memory: Memory, tmp_path: Path) -> None:
    """It has got a number of its own because others were here first; or it was one of two that had an id, and the other is gone."""
    session = memory.create_session(id="s1")
    session.add_turn("user", "I was here before.")
    first, second = said("one"), said("two", at="2026-01-12T00:00:00Z")
    memory.import_(write(tmp_path, message("a1"), first, second))
    for memory_id in ("turn-2", "d1-2"):
        session.delete(memory_id, reason="wrong")
    assert memory.import_(write(tmp_path, message("a1"), second)).added == 0
    assert ([turn.text for turn in session.turns()], standing(memory)) == (["I was here before."], {"d1": "one"})


# Purged here.


def test_a_purged_log_stays_away_though_its_file_was_touched(memory: Memory, tmp_path: Path) -> None:
    """Nobody says when it was said: that its file is newer says nothing."""
    source = tmp_path / "s1.md"
    source.write_text("User: who is there?\n\nAssistant: it is me\n")
    memory.import_(source)
    memory.purge_now("s1")
    os.utime(source, (4_000_000_000, 4_000_000_000))
    assert memory.import_(source).sessions == {"s1": "left out"}
    assert memory.verify_import(source).is_whole
    assert memory.import_(source, purged=True).sessions == {"s1": "new"}


def test_a_purged_session_stays_away_where_only_some_of_it_has_a_time(memory: Memory, tmp_path: Path) -> None:
    old = {"id": "d1", "type": "decision", "ts": None, "data": {"decision": "undated"}}
    memory.import_(write(tmp_path, old))
    memory.purge_now("s1")
    assert memory.import_(write(tmp_path, old, said("later", "d2", "2099-01-01T00:00:00Z"))).sessions == {"s1": "left out"}
    assert memory.import_(write(tmp_path, said("later", "d2", "2099-01-01T00:00:00Z"))).sessions == {"s1": "new"}


# The same memory with another id, or with other references.


def test_ids_that_each_file_counts_for_itself(memory: Memory, tmp_path: Path) -> None:
    tabs = {"id": "1", "timestamp": AT, "preference": "tabs"}
    source = write_kinds(tmp_path / "from", preferences=[tabs])
    memory.import_(source)
    write_kinds(source, preferences=[tabs], decisions=[{"id": "1", "timestamp": AT, "decision": "X", "made_by": "a"}])
    assert memory.import_(source).added == 1
    session = memory.session("s1")
    assert [one.text for one in session.records("preference")] == ["tabs"]
    assert (session.get("1").text, standing(memory)) == ("tabs", {"DEC-001": "X"})
    assert is_settled(memory, source)


@pytest.mark.parametrize("layout", ["jsonl", "jsonl-checked"])
def test_what_refers_to_something_that_went_there_is_the_same(layout: str, memory: Memory, tmp_path: Path) -> None:
    """What it refers to is as it is here."""
    source = tmp_path / "from"
    for messages in (["a1", "a2"], ["a2"]):
        if layout == "jsonl":
            write(source, *map(message, messages), said("alpha", references=["a1", "a2"]))
        else:
            lines = [*(checked(message(one)) for one in messages), checked(said("alpha"), references=["a1", "a2"])]
            write_checked(source / "sessions/s1", {"session_id": "s1"}, lines, [])
        memory.import_(source)
    assert standing(memory) == {"d1": "alpha"}
    assert memory.session("s1").get("d1").data["references"] == ["turn-1", "turn-2"]
    assert is_settled(memory, source)


def test_our_own_come_back_once_where_what_they_refer_to_was_deleted(memory: Memory, tmp_path: Path) -> None:
    session = memory.create_session(id="s1")
    session.add_turn("user", "one")
    session.add_turn("user", "two")
    session.record_decision("alpha", made_by="me", references=["turn-1", "turn-2"])
    session.delete("turn-1", reason="wrong")
    for layout in ("jsonl", "jsonl-checked", "jsonl-per-kind"):
        memory.export_layout(tmp_path / layout, layout=layout)
        assert (memory.import_(tmp_path / layout).added, standing(memory)) == (0, {"DEC-001": "alpha"})


def test_entries_without_an_id_are_known_by_what_they_say(memory: Memory, tmp_path: Path) -> None:
    """They have got numbers, which are others where one before them is gone."""
    lines = [{key: part for key, part in said(text).items() if key != "id"} for text in ("one", "two", "three")]
    memory.import_(write(tmp_path, *lines))
    assert memory.import_(write(tmp_path, *lines[1:])).added == 0
    assert [*standing(memory).values()] == ["one", "two", "three"]
    assert is_settled(memory, tmp_path / "s1.jsonl")


# Changed here, changed there.


def change_through_smp(memory: Memory) -> None:
    memory.session("s1").update("d1", decision="uno")


def change_by_hand(memory: Memory) -> None:
    file = memory.root / "active/s1/decisions.yaml"
    file.write_text(file.read_text().replace("decision: one", "decision: uno"))


@pytest.mark.parametrize("change", [change_through_smp, change_by_hand])
@pytest.mark.parametrize("there", ["one", "eins"])
def test_what_was_changed_here_stays(change: Callable[[Memory], None], there: str, memory: Memory, tmp_path: Path) -> None:
    """Also where it was changed there as well."""
    source = write(tmp_path, said("one"))
    memory.import_(source)
    change(memory)
    write(tmp_path, said(there))
    done = memory.import_(source)
    assert (done.added, done.skipped, done.problems, standing(memory)) == (0, 1, [], {"d1": "uno"})
    both = "here and where it comes from" if there == "eins" else "here since"
    assert done.notes == [f"s1: d1: changed {both}, and left as it is here."]
    assert is_settled(memory, source)


def test_what_was_changed_there_is_changed_here(memory: Memory, tmp_path: Path) -> None:
    """In its place, with the time and the decay that it has; what refers to it still does."""
    finding = {"id": "f1", "type": "finding", "ts": AT, "data": {"issue": "slow", "severity": "high", "status": "open"}}
    source = write(tmp_path, message("a1"), finding, said("use one", references=["a1"]))
    memory.import_(source)
    memory.session("s1").record_decision("mine", made_by="me")
    solved = {**finding, "data": {**finding["data"], "status": "resolved"}}
    write(tmp_path, message("a1"), solved, said("use two", references=["a1"]))
    for dry_run in (True, False):
        done = memory.import_(source, dry_run=dry_run)
        assert (done.added, done.sessions, done.problems) == (0, {"s1": "merged"}, [])
        assert done.notes == ["s1: d1, f1: changed where it comes from since, and so here."]
        assert done.changed == 2
    assert standing(memory) == {"d1": "use two", "DEC-001": "mine"}
    session = memory.session("s1")
    assert session.get("f1").data["resolution"] == {"status": "resolved"}
    assert session.get("d1").data["references"] == ["turn-1"]
    assert is_settled(memory, source)


def test_another_memory_of_the_same_id_and_second_takes_nobodys_place(memory: Memory, tmp_path: Path) -> None:
    """Of two projects that both have a session of this name."""
    source = write(tmp_path, said("alpha"))
    memory.import_(source)
    write(tmp_path, said("beta"))
    assert [memory.import_(source).added for _ in range(2)] == [1, 0]
    assert sorted(standing(memory).values()) == ["alpha", "beta"]


def test_what_came_before_anybody_noted_what_it_said_stays_as_it_is_here(memory: Memory, tmp_path: Path) -> None:
    source = write(tmp_path, said("one"))
    memory.import_(source)
    file = memory.root / "active/s1/decisions.yaml"
    file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if "digest:" not in line))
    write(tmp_path, said("two"))
    assert (memory.import_(source).added, standing(memory)) == (0, {"d1": "one"})


# Sessions.


def test_a_session_that_is_deleted_here_is_no_trouble(memory: Memory, tmp_path: Path) -> None:
    source = write(tmp_path, said("one"))
    memory.import_(source)
    memory.delete_session("s1", reason="done")
    done = memory.import_(source)
    assert (done.sessions, done.problems) == ({"s1": "refused"}, [])
    assert done.notes == ["s1 is deleted here; smp restore s1, and then it can be imported."]


def test_more_than_the_quota_is_taken_in_and_told(memory: Memory, tmp_path: Path) -> None:
    session = memory.create_session(id="s1", quota_bytes=2_000)
    session.add_turn("user", "I was here before.")
    source = write(tmp_path, *(said("long " * 50, f"d{number}") for number in range(20)))
    for dry_run in (True, False):
        done = memory.import_(source, dry_run=dry_run)
        assert (done.added, done.problems, len(done.notes)) == (20, [], 1)
        assert "quota" in done.notes[0]
    other = Memory(tmp_path / "other", quota_bytes=2_000)
    for dry_run in (True, False):
        assert ["quota" in note for note in other.import_(source, dry_run=dry_run).notes] == [True]


# A name that people have for another one.


def test_no_session_that_comes_is_called_latest(tmp_path: Path) -> None:
    """It gets another name, always the same, and that is told; a log, a layout and an export give it the same one."""
    with pytest.raises(Invalid, match="session id 'latest' cannot be given"):
        Memory(tmp_path / "new").create_session(id="latest")
    old = Memory(tmp_path / "old")
    session = old.create_session(id="other")
    session.add_turn("user", "Hello")
    session.save_agent_state("veritas", {"mood": "calm"})
    (old.root / "active/other").rename(old.root / "active/latest")  # as one that an earlier SMP has made
    assert old.session("latest").turns()[0].text == "Hello"
    old.export(tmp_path / "out.jsonl", ["latest"])
    assert old.import_(tmp_path / "out.jsonl").sessions == {"latest": "unchanged"}
    (tmp_path / "latest.md").write_text("User: Hello\n\nAssistant: Good day\n\nUser: What is new?\n\nAssistant: Nothing\n")
    write_lines(tmp_path / "latest.jsonl", [said("Use OAuth")])
    for source in ("out.jsonl", "latest.md", "latest.jsonl"):
        memory = Memory(tmp_path / f"from-{source}")
        done = memory.import_(tmp_path / source)
        (name,) = done.sessions
        assert name == "latest-5e1e2bca"
        assert done.notes == [f"a session that is called 'latest' there is {name} here: 'latest' means the one that changed last"]
        assert memory.import_(tmp_path / source).sessions == {name: "unchanged"}
        assert memory.verify_import(tmp_path / source).is_whole
        if source == "out.jsonl":
            assert dict(memory.session(name).metadata())["id"] == name
            assert b"session_id: latest-" in (memory.root / f"active/{name}/agent-states/veritas.yaml").read_bytes()
