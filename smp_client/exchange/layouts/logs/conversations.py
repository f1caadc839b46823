"""Conversations as plain text or Markdown, one file a session. Who speaks is told by the line that a turn begins with:

    **User:** …          **Architect** (2026-01-11 14:30): …       User: …         [2026-01-11 14:30] user: …
    ### Assistant        You said: / ChatGPT said:                 ## Turn 3 - 2026-01-11 14:30:30, as in our own conversations

and memlogs (`.memlog.md`): front matter, and one entry a line, `- (decision by user) …`. A word before a colon is taken for a
speaker only where it is known as one: a usual role, somebody named under `Participants`, a name in bold at the beginning of a
paragraph more than once, or one of several names that begin most of the lines or paragraphs; where somebody insists that it is a
log, any name of few words is. Nothing in a block of code is. What stands before the first turn, and is no field, is kept as
`preamble` under `imported` of the session's metadata. A turn without a time has that of the one before it, of the head, or, as a
last resort, that the log was written at (`updated`, or the time of the file); then `timestamp` is among its `added`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ....errors import NewerFormat
from ....records import TURN
from ....text.markdown import parse as parse_conversation
from ....text.version import require_known, stated
from ...entries import ACTIVE
from ...formats import Read
from .. import shaping
from ..lines import Line
from ..sessions import Collected, entries_of
from ..shaping import IMPORTED, Values
from ..sources import Aside, Folder
from .continuing import LAYOUT, Continuing, Placed
from .extracting import Extraction, Mark, given_ids, marks, unfenced
from .memlog import NAME as MEMLOG
from .memlog import is_memlog, read_memlog
from .overlapping import Incoming, Pair, has_own_time, trimmed
from .speakers import SPEAKERS, USERS, is_clock, names, speaker

ENDINGS = (".md", ".markdown", ".txt", ".log")
_GENERIC = frozenset("conversation chat log transcript history messages readme memlog session export".split())  # noqa: SIM905
_TURN = re.compile(r"^(?:<!-- smp -->\n)?## Turn \d", re.MULTILINE)
_FIELD = re.compile(r"(?:\*\*([^*:\n]{1,64}):\*\*|([A-Z][A-Za-z -]{1,31}):)[ \t]*(.*)")
_DATE = re.compile(r"(?<!\d)(\d{4}-\d{2}-\d{2})(?!\d)")


@dataclass
class Said:
    """A turn as it was found."""

    line: int
    speaker: str
    text: list[str]
    time: str | None = None
    type: str = "message"
    fields: Values = field(default_factory=dict)
    raw: list[str] = field(default_factory=list)  # its lines as they stand there, with who speaks


@dataclass
class Log:
    head: dict[str, str] = field(default_factory=dict)
    preamble: str = ""
    turns: list[Said] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass
class Asked:
    """How a log is to be read."""

    continuing: Continuing = field(default_factory=Continuing)
    extract: bool = True
    is_forced: bool = False  # somebody insists that it is one
    written_at: str | None = None


def is_log(name: str, beginning: bytes, *, is_forced: bool = False) -> bool:
    """Whether somebody speaks in it. Where logs are asked for, names that stand there only once are enough."""
    base = name.rpartition("/")[2].lower()
    if not base.endswith(ENDINGS) and not base.endswith(MEMLOG):
        return False
    text = decoded(beginning)[0]
    if base.endswith(MEMLOG) or is_memlog(text) or _TURN.search(text):
        return True
    turns = parse_log(text).turns
    if len(turns) >= 2 or (len(turns) == 1 and turns[0].speaker.lower() in SPEAKERS):
        return True
    turns = parse_log(text, is_forced=True).turns if is_forced else []
    lines = sum(bool(line.strip()) for line in text.split("\n"))
    return len({turn.speaker for turn in turns}) > 1 and len(turns) * 2 > lines


def read(folder: Folder, name: str, asked: Asked) -> Iterator[Read]:
    """One session, from a log; if wanted with the decisions, findings and so on that it marks as memories of their own. Of one that
    another log has given before, only what that had not."""
    content = folder.read(name)
    for problem in folder.problems:
        yield Read(0, None, problem)
    folder.problems.clear()
    if content is None:
        return
    where, aside = folder.where(name), Aside("", folder)
    text, coding = decoded(content)
    if coding:
        asked.continuing.notes.append(f"{where} is not UTF-8, and was read as {coding}.")
    log = _parsed(name, text, where, is_forced=asked.is_forced)
    old = log.head.get("session") or _printable(_name_of(folder, name))
    wanted = shaping.session_id(old)
    if not {said.speaker.lower() for said in log.turns} >= (spoke := asked.continuing.speakers(wanted)):
        log = _parsed(name, text, where, is_forced=asked.is_forced, people=spoke)
    try:
        require_known(stated(log.head.get("format-version")), where)
    except NewerFormat as error:
        yield Read(0, None, f"{where}: nothing of it is taken in: {error}")
        return
    if not log.turns:
        yield from (Read(0, None, problem) for problem in log.problems)
        yield Read(0, None, f"{where}, line 1: nobody speaks here: no line begins with a speaker, such as 'User:'")
        return
    told = Told(log, _date_of(folder, name, log), asked.written_at)
    placed = asked.continuing.placed(wanted, told.incoming(), where)
    session = placed.name
    found = _collected(told, placed, folder.advance, extract=asked.extract)
    notes: Values = {"layout": LAYOUT, "file": _printable(name), **({"session_id": old} if old != session else {})}
    if log.head:
        notes["head"] = log.head
    if log.preamble.strip():
        notes["preamble"] = log.preamble.strip("\n")
    people = [one.strip() for one in log.head.get("participants", "").split(",") if one.strip()]
    users = [one for one in people if re.fullmatch(r"user([-_ ].*)?", one.lower())]
    spoken = {one.lower(): one for one in reversed([*people, *found.speakers])}  # once, however it is written
    agents = [one for name, one in reversed(spoken.items()) if name not in USERS | {shaping.UNKNOWN, *map(str.lower, users)}]
    context = {key: log.head[name] for key, name in (("primary_topic", "topic"), ("project_name", "project"), ("title", "title"))
               if log.head.get(name)}  # fmt: skip
    metadata = found.metadata(session, notes, user=users[0] if users else None, agents=agents, context=context)
    yield from entries_of(session, ACTIVE, metadata if placed.is_first else None, found)
    yield from (Read(0, None, problem) for problem in log.problems)
    if "\ufffd" in text:
        aside.session = session
        for line in _unreadable(content):
            aside.refuse(name, line, line.problem)
        yield from aside.told()


def _printable(name: str) -> str:
    """A name of a file may be bytes that are no text."""
    return name.encode(errors="replace").decode()


def _unreadable(content: bytes) -> Iterator[Line]:
    """The lines that are not UTF-8, as they are."""
    offset = 0
    for number, raw in enumerate(content.split(b"\n"), 1):
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            at = offset + error.start
            yield Line(number, offset, raw, None, f"not UTF-8 at byte {at}; in the turn stands \ufffd for what cannot be read")
        offset += len(raw) + 1


def decoded(content: bytes) -> tuple[str, str]:
    """A text, and how it was written, if not in UTF-8: only where that cannot be mistaken, else U+FFFD is what cannot be read."""
    coding = "UTF-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else ""
    if not coding and (rest := content.decode("utf-8", "ignore")).isascii() and len(rest) < len(content):
        coding = "Windows-1252"  # nothing but plain letters, and bytes that are no UTF-8 at all
    try:
        text = content.decode(coding or "utf-8")
        if coding and not all(letter.isprintable() for letter in text if letter > "\x7f"):
            raise ValueError(coding)
    except ValueError:
        text, coding = content.decode("utf-8", "replace"), ""
    return text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n"), coding


def _parsed(name: str, text: str, where: str, *, is_forced: bool, people: Iterable[str] = ()) -> Log:
    if name.rpartition("/")[2].lower().endswith(MEMLOG) or is_memlog(text):
        return _from_memlog(text, where)
    if _TURN.search(text):
        return _from_turns(text, where)
    log = parse_log(text, people=people)
    if is_forced and len(log.turns) < 2:  # where somebody speaks who is known, other words before a colon are only words
        log = parse_log(text, is_forced=True, people=people)
    return log


# The forms.


def parse_log(text: str, *, is_forced: bool = False, people: Iterable[str] = ()) -> Log:
    """A conversation whose turns begin with who speaks."""
    lines, open_lines = text.split("\n"), unfenced(text)
    log = Log()
    start = _read_head(lines, log)
    fields = filter(None, map(_FIELD.fullmatch, lines[:60]))
    declared = [one[3] for one in fields if (one[1] or one[2]).strip().lower() == "participants"]
    known = names(open_lines, [*declared, log.head.get("participants", ""), *people], is_forced=is_forced)
    preamble: list[str] = []
    for number, (line, is_open) in enumerate(zip(lines, open_lines, strict=True), 1):
        if number <= start:
            continue
        found = speaker(line, known) if is_open else None
        if found:
            log.turns.append(Said(number, found[0], [found[2]] if found[2] else [], found[1], raw=[line]))
        elif log.turns:
            log.turns[-1].text.append(line)
            log.turns[-1].raw.append(line)
        elif not (field_line := _FIELD.fullmatch(line)):
            preamble.append(line)
        else:
            log.head[(field_line[1] or field_line[2]).strip().lower()] = field_line[3].strip()
    _read_title(preamble, log)
    return log


def _read_head(lines: list[str], log: Log) -> int:
    """Front matter, where there is some; gives back how many lines it has."""
    if not lines or lines[0].strip() != "---":
        return 0
    end = next((number for number, line in enumerate(lines[1:200], 1) if line.strip() == "---"), 0)
    for line in lines[1:end]:
        name, colon, value = line.partition(":")
        if colon and name.strip():
            log.head[name.strip().lower()] = value.strip().strip("\"'")
    return end + 1 if end else 0


def _read_title(preamble: list[str], log: Log) -> None:
    """The first heading before the first turn; rules and blank lines say nothing."""
    for number, line in enumerate(preamble):
        if line.startswith("# ") and "title" not in log.head:
            if (title := line[2:].strip()) != "Conversation History":
                log.head["title"] = title
            preamble[number] = ""
            break
    log.preamble = "\n".join(line for line in preamble if line.strip() not in ("---", "***", "___"))


def _from_turns(text: str, where: str) -> Log:
    """A conversation like ours, from a tree or from anybody who writes like that."""
    log = Log()
    content, number, counted = text.encode(), 1, 0
    found = parse_conversation(content)
    first = min((item.start for item in found.items()), default=0)
    lines = content[:first].decode().split("\n")
    start = _read_head(lines, log)
    rest = []
    for line in lines[start:]:
        field_line = _FIELD.fullmatch(line)
        if field_line:
            log.head[(field_line[1] or field_line[2]).strip().lower()] = field_line[3].strip()
        elif line.strip() != "<!-- smp -->":
            rest.append(line)
    _read_title(rest, log)
    for record in sorted(found.records, key=lambda record: record.start):
        value: dict[str, Any] = dict(record.value)
        own = {name: part for name, part in value.items()
               if name not in ("id", "turn", "timestamp", "speaker", "type", "content", "decay")}  # fmt: skip
        number += content.count(b"\n", counted, record.start)
        counted = record.start
        stamp = value.get("timestamp")
        log.turns.append(Said(number, str(value.get("speaker") or shaping.UNKNOWN), str(value["content"]).split("\n"),
                              stamp if isinstance(stamp, str) else None, str(value.get("type") or "message"),
                              {**own, "turn": value["turn"]}))  # fmt: skip
    log.problems += [f"{where}, line {bad.line}: {bad.problem}" for bad in found.bad]
    return log


def _from_memlog(text: str, where: str) -> Log:
    head, entries, preamble = read_memlog(text)
    log = Log(head, preamble)
    if "updated" not in head:
        log.problems.append(f"{where}, line 1: a memlog begins with front matter that says when it was updated; this one does not")
    for entry in entries:
        # A kind that a memlog names is marked as plainly as the words of extracting.py.
        log.turns.append(Said(entry.line, entry.by or shaping.UNKNOWN, entry.text.split("\n"), None, entry.type or "note"))
    return log


# Turns.


class _Clock:
    """Times, one behind the other. That of the file is a last resort, and changes when the log grows: nothing follows from it."""

    def __init__(self, begun: str | None, written_at: str | None) -> None:
        self._last, self._written_at = begun, written_at
        self._is_sure = begun is not None

    def time(self, said: str | None) -> tuple[str | None, bool]:
        """When a turn was, and whether that is borrowed, be it only the day."""
        own, is_borrowed = _time(said, self._last or self._written_at)
        if not is_borrowed and said and is_clock(said) and not self._is_sure:
            self._last = own
            return own, True
        if not is_borrowed:
            self._last, self._is_sure = own, True
        return own, is_borrowed

    def follow(self, turn: Values) -> None:
        """Goes on behind a turn that is known."""
        if isinstance(stamp := turn.get("timestamp"), str) and (self._is_sure or has_own_time(turn)):
            self._last, self._is_sure = stamp, True


class Told:
    """The turns of a log with their texts and numbers."""

    def __init__(self, log: Log, date: str | None, written_at: str | None) -> None:
        self.turns = log.turns
        self.texts = ["\n".join(said.text) for said in log.turns]
        head = log.head
        self._begun = shaping.time_of(head.get("started") or head.get("created") or head.get("date") or "") or date
        self._written_at = shaping.time_of(head.get("updated") or "") or written_at
        own: list[Any] = [said.fields.get("turn") for said in log.turns]
        keeps = len(set(own)) == len(own) and all(isinstance(number, int) for number in own)
        self.numbers: list[int | None] = own if keeps else [None] * len(own)

    def text(self, place: int, span: int) -> str:
        """Of a turn, and of those behind it that were part of it when it was read before."""
        lines = (line for said in self.turns[place + 1 : place + span] for line in said.raw)
        return self.texts[place] if span == 1 else "\n".join([*self.turns[place].text, *lines])

    def clock(self) -> _Clock:
        return _Clock(self._begun, self._written_at)

    def incoming(self) -> list[Incoming]:
        turns, clock = [], self.clock()
        for said, text in zip(self.turns, self.texts, strict=True):
            stamp, is_borrowed = clock.time(said.time)
            of_day = said.time if said.time and is_clock(said.time) else None
            time = None if is_borrowed else stamp
            turns.append(Incoming(_speaker_of(said), trimmed(text), time, of_day, stamp, said.text, said.raw))
        return turns


def _speaker_of(said: Said) -> str:
    return said.speaker if said.speaker.isprintable() and len(said.speaker) <= 128 else shaping.UNKNOWN


def _collected(told: Told, placed: Placed, advance: Callable[[], None], *, extract: bool) -> Collected:
    found, clock, place = Collected(advance), told.clock(), 0
    extraction = Extraction(given_ids(iter(told.texts)), LAYOUT, placed)
    taken: list[tuple[Pair | None, Values, list[Mark]]] = []
    while place < len(told.turns):
        said, pair = told.turns[place], placed.pairs.get(place)
        text = told.text(place, pair.span if pair else 1)
        turn = _known_turn(pair, said, text) if pair and pair.known.versions else _new_turn(told, place, placed, clock)
        clock.follow(turn)
        listed = marks(text) if extract else []
        if extract and said.type in ("decision", "finding", "preference", "learning") and not listed:
            listed = marks(f"{said.type.capitalize()}: {' '.join(text.split())}")
        taken.append((pair, turn, listed))
        place += pair.span if pair else 1
    for pair, turn, listed in sorted(taken, key=lambda one: one[0] is None):  # what is known keeps its ids, whatever is put in
        refs = extraction.take(turn, listed, is_known=pair is not None)
        if refs and not (pair and pair.is_same):
            turn["memory_refs"] = list(dict.fromkeys([*(turn.get("memory_refs") or ()), *refs]))
        if placed.give(TURN, turn):
            found.add(TURN, turn)
    for kind, record in extraction.records():
        if placed.give(kind, record):
            found.add(kind, record)
    return found


def _known_turn(pair: Pair, said: Said, text: str) -> Values:
    """As it stands here, with what the log says; whether that becomes of it is for whoever merges."""
    if pair.is_same and pair.value:
        return dict(pair.value)
    fields = {name: value for name, value in pair.known.versions[0].items() if name != "updated_at"}
    return {**fields, "speaker": _speaker_of(said), "content": trimmed(text)}


def _new_turn(told: Told, place: int, placed: Placed, clock: _Clock) -> Values:
    said, gap = told.turns[place], placed.pairs.get(place)
    stamp, is_borrowed = clock.time(said.time)
    number = gap.known.number if gap else placed.number(told.numbers[place])
    at = (gap.known.stamp if gap else None) or stamp  # of one that is gone here: by its time it is known as that
    further = {name: value for name, value in said.fields.items() if name != "turn"}
    notes: Values = {"layout": LAYOUT, **({shaping.ADDED: ["timestamp"]} if is_borrowed else {}),
                     **({"time": said.time} if is_borrowed and said.time is not None else {})}  # fmt: skip
    return {"id": f"turn-{number}", "turn": number, **({"timestamp": at} if at else {}), "speaker": _speaker_of(said),
            "type": said.type, **further, "content": trimmed(told.texts[place]), IMPORTED: notes,
            "decay": shaping.decay(TURN, at)}  # fmt: skip


def _time(said: str | None, last: str | None) -> tuple[str | None, bool]:
    """The time of a turn, and whether it is only that of what came before."""
    if said is None:
        return last, last is not None
    text = said.strip().replace(",", ".").removesuffix(" UTC")
    if is_clock(text):
        text = f"{last[:10]}T{text.zfill(5 if text.count(':') == 1 else 8)}" if last else ""
    else:
        text = re.sub(r"[T ](\d):", r"T0\1:", text.replace(" ", "T", 1)).replace(" ", "")
    own = shaping.time_of(text) if text else None
    return (own, False) if own else (last, last is not None)


def _name_of(folder: Folder, name: str) -> str:
    """A session is called like its file, or like the folder of one whose name says nothing."""
    base = name.rpartition("/")[2]
    stem = base.rpartition(".")[0] if not base.lower().endswith(MEMLOG) else base[: -len(MEMLOG)]
    above = (folder.label or "").rstrip("/").rpartition("/")[2] or folder.name
    return stem if stem and stem.lower().strip(".") not in _GENERIC else above or stem or "log"


def _date_of(folder: Folder, name: str, log: Log) -> str | None:
    """A day in the name of the file or of its folder, as BMAD's run folders have it; it stays the same when the log grows."""
    for text in (name, _name_of(folder, name), log.head.get("title", "")):
        if (day := _DATE.search(text)) and (found := shaping.time_of(day[1])):
            return found
    return None
