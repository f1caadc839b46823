"""Conversations in plain text or Markdown become turns, and what they mark as a decision, finding or preference becomes one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts_data import CONVERSATION_EXAMPLE, MEMLOG_EXAMPLE
from layouts_reading import by_id, folder, records, stream

from smp_client import Memory
from smp_client.exchange.entries import content_of
from smp_client.exchange.layouts.logs.conversations import is_log, parse_log
from smp_client.exchange.layouts.logs.extracting import marks
from smp_client.exchange.layouts.logs.memlog import is_memlog, read_memlog

# What is neither a rule nor a speaker's line itself, and begins and ends with a letter.
_LETTERS = st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"], exclude_characters="\ufeff*_-`~")
SAYINGS = st.text(_LETTERS, min_size=1, max_size=40)

FORMS = {
    "bold": "**User:** Hello\n\n**Assistant:** Hi!\nHow are you?\n",
    "bold name": "**User**: Hello\n\n**Assistant**: Hi!\nHow are you?\n",
    "plain": "User: Hello\nAssistant: Hi!\nHow are you?\n",
    "upper case": "USER: Hello\nASSISTANT: Hi!\nHow are you?\n",
    "times in front": "[2026-01-11 14:30] User: Hello\n[2026-01-11 14:31] Assistant: Hi!\nHow are you?\n",
    "times behind": "**User (2026-01-11 14:30):** Hello\n\n**Assistant** (2026-01-11 14:31): Hi!\nHow are you?\n",
    "headings": "# A talk\n\n## User\n\nHello\n\n## Assistant\n\nHi!\nHow are you?\n",
    "headings with times": "### User - 2026-01-11 14:30\nHello\n\n### 🤖 Assistant (2026-01-11 14:31)\nHi!\nHow are you?\n",
    "said": "You said:\nHello\n\nChatGPT said:\nHi!\nHow are you?\n",
    "rules between": "User: Hello\n\n---\n\nAssistant: Hi!\nHow are you?\n\n---\n",
    "windows": "User: Hello\r\nAssistant: Hi!\r\nHow are you?\r\n",
    "turns": "## Turn 1 - 2026-01-11 14:30:00\n**Speaker:** User\n\nHello\n\n---\n\n"
             "## Turn 2\n**Speaker:** Assistant\n\nHi!\nHow are you?\n",
    "front matter": "---\ntopic: talk\nparticipants: Ann, Bob\n---\n\nAnn: Hello\nBob: Hi!\nHow are you?\n",
    "participants": "**Participants:** Ann, Bob\n\nAnn: Hello\nBob: Hi!\nHow are you?\n",
    "names again and again": "**Ann:** Hello\n\n**Bob:** Hi!\nHow are you?\n\n**Ann:** Well.\n\n**Bob:** Good.\n",
    "names that nobody told of": "Ann: Hello\nBob: Hi!\nHow are you?\nAnn: Well.\n",
    "names before paragraphs": "Ann: Hello\n\nBob: Hi!\nHow are you?\n\nAnn: Well.\nVery well.\nIndeed.\n",
    "times of day": "10:00 ann: Hello\n10:01 bob: Hi!\nHow are you?\n10:02 ann: Well.\n",
    "times with an offset": "2026-01-11T16:30:00+02:00 Ann: Hello\n2026-01-11T14:31:00.123Z Bob: Hi!\nHow are you?\n",
}  # fmt: skip


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_who_speaks_is_told_in_many_forms(tmp_path: Path, text: str) -> None:
    path = tmp_path / "talk.md"
    path.write_bytes(text.encode())
    entries, problems = stream(path)
    assert problems == []
    turns = [record for file, record in records(entries) if file == "conversation.md"][:2]
    assert [turn["content"] for turn in turns] == ["Hello", "Hi!\nHow are you?"]
    assert turns[0]["speaker"].lower() in ("user", "you", "ann")
    assert turns[1]["speaker"].lower() in ("assistant", "chatgpt", "bob")
    assert ("added" in turns[0]["imported"]) == ("2026" not in text)
    if "2026" in text:
        assert turns[0]["timestamp"] == "2026-01-11T14:30:00Z"
    assert entries[0]["session"] == "talk"


def test_a_word_before_a_colon_is_no_speaker() -> None:
    """Neither a label, nor a name that nobody knows, nor anything in a block of code."""
    code = "```\nAssistant: not me\n```"
    text = f"User: Look:\nNote: this\nExample: that\n\n{code}\n\n**Decision:** do it\nhttps://x.y: no\nAssistant: Yes\n"
    turns = parse_log(text).turns
    assert [turn.speaker for turn in turns] == ["User", "Assistant"]
    assert not is_log("app.log", b"[2026-01-11 14:30] INFO: started\n[2026-01-11 14:31] ERROR: stopped\n")
    assert not is_log("README.md", b"# Title\n\nNote: x\n\nUsage: y\n")
    assert not is_log("script.py", b"User: hi\nAssistant: ho\n")
    assert not is_log("CHANGES.md", b"Added: a door\nFixed: the roof\nAdded: a window\n")
    assert not is_log("page.md", b"Ann: is here\n\nOne.\n\nTwo.\n\nThree.\n\nBob: too\n\nFour.\n\nFive.\n\nAnn: again\n")
    assert not is_log("chat.txt", b"Ann: Hello\nBob: Hi\n")
    assert not is_log("day.md", b"10:00 Meeting: room 5\n11:00 Lunch: canteen\n")


def test_an_id_is_no_speaker() -> None:
    """What it begins is marked, however often it does, and whoever insists."""
    text = "User: shall we?\nBot: yes.\nDEC-001: use Postgres\n**DEC-001:** Postgres\n\n**DEC-001:** so be it\nUser: fine\n"
    for is_forced in (False, True):
        turns = parse_log(text, is_forced=is_forced).turns
        assert [turn.speaker for turn in turns] == ["User", "Bot", "User"]
    assert [mark.id for mark in marks("\n".join(turns[1].text))] == ["DEC-001"]
    assert parse_log("[10:00] User: a\n[10:01] FIND-002: b\n").turns[0].text[1] == "[10:01] FIND-002: b"


@pytest.mark.parametrize("fence", [
    "```\ncode\n", "~~~ python\nBot: code\n~~~\n```x``` is code\n", "look: ```python\nBot: code\n```\n",
    "```\nBot: code\n```\n~~~\n",
], ids=["never closed", "closed", "behind a text", "closed, and one that is not"])  # fmt: skip
def test_a_block_of_code_ends(fence: str) -> None:
    """One that nobody closes is none, and one may begin behind a text: whoever speaks later speaks all the same."""
    assert [turn.speaker for turn in parse_log(f"User: a\n{fence}Bot: b\nUser: ```\nBot: code\n```\nBot: c\n").turns] == [
        "User", "Bot", "User", "Bot",
    ]  # fmt: skip


def test_whoever_insists_has_any_name_taken_for_a_speaker(tmp_path: Path) -> None:
    """Also one that stands there once; no label, though, and nothing where somebody is known to speak."""
    (tmp_path / "chat.txt").write_text("Ann: Hello\nbob: Hi\nNote: no speaker\n")
    (tmp_path / "known.txt").write_text("User: Hello\nPlan: go\nBot: Hi\n")
    (tmp_path / "page.txt").write_text("One: word\nOf\nmany\nothers: here\n")
    said = [(one["session"], one["record"]["speaker"], one["record"]["content"])
            for one in stream(tmp_path, "markdown-log")[0] if one["entry"] == "memory"]  # fmt: skip
    place = tmp_path.name
    assert said == [(place, "Ann", "Hello"), (place, "bob", "Hi\nNote: no speaker"), ("known", "User", "Hello\nPlan: go"),
                    ("known", "Bot", "Hi")]  # fmt: skip


def test_the_time_of_the_file_is_the_last_resort(tmp_path: Path) -> None:
    """For the day of a time without one as well; each is told as borrowed."""
    path = tmp_path / "talk.txt"
    path.write_text("User: a\n[10:00] Bot: b\nUser: c\n[2026-01-11 09:00] Bot: d\nUser: e\n")
    os.utime(path, (1_770_000_000, 1_770_000_000))
    found = by_id(stream(path)[0])
    turns = [found[f"turn-{number}"] for number in range(1, 6)]
    assert [turn["timestamp"] for turn in turns] == [
        "2026-02-02T02:40:00Z", "2026-02-02T10:00:00Z", "2026-02-02T10:00:00Z", "2026-01-11T09:00:00Z", "2026-01-11T09:00:00Z",
    ]  # fmt: skip
    assert ["added" in turn["imported"] for turn in turns] == [True, True, True, False, True]
    assert turns[1]["imported"]["time"] == "10:00"


def test_what_stands_before_the_first_turn_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "2026-03-04-planning.md"
    path.write_text("# Planning\n\nWe met in the old house.\n\nUser: Hello\n\nAssistant: Hi\n")
    entries, _ = stream(path)
    session = entries[0]["metadata"]["session"]
    assert session["imported"]["preamble"] == "We met in the old house."
    assert session["context"] == {"title": "Planning"}
    turn = by_id(entries)["turn-1"]
    assert (turn["timestamp"], turn["imported"]["added"]) == ("2026-03-04T00:00:00Z", ["timestamp"])


def test_a_time_of_day_goes_with_the_day_before(tmp_path: Path) -> None:
    path = tmp_path / "talk.txt"
    path.write_text("[2026-01-11 23:59] user: a\n[9:05] bot: b\n[99:99] bot: c\nuser: d\n")
    entries, _ = stream(path)
    found = by_id(entries)
    assert [found[f"turn-{number}"]["timestamp"] for number in (1, 2, 3, 4)] == [
        "2026-01-11T23:59:00Z", "2026-01-11T09:05:00Z", "2026-01-11T09:05:00Z", "2026-01-11T09:05:00Z",
    ]  # fmt: skip
    assert found["turn-3"]["imported"]["time"] == "99:99"


def test_a_conversation_like_ours(tmp_path: Path) -> None:
    """The example of the document: its turns keep their numbers, and what is marked becomes decisions, findings, preferences."""
    path = tmp_path / "conversation.md"
    path.write_text(CONVERSATION_EXAMPLE)
    entries, problems = stream(path)
    found = by_id(entries)
    assert problems == []
    assert entries[0]["session"] == "session-2026-01-11-abc123"
    assert found.keys() == {"turn-1", "turn-2", "turn-3", "turn-4", "DEC-001", "FIND-001", "FIND-002", "PREF-001"}
    assert (found["DEC-001"]["decision"], found["DEC-001"]["made_by"], found["DEC-001"]["turn_ref"]) == (
        "Decision to use multi-agent review", "bmad-master", 2,
    )  # fmt: skip
    assert [(found[name]["finding"], found[name]["severity"], found[name]["turn_ref"]) for name in ("FIND-001", "FIND-002")] == [
        ("Missing MFA requirement", "critical", 3), ("Missing session timeout", "important", 3),
    ]  # fmt: skip
    assert (found["PREF-001"]["preference"], found["PREF-001"]["confidence"]) == ("MFA policy clarification", "explicit")
    assert found["turn-4"]["memory_refs"] == ["PREF-001"]
    people = entries[0]["metadata"]["session"]["participants"]
    assert (people["user_id"], [one["agent_id"] for one in people["agents"]]) == ("user-123", ["bmad-master", "veritas"])


def test_a_memlog(tmp_path: Path) -> None:
    """Each entry is a turn of its kind; decisions are decisions too; the session is called like the folder."""
    path = tmp_path / "brief-budget-2026-06-07/.memlog.md"
    path.parent.mkdir()
    path.write_text(MEMLOG_EXAMPLE)
    entries, problems = stream(tmp_path)
    found = by_id(entries)
    assert problems == []
    assert entries[0]["session"] == "brief-budget-2026-06-07"
    assert [(found[f"turn-{n}"]["speaker"], found[f"turn-{n}"]["type"]) for n in range(1, 8)] == [
        ("unknown", "note"), ("user", "idea"), ("unknown", "insight"), ("user", "decision"), ("coach", "note"), ("unknown", "note"),
        ("unknown", "event"),
    ]  # fmt: skip
    assert (found["DEC-001"]["decision"], found["DEC-001"]["made_by"]) == ("lead with one account; defer the others", "user")
    assert found["turn-4"]["memory_refs"] == ["DEC-001"]
    assert entries[0]["metadata"]["session"]["imported"]["head"]["goal"] == "keep people for a week"
    path.rename(path.with_name("plan.memlog.md"))  # without a day in the name of its folder
    path.parent.rename(tmp_path / "run")
    assert by_id(stream(tmp_path)[0])["turn-1"]["timestamp"] == "2026-06-07T14:22:00Z"


def test_a_memlog_that_somebody_edited() -> None:
    body = "Hello\n\n- (decision by user) three:\n  1. a\n  2. b\n- (gap→pending) c\n"
    head, entries, before = read_memlog(f"---\nupdated: x\n---\n{body}")
    assert (head, before.strip()) == ({"updated": "x"}, "Hello")
    assert [(entry.line, entry.type, entry.by, entry.text) for entry in entries] == [
        (6, "decision", "user", "three:\n  1. a\n  2. b"), (9, "gap→pending", "", "c"),
    ]  # fmt: skip
    assert is_memlog(MEMLOG_EXAMPLE)
    assert not is_memlog("---\nupdated: x\n---\n\n# A page\n\n- with a list\n")


MARKED = {
    "Decision: use OAuth": ("decision", "use OAuth", None),
    "**Decision:** use OAuth": ("decision", "use OAuth", None),
    "- **Decision**: use OAuth [DEC-007]": ("decision", "use OAuth", "DEC-007"),
    "> Finding: no MFA": ("finding", "no MFA", None),
    "1. Preference: be brief": ("preference", "be brief", None),
    "DEC-003: use OAuth": ("decision", "use OAuth", "DEC-003"),
    "[FIND-002] no MFA": ("finding", "no MFA", "FIND-002"),
    "**DEC-003** use OAuth": ("decision", "use OAuth", "DEC-003"),
    "Decision DEC-003: use OAuth": ("decision", "use OAuth", "DEC-003"),
    "**Finding (FIND-002):** no MFA": ("finding", "no MFA", "FIND-002"),
    "Learning: ask first": ("learning", "ask first", None),
    "**HIGH:** no limit [FIND-004]": ("finding", "no limit", "FIND-004"),
    "**Memory Stored:** DEC-004: Use Redis": ("decision", "Use Redis", "DEC-004"),
    "**Memory Stored:**\n- Decision to go [DEC-001]": ("decision", "Decision to go", "DEC-001"),
}


SEVERAL = {
    "DEC-001: a\nDEC-002: b": [("DEC-001", "a"), ("DEC-002", "b")],
    "DEC-001: a. DEC-002: b": [("DEC-001", "a."), ("DEC-002", "b")],
    "- **DEC-001:** a **FIND-002:** b": [("DEC-001", "a"), ("FIND-002", "b")],
    "Decision: a [DEC-001]. Decision: b [DEC-002]": [("DEC-001", "a"), ("DEC-002", "b")],
    "DEC-001: a; DEC-002: b": [("DEC-001", "a"), ("DEC-002", "b")],
    "Decision: a. Finding: b": [(None, "a."), (None, "b")],
    "DEC-001: as in DEC-002: b": [("DEC-001", "as in DEC-002: b")],
    "DEC-001: instead of DEC-002, which was a": [("DEC-001", "instead of DEC-002, which was a")],
}


@pytest.mark.parametrize(("text", "said"), SEVERAL.items(), ids=SEVERAL)
def test_several_marks_in_one_turn(text: str, said: list[tuple[str | None, str]]) -> None:
    """On lines of their own or in one; a mention is none."""
    assert [(mark.id, mark.text) for mark in marks(text)] == said


@pytest.mark.parametrize(("text", "said"), MARKED.items(), ids=MARKED)
def test_marks(text: str, said: tuple[str, str, str | None]) -> None:
    assert [(mark.kind.name, mark.text, mark.id) for mark in marks(text)] == [said]


@pytest.mark.parametrize("text", [
    "The decision was hard.", "As in DEC-001, we go on.", "We decided: no.", "```\nDecision: not this\n```", "Decision:",
    "**HIGH:** no id", "- a list item [DEC-001]", "Decisions: many", "undecided decision: x", "My finding: x",
])  # fmt: skip
def test_nothing_is_guessed(text: str) -> None:
    """Neither a mention, nor code, nor a word with nothing behind it is a mark."""
    assert marks(text) == []


def test_ids_that_nobody_gave_follow_those_that_somebody_did(tmp_path: Path) -> None:
    path = tmp_path / "talk.md"
    first = "User: Decision: first\nRationale: it is cheap\n"
    path.write_text(f"{first}\nBot: see DEC-004\nDecision (ann): second [DEC-002]\nDecision: third\n")
    found = by_id(stream(path)[0])
    listed = [found[name] for name in ("DEC-005", "DEC-002", "DEC-006")]
    assert [(one["decision"], one["made_by"], one["turn_ref"]) for one in listed] == [
        ("first", "User", 1), ("second", "ann", 2), ("third", "Bot", 2),
    ]  # fmt: skip
    assert found["DEC-005"]["rationale"] == "it is cheap"


def test_bad_bytes_and_nobody(tmp_path: Path) -> None:
    """What is not UTF-8 is told with its line, and the rest is imported; a log in which nobody speaks is told as that."""
    path = tmp_path / "talk.md"
    path.write_bytes(b"User: a\nBot: \x81\xfe\nUser: c\n")
    entries, problems = stream(path)
    assert problems[0].startswith("talk.md, line 2: not UTF-8 at byte 13")
    assert len(records(entries)) == 3
    aside = [content_of(entry) for entry in entries if entry["entry"] == "bytes"]
    assert aside[0] == b"Bot: \x81\xfe"
    path.write_text("Nothing to see.\n")
    assert stream(path) == ([], [])
    assert "talk.md, line 1: nobody speaks here" in stream(path, "markdown-log")[1][0]


def test_a_log_that_is_written_otherwise(tmp_path: Path) -> None:
    """Where the bytes can be nothing else, it is read as that, and told."""
    (tmp_path / "old.txt").write_bytes("User: café\nBot: œuvre\n".encode("cp1252"))
    (tmp_path / "wide.txt").write_text("User: café\nBot: ja\n", encoding="utf-16")
    memory = Memory(tmp_path / "root")
    done = memory.import_(tmp_path)
    assert (done.sessions, done.problems) == ({"old": "new", "wide": "new"}, [])
    assert done.notes == ["old.txt is not UTF-8, and was read as Windows-1252.", "wide.txt is not UTF-8, and was read as UTF-16."]
    assert [turn.text for turn in memory.session("old").turns()] == ["café", "œuvre"]


def test_a_conversation_of_a_later_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "conversation.md").write_text("**Format-Version:** 7\n\n## Turn 1\n**Speaker:** user\n\nHello\n")
    entries, problems = stream(tmp_path)
    assert entries == []
    assert "conversation.md has format version 7" in problems[0]


def test_which_files_are_looked_at(tmp_path: Path) -> None:
    """A long first line or broken lines do not hide what a file is, nor does the name of its folder; what is left out is told."""
    entry = '{"id":"d1","type":"decision","ts":"2026-01-11T14:31:00Z","data":{"decision":"%s"}}\n'
    (tmp_path / "long.jsonl").write_text(entry % ("x" * 70_000))
    (tmp_path / "BROKEN.JSONL").write_text("{broken\n" * 30 + entry % "y")
    (tmp_path / "none.jsonl").write_text("{broken\n")
    (tmp_path / "other.jsonl").write_text('{"id": 1}\n')
    (tmp_path / "deep.md").write_text("x" * 200_000 + "\n\nAnn: Hello\nBob: Hi\nAnn: Well\n")
    (tmp_path / "active").mkdir()
    (tmp_path / "active/talk.md").write_text("User: hi\nthere\n")
    (tmp_path / "linked.md").symlink_to("active/talk.md")
    done = Memory(tmp_path / ".smp-root").import_(tmp_path)
    assert done.sessions.keys() == {"long", "BROKEN", "talk", "deep"}
    told = " ".join(done.problems)
    assert "none.jsonl is not read: line 1: " in told
    assert "other.jsonl is not read: its first lines do not have 'type', 'ts' and 'data'" in told
    assert "linked.md is a link, and was not followed." in done.notes
    assert [one["session"] for one in stream(tmp_path, "markdown-log")[0] if one["entry"] == "session"] == ["talk", "deep"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["User", "Assistant"]), SAYINGS), min_size=1, max_size=6),
       st.sampled_from(["**{}:** {}", "{}: {}", "[2026-01-11 14:30] {}: {}"]))  # fmt: skip
def test_every_turn_arrives_in_a_tree(said: list[tuple[str, str]], form: str) -> None:
    """In order, with what was said; importing the log again adds nothing, and when it has grown, only what is new."""
    with folder() as place:
        path = place / "talk.md"
        path.write_text("\n\n".join(form.format(*one) for one in said) + "\n", encoding="utf-8")
        memory = Memory(place / "root")
        memory.import_(path, layout="markdown-log")
        turns = memory.session("talk").turns()
        assert [(turn.data["speaker"], turn.text) for turn in turns] == said
        again = memory.import_(path, layout="markdown-log")
        assert again.added == 0
        with path.open("a", encoding="utf-8") as file:
            file.write("\n\n" + form.format("User", "One more") + "\n")
        more = memory.import_(path, layout="markdown-log")
        assert more.added == 1
        assert memory.session("talk").turns()[-1].text == "One more"
