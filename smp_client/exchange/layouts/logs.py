"""Conversations as plain text or Markdown, one file a session. Who speaks is told by the line that a turn begins with:

    **User:** …          **Architect** (2026-01-11 14:30): …       User: …         [2026-01-11 14:30] user: …
    ### Assistant        You said: / ChatGPT said:                 ## Turn 3 - 2026-01-11 14:30:30, as in our own conversations

and memlogs (`.memlog.md`): front matter, and one entry a line, `- (decision by user) …`. A word before a colon is taken for a
speaker only where it is known as one: a usual role, somebody named under `Participants`, or a name in bold at the beginning of a
paragraph more than once. Nothing in a block of code is. What stands before the first turn, and is no field, is kept as `preamble`
under `imported` of the session's metadata. A turn without a time has that of the one before it, or of the head; then `timestamp` is
among its `added`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...markdown import parse as parse_conversation
from ...records import TURN
from ..entries import ACTIVE
from ..formats import Read
from . import shaping
from .extracting import Extraction, given_ids, marks, unfenced
from .memlog import NAME as MEMLOG
from .memlog import is_memlog, read_memlog
from .sessions import Collected, entries_of
from .shaping import IMPORTED, Values
from .sources import Folder

LAYOUT = "markdown-log"
ENDINGS = (".md", ".markdown", ".txt", ".log")
_USERS = frozenset(("user", "human", "you", "me", "customer", "client"))
_SPEAKERS = _USERS | frozenset(
    """assistant ai bot agent system tool developer chatgpt gpt claude gemini copilot llama mistral bmad-master bmad-orchestrator
    architect analyst pm po sm dev qa ux-expert veritas""".split()  # noqa: SIM905
)
_LABELS = frozenset(
    """decision finding preference learning lesson rationale memory-stored note notes todo example warning important critical minor
    info high medium low date session started participants format-version last-turn speaker type tags memory-refs topic title status
    summary result output input question answer http https file error debug trace warn fatal""".split()  # noqa: SIM905
)
_LEVELS = frozenset("info error warn warning debug trace fatal critical notice".split())  # noqa: SIM905
_GENERIC = frozenset("conversation chat log transcript history messages readme memlog session export".split())  # noqa: SIM905
_TIME = r"\d{4}-\d{2}-\d{2}[T ]\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,6})?)?(?:[ ]?(?:Z|UTC|[+-]\d{2}:?\d{2}))?|\d{1,2}:\d{2}(?::\d{2})?"
_NAME = r"(?P<name>[^\s*:\[\]()#`<>|{}\"][^*:\[\]()#`<>|{}\"\n]{0,63}?)"
_BOLD = re.compile(rf"(?:\[(?P<early>{_TIME})\][ \t]*)?\*\*{_NAME}(?:[ \t]*[(\[](?P<time>{_TIME})[)\]])?"
                   rf"(?::\*\*|\*\*(?:[ \t]*[(\[](?P<late>{_TIME})[)\]])?[ \t]*:)[ \t]*(?P<text>.*)")  # fmt: skip
_STAMPED = re.compile(rf"(?:\[(?P<time>{_TIME})\]|(?P<early>\d{{4}}-\d{{2}}-\d{{2}}[T ]\d{{1,2}}:\d{{2}}(?::\d{{2}})?Z?)"
                      rf"(?:[ \t]*[-–|])?)[ \t]*<?{_NAME}>?:(?:[ \t]+(?P<text>.*)|[ \t]*$)")  # fmt: skip
_PLAIN = re.compile(rf"{_NAME}(?:[ \t]*[(\[](?P<time>{_TIME})[)\]])?(?P<said> said)?:(?:[ \t]+(?P<text>.*)|[ \t]*$)")
_HEADING = re.compile(
    rf"#{{1,6}}[ \t]+(?:[^\w\s#][^\w\s]*[ \t]*)?{_NAME}(?:[ \t]*[-–(\[][ \t]*(?P<time>{_TIME})[)\]]?)?[ \t]*:?[ \t]*#*"
)  # fmt: skip
_TURN = re.compile(rb"^(?:<!-- smp -->\r?\n)?## Turn \d", re.MULTILINE)
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


@dataclass
class Log:
    head: dict[str, str] = field(default_factory=dict)
    preamble: str = ""
    turns: list[Said] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def is_log(name: str, beginning: bytes) -> bool:
    """Whether somebody speaks in it."""
    base = name.rpartition("/")[2].lower()
    if not base.endswith(ENDINGS) and not base.endswith(MEMLOG):
        return False
    text = beginning.decode("utf-8", "replace").lstrip("\ufeff")
    if base.endswith(MEMLOG) or is_memlog(text) or _TURN.search(beginning):
        return True
    turns = parse_log(text).turns
    return len(turns) >= 2 or (len(turns) == 1 and turns[0].speaker.lower() in _SPEAKERS)


def read(folder: Folder, name: str, session_name: str | None = None, *, extract: bool = True) -> Iterator[Read]:
    """One session, from a log; if wanted with the decisions, findings and so on that it marks as memories of their own."""
    content = folder.read(name)
    for problem in folder.problems:
        yield Read(0, None, problem)
    folder.problems.clear()
    if content is None:
        return
    where = folder.where(name)
    log = _parsed(name, content, where)
    old = session_name or log.head.get("session") or _name_of(folder, name)
    session = shaping.session_id(old)
    if not log.turns:
        yield from (Read(0, None, problem) for problem in log.problems)
        yield Read(0, None, f"{where}, line 1: nobody speaks here: no line begins with a speaker, such as 'User:'")
        return
    found = _collected(log, _date_of(folder, name, log), folder.advance, extract=extract)
    notes: Values = {"layout": LAYOUT, "file": name, **({"session_id": old} if old != session else {})}
    if log.head:
        notes["head"] = log.head
    if log.preamble.strip():
        notes["preamble"] = log.preamble.strip("\n")
    people = [one.strip() for one in log.head.get("participants", "").split(",") if one.strip()]
    users = [one for one in people if re.fullmatch(r"user([-_ ].*)?", one.lower())]
    agents = [one for one in dict.fromkeys([*people, *found.speakers]) if one.lower() not in _USERS | {shaping.UNKNOWN, *users}]
    context = {key: log.head[name] for key, name in (("primary_topic", "topic"), ("project_name", "project"), ("title", "title"))
               if log.head.get(name)}  # fmt: skip
    metadata = found.metadata(session, notes, user=users[0] if users else None, agents=agents, context=context)
    yield from entries_of(session, ACTIVE, metadata, found)
    yield from (Read(0, None, problem) for problem in log.problems)


def _parsed(name: str, content: bytes, where: str) -> Log:
    try:
        text = content.decode().lstrip("\ufeff")
        problems = []
    except UnicodeDecodeError as error:
        text = content.decode("utf-8", "replace").lstrip("\ufeff")
        line = content.count(b"\n", 0, error.start) + 1
        problems = [f"{where}, line {line}: not UTF-8 at byte {error.start}; what cannot be read is shown as \ufffd"]
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if name.rpartition("/")[2].lower().endswith(MEMLOG) or is_memlog(text):
        log = _from_memlog(text, where)
    elif _TURN.search(content):
        log = _from_turns(text, where)
    else:
        log = parse_log(text)
    log.problems[:0] = problems
    return log


# The forms.


def parse_log(text: str) -> Log:
    """A conversation whose turns begin with who speaks."""
    lines, open_lines = text.split("\n"), list(unfenced(text))
    log = Log()
    start = _read_head(lines, log)
    names = _names(lines, open_lines, log)
    preamble: list[str] = []
    for number, (line, is_open) in enumerate(zip(lines, open_lines, strict=True), 1):
        if number <= start:
            continue
        found = _speaker(line, names) if is_open else None
        if found:
            log.turns.append(Said(number, found[0], [found[2]] if found[2] else [], found[1]))
        elif log.turns:
            log.turns[-1].text.append(line)
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


def _names(lines: list[str], open_lines: list[str], log: Log) -> frozenset[str]:
    """Who is known to speak here."""
    fields = filter(None, map(_FIELD.fullmatch, lines[:60]))
    declared = [one[3] for one in fields if (one[1] or one[2]).strip().lower() == "participants"]
    declared.append(log.head.get("participants", ""))
    people = {one.strip().lower() for value in declared for one in value.split(",") if one.strip()}
    bold: Counter[str] = Counter()
    for before, line in zip(["", *open_lines], open_lines, strict=False):
        if (found := _BOLD.match(line)) and not before.strip():
            bold[found["name"].strip().lower()] += 1
    often = {name for name, count in bold.items() if count > 1 and name.replace(" ", "-") not in _LABELS}
    return frozenset(_SPEAKERS | people | often)


def _speaker(line: str, names: frozenset[str]) -> tuple[str, str | None, str] | None:
    """Who begins to speak in this line, when, and what the line says."""
    line = line.strip()
    for form in (_BOLD, _STAMPED, _PLAIN, _HEADING):
        found = form.fullmatch(line)
        if not found:
            continue
        parts = found.groupdict()
        name = parts["name"].strip()
        is_known = name.lower() in names
        if form is _STAMPED and name.lower() not in _LEVELS | _LABELS and len(name.split()) <= 4:
            is_known = True
        if is_known:
            return name, parts.get("time") or parts.get("early") or parts.get("late"), (parts.get("text") or "").strip()
    return None


def _from_turns(text: str, where: str) -> Log:
    """A conversation like ours, from a tree or from anybody who writes like that."""
    log = Log()
    found = parse_conversation(text.encode())
    first = min((item.start for item in found.items()), default=0)
    lines = text.encode()[:first].decode().split("\n")
    start = _read_head(lines, log)
    rest = []
    for line in lines[start:]:
        field_line = _FIELD.fullmatch(line)
        if field_line:
            log.head[(field_line[1] or field_line[2]).strip().lower()] = field_line[3].strip()
        elif line.strip() != "<!-- smp -->":
            rest.append(line)
    _read_title(rest, log)
    for record in found.records:
        value: dict[str, Any] = dict(record.value)
        own = {name: part for name, part in value.items()
               if name not in ("id", "turn", "timestamp", "speaker", "type", "content", "decay")}  # fmt: skip
        number = text.encode()[: record.start].count(b"\n") + 1
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


def _collected(log: Log, date: str | None, advance: Callable[[], None], *, extract: bool = True) -> Collected:
    found = Collected(advance)
    texts = ["\n".join(said.text) for said in log.turns]
    extraction = Extraction(given_ids(iter(texts)), LAYOUT)
    last = shaping.time_of(log.head.get("started") or log.head.get("created") or log.head.get("date") or "") or date
    numbers = [said.fields.get("turn") for said in log.turns]
    keeps = len(set(numbers)) == len(numbers) and all(isinstance(number, int) for number in numbers)
    for place, (said, text) in enumerate(zip(log.turns, texts, strict=True), 1):
        own, added = _time(said.time, last)
        last = own or last
        speaker = said.speaker if said.speaker.isprintable() and len(said.speaker) <= 128 else shaping.UNKNOWN
        number = said.fields.get("turn") if keeps else place
        further = {name: value for name, value in said.fields.items() if name != "turn"}
        turn: Values = {"id": f"turn-{number}", "turn": number, **({"timestamp": own} if own else {}), "speaker": speaker,
                        "type": said.type, **further, "content": _trimmed(text)}  # fmt: skip
        notes: Values = {"layout": LAYOUT}
        if added:
            notes[shaping.ADDED] = ["timestamp"]
        if said.time is not None and added:
            notes["time"] = said.time
        listed = marks(text) if extract else []
        if extract and said.type in ("decision", "finding", "preference", "learning") and not listed:
            listed = marks(f"{said.type.capitalize()}: {' '.join(text.split())}")
        extraction.take(turn, listed)
        found.add(TURN, {**turn, IMPORTED: notes, "decay": shaping.decay(TURN, own)})
    for kind, record in extraction.records():
        found.add(kind, record)
    return found


def _time(said: str | None, last: str | None) -> tuple[str | None, bool]:
    """The time of a turn, and whether it is only that of what came before."""
    if said is None:
        return last, last is not None
    text = said.strip().replace(",", ".").removesuffix(" UTC")
    if re.fullmatch(r"\d{1,2}:\d{2}(?::\d{2})?", text):
        text = f"{last[:10]}T{text.zfill(5 if text.count(':') == 1 else 8)}" if last else ""
    else:
        text = re.sub(r"[T ](\d):", r"T0\1:", text.replace(" ", "T", 1)).replace(" ", "")
    own = shaping.time_of(text) if text else None
    return (own, False) if own else (last, last is not None)


def _trimmed(text: str) -> str:
    """Without the blank lines and rules that separate turns."""
    lines = text.split("\n")
    while lines and (not lines[-1].strip() or lines[-1].strip() in ("---", "***", "___")):
        lines.pop()
    while lines and not lines[0].strip():
        lines.pop(0)
    return "\n".join(lines)


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
