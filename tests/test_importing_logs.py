"""A log has no ids: which session it belongs to, and which of its turns are there, is told by what they say."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from daemons import no_hang
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts_data import SINGLE_EXAMPLE, write_lines

from smp_client import Memory, journal
from smp_client.exchange.importing import Imported
from smp_client.exchange.layouts.logs.conversations import Told, _parsed
from smp_client.exchange.layouts.logs.extracting import marks
from smp_client.exchange.layouts.logs.overlapping import Incoming, Known, overlap_of


class Log:
    """A file that is written again and again, and the tree that it is imported into."""

    def __init__(self, memory: Memory, path: Path) -> None:
        self.memory, self.path = memory, path
        self._at = 1_770_000_000

    def write(self, text: str, name: str = "talk.txt") -> None:
        """Each time later than before, as somebody who goes on writing does."""
        place = self.path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        self._at += 60
        os.utime(place, (self._at, self._at))

    def taken_in(self, text: str | None = None) -> Imported:
        """With what must hold of every import: it adds what a dry run says, all is there, and a second one adds nothing."""
        if text is not None:
            self.write(text)
        would = self.memory.import_(self.path, dry_run=True)
        done = self.memory.import_(self.path)
        assert (would.added, would.sessions, would.notes) == (done.added, done.sessions, done.notes)
        assert done.problems == []
        again = self.memory.import_(self.path)
        assert again.added == 0
        assert set(again.sessions.values()) <= {"unchanged"}
        return done

    def said(self, session: str = "talk") -> list[str]:
        return [f"{turn.id} {turn.text}" for turn in self.memory.session(session).turns()]

    def decided(self, session: str = "talk") -> list[str]:
        return [f"{one.id} {one.text} {one.data['turn_ref']}" for one in self.memory.session(session).records("decision")]


@pytest.fixture
def log(memory: Memory, tmp_path: Path) -> Log:
    return Log(memory, tmp_path / "logs")


def is_whole(log: Log) -> bool:
    done = log.memory.verify_import(log.path)
    return done.is_whole


# Names.


def test_two_logs_of_one_name_are_two_sessions(log: Log) -> None:
    """Each has its own ids, the second a number behind its name, and that is told; each goes on where it was."""
    log.write("User: one\nBot: Decision: go\n", "a/talk.txt")
    log.write("User: two\nBot: Decision: stay\n", "b/talk.txt")
    done = log.taken_in()
    assert done.sessions == {"talk": "new", "talk-2": "new"}
    assert done.notes == ["b/talk.txt → talk-2: talk is another conversation."]
    log.write("User: two\nBot: Decision: stay\nUser: three\n", "b/talk.txt")
    assert log.taken_in().added == 1
    assert (log.said("talk"), log.decided("talk")) == (["turn-1 one", "turn-2 Decision: go"], ["DEC-001 go 2"])
    assert log.said("talk-2") == ["turn-1 two", "turn-2 Decision: stay", "turn-3 three"]
    assert is_whole(log)


def test_a_copy_of_a_log_is_the_same_session(log: Log) -> None:
    """Of one that is longer, only what is new comes: in the same import, and when the first stands there already."""
    log.write("User: one\nBot: Decision: go\n", "a/talk.txt")
    log.write("User: one\nBot: Decision: go\nUser: Decision: further\n", "b/talk.txt")
    assert log.taken_in().sessions == {"talk": "new"}
    assert log.decided() == ["DEC-001 go 2", "DEC-002 further 3"]
    assert log.said() == ["turn-1 one", "turn-2 Decision: go", "turn-3 Decision: further"]
    assert is_whole(log)


def test_a_conversation_that_takes_another_way_is_another_session(log: Log) -> None:
    """It begins with the same words; nothing of either is lost, and nothing is taken for a change."""
    log.taken_in("User: hello\nBot: hi\nUser: what is the weather like\n")
    log.taken_in("User: hello\nBot: hi\nUser: tell me the news of today\n")
    assert log.said("talk")[2] == "turn-3 what is the weather like"
    assert log.said("talk-2")[2] == "turn-3 tell me the news of today"


def test_a_session_of_ours_is_not_mixed_with_a_log(log: Log) -> None:
    """Unless the log says what was said there: our own conversation, copied, adds nothing to itself."""
    session = log.memory.create_session(id="talk")
    session.add_turn("user", "Said here")
    assert log.taken_in("User: one\nBot: two\n").sessions == {"talk-2": "new"}
    session.add_turn("bot", "And answered")
    log.write((log.memory.root / "active/talk/conversation.md").read_text(), "talk.txt")
    assert log.taken_in().added == 0
    assert len(log.said()) == 2


def test_a_session_that_was_deleted_whole_is_meant_by_its_log(log: Log) -> None:
    log.taken_in("User: one\nBot: two\n")
    log.memory.delete_session("talk", reason="asked to")
    done = log.memory.import_(log.path)
    assert done.sessions == {"talk": "refused"}
    assert "smp restore talk" in "".join([*done.problems, *done.notes])


# What grows.


def test_a_log_that_has_grown_in_its_last_turn(log: Log) -> None:
    """The turn, and what it marks, is the same one with more text; nobody has edited it, and its time stays."""
    log.taken_in("User: one\nBot: two and\nDecision: use O\n")
    before = log.memory.session("talk").get("turn-2").data
    done = log.taken_in("User: one\nBot: two and\nDecision: use OAuth\nFinding: no MFA\n\nUser: three\nDecision: so be it\n")
    assert done.added == 3
    assert "talk: turn-2, DEC-001: longer than before; what is new was added to it." in done.notes
    assert log.said()[1:] == ["turn-2 two and\nDecision: use OAuth\nFinding: no MFA", "turn-3 three\nDecision: so be it"]
    assert log.decided() == ["DEC-001 use OAuth 2", "DEC-002 so be it 3"]
    after = log.memory.session("talk").get("turn-2").data
    assert (after["timestamp"], after["memory_refs"]) == (before["timestamp"], ["DEC-001", "FIND-001"])
    assert "updated_at" not in after
    assert is_whole(log)


def test_a_log_that_was_cut_off_at_its_top(log: Log) -> None:
    """Its turns have the numbers that they had, and what they mark has its ids."""
    log.taken_in("User: one\nDecision: first\nBot: two\nUser: three\nDecision: third\n")
    assert log.taken_in("Bot: two\nUser: three\nDecision: third\nBot: four\nDecision: fourth\n").added == 2
    assert log.said() == ["turn-1 one\nDecision: first", "turn-2 two", "turn-3 three\nDecision: third",
                          "turn-4 four\nDecision: fourth"]  # fmt: skip
    assert log.decided() == ["DEC-001 first 1", "DEC-002 third 3", "DEC-003 fourth 4"]
    assert log.taken_in("User: new\nBot: other\n").sessions == {"talk-2": "new"}
    assert is_whole(log)


def test_secrets_do_not_hide_what_is_known(log: Log) -> None:
    """The tree holds the turn without the secret, the log with it."""
    secret = "ghp_" + "a1B2c3D4e5" * 4
    log.taken_in(f"User: my key is {secret}\nBot: thanks\n")
    assert log.taken_in(f"User: my key is {secret}\nBot: thanks\nUser: one more\n").added == 1


def test_what_was_said_here_in_between_is_no_part_of_the_log(log: Log) -> None:
    """Its number is taken, and what the log goes on with comes behind it, also when it was deleted and purged since."""
    log.taken_in("User: one\nBot: two\n")
    session = log.memory.session("talk")
    session.add_turn("user", "Said here")
    assert log.taken_in("User: one\nBot: two\nUser: three\n").added == 1
    assert log.said() == ["turn-1 one", "turn-2 two", "turn-3 Said here", "turn-4 three"]
    session.add_turn("user", "And this")
    for memory_id in ("turn-3", "turn-5"):
        session.delete(memory_id, reason="asked to")
    log.memory.purge_now("talk", ["turn-3", "turn-5"])
    assert log.taken_in("User: one\nBot: two\nUser: three\nBot: four\n").added == 1
    assert log.said() == ["turn-1 one", "turn-2 two", "turn-4 three", "turn-6 four"]


def test_a_crash_between_what_is_added_and_what_has_grown(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads next finds both, and the import that is repeated adds nothing. Without the journal the turn stays short."""
    log.taken_in("User: one\nBot: tw\n")
    log.write("User: one\nBot: two\nUser: three\n")
    carry_out, done = journal.carry_out, list[object]()

    def killed(*arguments: object) -> None:
        if done:
            raise KeyboardInterrupt
        done.append(carry_out(*arguments))  # type: ignore[arg-type, func-returns-value]

    with monkeypatch.context() as patch:
        patch.setattr(journal, "carry_out", killed)
        with pytest.raises(KeyboardInterrupt):
            log.memory.import_(log.path)
    assert log.said() == ["turn-1 one", "turn-2 two", "turn-3 three"]
    assert log.taken_in().added == 0


def test_one_in_the_archive_is_left_as_it_is(log: Log) -> None:
    log.taken_in("User: one\nBot: tw\n")
    log.memory.archive_session("talk", "done")
    assert log.taken_in().sessions == {"talk": "unchanged"}
    log.write("User: one\nBot: two\n")
    assert "1 memory is not in it" in log.memory.import_(log.path).problems[0]


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 12), st.integers(0, 10), st.integers(0, 6), st.sets(st.integers(0, 11), max_size=3))
def test_where_a_log_goes_on(length: int, start: int, further: int, gone: set[int]) -> None:
    """Whatever is cut off at its top, whatever is new, and wherever something is gone here: each turn finds its own."""
    start = min(start, length - 2)
    texts = [f"what number {place} has to say" for place in range(length + further)]
    gone -= {start, start + 1, length - 1}
    known = [Known(place + 1, [] if place in gone else [{"speaker": "a", "content": texts[place]}]) for place in range(length)]
    found = overlap_of(known, [Incoming("a", text) for text in texts[start:]])
    if found is None:
        assert length - start - len(gone) < 2  # too little is left to be sure
    else:
        assert [pair.known.number for pair in found.pairs.values()] == [*range(start + 1, length + 1)]
    assert overlap_of(known, [Incoming("b", text) for text in texts[start:]]) is None


def test_a_log_that_was_cut_off_down_to_little(log: Log) -> None:
    """To one short turn, and where the other one that is left was purged here: nothing comes a second time, or back."""
    log.taken_in("User: a1\nBot: b2\nUser: c3\nBot: d4\n")
    assert log.taken_in("User: c3\nBot: d4\n").sessions == {"talk": "unchanged"}
    log.memory.session("talk").delete("turn-3", reason="asked to")
    log.memory.purge_now("talk", ["turn-3"])
    assert log.taken_in().sessions == {"talk": "unchanged"}
    assert log.taken_in("Bot: d4\n").sessions == {"talk": "unchanged"}
    assert log.taken_in("Bot: d4 and something more\n").sessions == {"talk": "merged"}
    assert log.taken_in("Bot: d4 and something more\nUser: e5\n").added == 1
    assert log.said() == ["turn-1 a1", "turn-2 b2", "turn-4 d4 and something more", "turn-5 e5"]
    log.memory.session("talk").delete("turn-4", reason="asked to")
    log.memory.purge_now("talk", ["turn-4"])
    assert log.taken_in("Bot: d4 and something more\n").sessions == {"talk": "unchanged"}
    assert is_whole(log)


def test_what_is_put_in_beside_what_was_purged(log: Log) -> None:
    """Nobody can tell which of them is which: what was purged does not come back, and that is told."""
    log.taken_in("User: one\nBot: two\nUser: three\n")
    log.memory.session("talk").delete("turn-2", reason="asked to")
    log.memory.purge_now("talk", ["turn-2"])
    done = log.taken_in("User: one\nBot: two\nBot: new\nUser: three\n")
    assert "talk.txt: 2 turns stand where fewer were purged here; which is new cannot be told, and none is taken in." in done.notes
    assert log.said() == ["turn-1 one", "turn-3 three"]


def test_a_log_that_says_the_same_again_and_again(log: Log) -> None:
    """Cut off at its top and grown: only what is new comes."""
    log.taken_in("User: go on\nBot: ok\n" * 20)
    assert log.taken_in("Bot: ok\n" + "User: go on\nBot: ok\n" * 9 + "User: stop\n").added == 1
    assert log.said()[-2:] == ["turn-40 ok", "turn-41 stop"]


def test_a_turn_that_was_put_in_between(log: Log) -> None:
    """Before all others or between them: it comes behind them, which is told, and only once."""
    log.taken_in("User: one\nBot: two\nUser: three\nBot: four\n")
    done = log.taken_in("User: zero\nUser: one\nBot: two\nUser: and a half\nUser: three\nBot: four\n")
    assert (done.added, done.sessions) == (2, {"talk": "merged"})
    assert "talk.txt: 2 turns stand between others there, and came behind all of them in talk." in done.notes
    assert log.taken_in("User: zero\nUser: one\nBot: two\nUser: and a half\nUser: three\nBot: four\nUser: five\n").added == 1
    assert [one.partition(" ")[2] for one in log.said()] == ["one", "two", "three", "four", "zero", "and a half", "five"]
    assert is_whole(log)


def test_a_log_that_was_renamed(log: Log) -> None:
    """It is the session that says nearly all that it says, and goes on with it. One that only begins like it is another one."""
    text = "User: what now\nBot: this and that\nUser: and then\nBot: nothing more\n"
    log.taken_in(text)
    (log.path / "talk.txt").unlink()
    log.write(f"{text}User: fine\n", "moved.txt")
    done = log.taken_in()
    assert (done.sessions, done.added) == ({"talk": "merged"}, 1)
    assert done.notes == ["moved.txt → talk: that is where this conversation stands."]
    log.write(f"{text}User: no, wait\n", "branch.txt")
    log.write("User: what now\nBot: this and that\n", "short.txt")
    assert log.taken_in().sessions == {"talk": "unchanged", "branch": "new", "short": "new"}
    assert is_whole(log)


def test_a_name_that_speaks_a_second_time_only_later(log: Log) -> None:
    """Only then is it known as that of a speaker, and what it said before stood in the turn of another: there it stays."""
    log.write("**User:** who is there?\n\n**Mary:** it is me\n", "talk.txt")
    log.taken_in()
    assert log.said() == ["turn-1 who is there?\n\n**Mary:** it is me"]
    grown = "**User:** who is there?\n\n**Mary:** it is me, the analyst\n\n**User:** go on\n\n**Mary:** so I do\n"
    assert log.taken_in(grown).sessions == {"talk": "merged"}
    assert log.said() == ["turn-1 who is there?\n\n**Mary:** it is me, the analyst", "turn-2 go on", "turn-3 so I do"]
    assert log.taken_in(grown + "\n**User:** well\n").added == 1
    assert log.taken_in(grown + "\n**User:** well\n\nMary: " + "no name\n" * 20).added == 1
    assert len(log.said()) == 5


def test_a_name_that_is_known_no_more(log: Log) -> None:
    """Names that begin most of the lines, until somebody says something long: who spoke before speaks still."""
    log.taken_in("Ann: one\nBob: two\nAnn: three\nUser: four\n")
    assert log.taken_in("Ann: one\nBob: two\nAnn: three\nUser: four\n" + "and more\n\n" * 20).sessions == {"talk": "merged"}
    assert len(log.said()) == 4


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from("abcdef"), min_size=4, max_size=14), st.data())
def test_nothing_of_a_log_is_lost_or_doubled(said: list[str], data: st.DataObject) -> None:
    """Whatever was taken away from it, and wherever something was put in: what it goes on with is paired with one turn each."""
    known = [Known(place, [{"speaker": "a", "content": text}]) for place, text in enumerate(said, 1)]
    left = [text for text in said if data.draw(st.integers(0, 9))]
    at = data.draw(st.integers(0, len(left)))
    turns = [Incoming("a", text) for text in [*left[:at], "new", *left[at:]]]
    found = overlap_of(known, turns)
    if found:
        numbers = [pair.known.number for pair in found.pairs.values()]
        assert len(set(numbers)) == len(numbers)
        assert all(pair.value is None or pair.value["content"] == turns[place].text for place, pair in found.pairs.items())
    if len(left) == len(said):
        assert found is not None
        assert sorted(numbers) == [*range(1, len(said) + 1)] or at == len(left)


@pytest.mark.parametrize("text", [
    "User: hi\n" + " " * 300_000 + "\nAssistant: a" + " " * 300_000 + "b\n#" + "!" * 300_000 + "\n",
    "User: ok then\nAssistant: ok\n" * 3_000,
    "".join(f"## Turn {number}\n**Speaker:** User\n\nword {number}\n\n" for number in range(1, 4_000)),
], ids=["blanks", "the same again", "turns"])  # fmt: skip
def test_long_logs_take_no_longer_than_they_are(text: str) -> None:
    """Reading each, and laying it on itself, took from ten seconds to an hour when the time grew with the square of the length."""
    with no_hang():
        turns = Told(_parsed("talk.md", text, "talk.md", is_forced=False), None, None).incoming()
        assert sum(len(marks(turn.text)) for turn in turns) == 0
        known = [Known(place, [{"speaker": turn.speaker, "content": turn.text}]) for place, turn in enumerate(turns, 1)]
        found = overlap_of(known, turns)
    assert found is not None
    assert len(found.pairs) == len(turns)


# What was changed here.


def edit_by_hand(log: Log) -> None:
    path = log.memory.root / "active/talk/conversation.md"
    path.write_text(path.read_text().replace("what is to be done now", "what has to be done now"))


CHANGES: dict[str, Callable[[Log], object]] = {
    "pinned": lambda log: log.memory.session("talk").pin("DEC-001"),
    "resolved": lambda log: log.memory.session("talk").resolve_finding("FIND-001", resolved_by="me", action_taken="done"),
    "tagged": lambda log: log.memory.session("talk").update("turn-2", tags=["x"]),
    "edited": edit_by_hand,
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed_here_stays_as_it_is(change: str, log: Log) -> None:
    """It is not added a second time, and what is new comes all the same."""
    text = "User: I ask what is to be done now\nBot: this\nDecision: go\nFinding: no MFA\n"
    log.taken_in(text)
    CHANGES[change](log)
    before = log.said()
    assert log.taken_in(text + "User: three\n").added == 1
    assert log.said() == [*before, "turn-3 three"]
    assert len(log.decided()) == len(log.memory.session("talk").records("finding")) == 1


def test_what_was_deleted_or_purged_here_stays_away(log: Log) -> None:
    """Turns, and what they mark; also when the log was cut off since, and nothing is left that could be compared."""
    text = "User: one\nDecision: first\nBot: two\nUser: three\nDecision: third\nBot: four\n"
    log.taken_in(text)
    session = log.memory.session("talk")
    for memory_id in ("turn-2", "DEC-001", "DEC-002"):
        session.delete(memory_id, reason="asked to")
    assert log.taken_in().added == 0
    log.memory.purge_now("talk", ["turn-2", "DEC-001", "DEC-002"])
    assert log.taken_in().added == 0
    text = text.removeprefix("User: one\nDecision: first\nBot: two\n") + "User: five\nDecision: fifth\n"
    assert log.taken_in(text).added == 2
    assert [one.partition("\n")[0] for one in log.said()] == ["turn-1 one", "turn-3 three", "turn-4 four", "turn-5 five"]
    assert log.decided() == ["DEC-003 fifth 5"]
    session.delete("turn-5", reason="asked to")
    log.memory.purge_now("talk", ["turn-5"])
    assert log.taken_in(text + "Bot: six\n").added == 1
    assert log.said()[-1] == "turn-6 six"
    left = ["turn-1", "turn-3", "turn-4", "turn-6"]
    for memory_id in left:
        session.delete(memory_id, reason="asked to")
    log.memory.purge_now("talk", left)
    log.memory.import_(log.path)
    assert [one.id for one in log.memory.sessions()] == ["talk"]
    assert log.said() == []


@pytest.mark.parametrize("now", [False, True], ids=["restorable", "for good"])
def test_what_was_anonymised_here_stays_so(now: bool, log: Log) -> None:
    """It is known by what it was, or, where that is gone for good, by what stands around the placeholders."""
    text = "**Participants:** Ann Lee, Bob\n\nAnn Lee: hello\nBob: hi there, Ann Lee\nAnn Lee: fine\n"
    log.taken_in(text)
    log.memory.session("talk").anonymize(names=["Ann Lee"], now=now)
    before = log.said()
    assert log.taken_in(text + "Bob: new\n").added == 1
    assert log.said() == [*before, "turn-4 new"]


def test_a_number_that_was_purged_is_not_given_to_another(log: Log) -> None:
    """Where all turns have one time, as those of a log with a date, only the turn tells that it is another decision."""
    log.taken_in("Date: 2026-01-11\n\nUser: one\nDecision: first\nBot: two\nUser: three\n")
    log.memory.session("talk").delete("DEC-001", reason="asked to")
    log.memory.purge_now("talk", ["DEC-001"])
    log.taken_in("Date: 2026-01-11\n\nBot: two\nUser: three\nBot: four\nDecision: fourth\n")
    assert log.decided() == ["DEC-002 fourth 4"]


def test_a_memory_of_another_layout_that_was_changed_here_is_not_added_again(memory: Memory, tmp_path: Path) -> None:
    """Of all layouts: the same id and time, and changed here since. One of another time is another memory."""
    source = write_lines(tmp_path / "s1.jsonl", SINGLE_EXAMPLE)
    memory.import_(source)
    memory.session("s1").update("m002", rationale="It is simple.")
    done = memory.import_(source)
    assert (done.added, done.notes) == (0, ["s1: m002: changed here since, and left as it is here."])
    write_lines(source, [{**line, "ts": "2026-02-01T00:00:00Z"} if line["id"] == "m002" else line for line in SINGLE_EXAMPLE])
    assert memory.import_(source).added == 1


# Beside other layouts.


def test_a_log_beside_another_layout_is_taken_in(log: Log) -> None:
    """Wherever it is, but in the folder of a session, whose files belong to that."""
    write_lines(log.path / "one.jsonl", SINGLE_EXAMPLE)
    write_lines(log.path / "sessions/two/decisions.jsonl", [{"id": "d", "timestamp": "2026-01-11T14:30:00Z", "decision": "x"}])
    log.write("User: part\nBot: of it\n", "sessions/two/notes.md")
    log.write("User: one\nBot: two\n", "talk.txt")
    log.write("User: three\nBot: four\n", "deep/down/other.md")
    assert set(log.taken_in().sessions) == {"one", "two", "talk", "other"}


def test_a_log_of_a_session_that_another_layout_holds_too(log: Log) -> None:
    """What that has said is not said twice, whether it is in the tree already or comes in the same import."""
    said = {"m1": {"role": "user", "content": "one"}, "m2": {"role": "assistant", "content": "two"}}
    lines = [{"id": name, "type": "conversation", "ts": "2026-01-11T14:30:00Z", "data": data} for name, data in said.items()]
    write_lines(log.path / "talk.jsonl", lines)
    log.write("user: one\nassistant: two\nuser: three\n")
    done = log.taken_in()
    assert (done.sessions, log.said()) == ({"talk": "new"}, ["turn-1 one", "turn-2 two", "turn-3 three"])
    log.write("user: other\nassistant: words\n", "more/talk.md")
    assert "more/talk.md → talk-2: talk is another conversation." in log.taken_in().notes
