"""Conversations as plain text or Markdown, one file a session, and BMAD's memlogs.

A turn begins with a line that says who speaks:

    User: …     **Architect:** …     [2026-01-11 14:30] user: …     ### Assistant     ## Turn 3 - …

A word before a colon is a speaker only where it is known as one: a usual role, somebody named under
`Participants`, or a name in bold that begins several turns. Nothing in a block of code is.

A log has no ids. The turns that the tree knows must be a prefix of the log, or the log a prefix of
them. Then the log goes on with its session; else it becomes a session of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...model.record import FINDING, PREFERENCE, TURN, Kind
from ...text.markdown import parse as parse_conversation
from ..entry import Entry, Read, memory_entry
from .memlog import NAME, TAGS, front_matter, read_memlog
from .shape import UNKNOWN, good_tags, participants, session_entry, session_id, time_of

LAYOUT = "markdown-log"
ENDINGS = (".md", ".markdown", ".txt", ".log")
Turns = dict[int, tuple[str, str]]  # speaker and text by number
_USERS = ("user", "human", "you", "me", "customer", "client")
_SPEAKERS = frozenset((
    *_USERS, "assistant", "ai", "bot", "agent", "system", "tool", "developer", "chatgpt", "gpt",
    "claude", "gemini", "copilot", "bmad-master", "architect", "analyst", "pm", "po", "sm", "dev",
    "qa", "ux-expert", "veritas",
))  # fmt: skip
_LABELS = frozenset((
    "decision", "finding", "preference", "learning", "lesson", "rationale", "note", "notes", "todo",
    "example", "warning", "important", "critical", "date", "session", "started", "participants",
    "topic", "title", "status", "summary", "result", "error", "info", "debug", "project", "updated",
    "question", "answer",
))  # fmt: skip
_GENERIC = frozenset(
    ("conversation", "chat", "log", "transcript", "history", "messages", "session", "export", "")
)
_WHEN = (
    r"[\[(]?(?P<{}>\d{{4}}-\d{{2}}-\d{{2}}[T ][\d:.,]+(?: ?(?:Z|UTC|[+-]\d{{2}}:?\d{{2}}))?"
    r"|\d{{1,2}}:\d{{2}}(?::\d{{2}})?)[\])]?"
)
_NAME = r"(?P<name>[^\s*:\[\]()#`<>|{}\"][^*:\[\]()#`<>|{}\"\n]{0,63}?)"
_GAP = r"[ \t]{0,9}"
_LINE = re.compile(
    rf"(?:{_WHEN.format('before')}{_GAP}(?:[-–|]{_GAP})?)?(?P<bold>\*\*)?<?{_NAME}>?(?:\*\*)?"
    rf"(?: said)?(?:[ \t]{{1,9}}{_WHEN.format('behind')})?(?:\*\*)?{_GAP}:(?:\*\*)?"
    r"(?:[ \t]+(?P<text>.*)|[ \t]*)"
)
_HEADING = re.compile(
    rf"#{{1,6}}[ \t]+{_NAME}(?:[ \t][-–]?{_GAP}{_WHEN.format('behind')})?[ \t]*:?"
    r"(?P<text>)(?P<before>)(?P<bold>)"
)
_FIELD = re.compile(r"(?:\*\*([^*:\n]{1,64}):\*\*|([A-Z][A-Za-z -]{1,31}):)[ \t]*(.*)")
_OWN = ("speaker", "content", "timestamp", "id", "turn", "decay")
_TURN = re.compile(r"^(?:<!-- smp -->\n)?## Turn \d", re.MULTILINE)
_MARK = re.compile(
    r"[ \t>]*(?:[-*+][ \t]+|\d{1,3}[.)][ \t]+)?(?:\*\*)?"
    r"(?P<word>decision|finding|preference|learning|lesson)(?:[ \t]*\((?P<by>[^()\n]{1,64})\))?"
    r"(?:(?:\*\*)?[ \t]*:|:\*\*)(?:\*\*)?[ \t]*(?P<text>\S.*)",
    re.IGNORECASE,
)


@dataclass
class Said:
    """A turn as it was found."""

    speaker: str
    lines: list[str]
    time: str | None = None
    type: str = "message"
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "\n".join(self.lines).strip("\n")


@dataclass
class Log:
    """A conversation: the fields of its head, the text before the first turn, and the turns."""

    head: dict[str, str] = field(default_factory=dict)
    turns: list[Said] = field(default_factory=list)
    preamble: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Given:
    """A log as it was found: its bytes, how messages call it, and the name of its session."""

    content: bytes
    where: str
    name: str
    written_at: str
    extract: bool  # whether the memories that it marks become memories
    is_forced: bool  # whether somebody insists that it is a log


@dataclass
class Placer:
    """Finds the session that a log belongs to, for all logs of one import."""

    known: Callable[[str], Turns | None]  # the turns of a session in the tree; None for no session
    clean: Callable[[str], str]  # a text without its secrets
    notes: list[str] = field(default_factory=list)
    _claimed: dict[str, Turns] = field(default_factory=dict)

    def place(self, wanted: str, log: Log, where: str) -> str:
        """Return the first session of this name, or with a number, that the log goes on with."""
        told = {at: (said.speaker, self.clean(said.text)) for at, said in enumerate(log.turns, 1)}
        for number in range(1, 1000):
            name = wanted if number == 1 else f"{wanted[:58]}-{number}"
            known = self._claimed.get(name) or self.known(name)
            if known is None or all(told.get(at, said) == said for at, said in known.items()):
                break
        if name != wanted and known is None:
            self.notes.append(
                f"{where} does not go on with session {wanted}: it became the new session {name}"
            )
        if len(told) >= len(known or {}):
            self._claimed[name] = told
        return name


def is_log(name: str, beginning: bytes, *, is_forced: bool = False) -> bool:
    """Return whether somebody speaks in a file."""
    base = name.rpartition("/")[2].lower()
    if not base.endswith((*ENDINGS, NAME)):
        return False
    turns = parsed(name, _text(beginning), is_forced=is_forced).turns
    is_known = len(turns) == 1 and turns[0].speaker.lower() in _SPEAKERS
    return base.endswith(NAME) or len(turns) > 1 or is_known


def name_of(file: str, folder: str) -> str:
    """Return the name of a log: that of its file, or of its folder for a file of any log."""
    stem = file[: -len(NAME)] if file.lower().endswith(NAME) else file.rpartition(".")[0] or file
    name = folder if stem.lower() in _GENERIC else stem
    return name.encode(errors="replace").decode() or "log"


def read(given: Given, placer: Placer) -> Iterator[Read]:
    """Yield one session from a log."""
    where, text = given.where, _text(given.content)
    try:
        given.content.decode()
    except UnicodeDecodeError as error:
        line = given.content.count(b"\n", 0, error.start) + 1
        problem = "not UTF-8; \ufffd stands for the bytes that cannot be read"
        yield Read(f"{where}, line {line}", None, problem)
    log = parsed(where, text, is_forced=given.is_forced)
    yield from (Read(where, None, problem) for problem in log.problems)
    if not log.turns:
        problem = "nobody speaks here: no line begins with a speaker, such as 'User:'"
        yield Read(f"{where}, line 1", None, problem)
        return
    head = log.head
    old = head.get("session") or given.name
    session = placer.place(session_id(old), log, where)
    yield Read(where, _session(session, old, log))
    named = (head.get(name) for name in ("started", "created", "date", "updated"))
    latest = next((at for name in named if (at := time_of(name))), given.written_at)
    for number, said in enumerate(log.turns, 1):
        text = (said.time or "").removesuffix("UTC").strip().replace(",", ".")
        at = time_of(text)
        latest = at or latest
        stamp = {"timestamp": at} if at else {"said_at": text} if text else {}
        record: dict[str, Any] = {"id": TURN.memory_id(number), "turn": number, **stamp,
                                  "speaker": said.speaker, "type": said.type, **said.fields,
                                  "content": said.text}  # fmt: skip
        made: list[tuple[Kind, dict[str, Any]]] = [(TURN, record)]
        for place, (kind, fields) in enumerate(_marks(said) if given.extract else (), 1):
            own = {"id": f"{record['id']}/{place}", **stamp, "turn_ref": number}
            made.append((kind, {**own, **fields}))
        for kind, one in made:
            entry = memory_entry(session, kind.file, kind.type, one)
            yield Read(where, entry | {"written_at": latest})


def _text(content: bytes) -> str:
    text = content.decode("utf-8", "replace").lstrip("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _session(session: str, old: str, log: Log) -> Entry:
    people = [one.strip() for one in log.head.get("participants", "").split(",") if one.strip()]
    spoken = list(dict.fromkeys([*people, *(said.speaker for said in log.turns)]))
    users = [one for one in spoken if one.lower().startswith(_USERS)]
    agents = [one for one in spoken if one not in users and one != UNKNOWN]
    names = {"project_name": "project", "primary_topic": "topic", "title": "title", "goal": "goal"}
    context = {ours: log.head[name] for ours, name in names.items() if log.head.get(name)}
    known = participants(users[0] if users else None, agents)
    preamble = "\n".join(log.preamble).strip()
    kept = {"head": log.head, **({"preamble": preamble} if preamble else {})}
    return session_entry(session, LAYOUT, old, {"participants": known, "context": context}, kept)


# Forms.


def parsed(name: str, text: str, *, is_forced: bool = False) -> Log:
    """Return the turns of a log, whatever its form."""
    if name.lower().endswith(NAME):
        head, noted = read_memlog(text)
        turns = [Said(one.by or UNKNOWN, [one.text], type=one.tag or "note") for one in noted]
        return Log(head, turns)
    if _TURN.search(text):
        return _own(text)
    lines = text.split("\n")
    head, start = front_matter(lines)
    log = Log(head)
    outside = _without_code(lines)
    known = _names(lines, outside, head)
    for line, is_open in zip(lines[start:], outside[start:], strict=True):
        found = _speaker(line, known, is_forced=is_forced) if is_open else None
        if found:
            said = [found["text"]] if found["text"] else []
            when = found["before"] or found["behind"]
            log.turns.append(Said(found["name"].strip(), said, when))
        elif log.turns:
            log.turns[-1].lines.append(line)
        elif one := _FIELD.fullmatch(line):
            log.head.setdefault((one[1] or one[2]).strip().lower(), one[3].strip())
        elif line.startswith("# ") and "title" not in log.head:
            log.head["title"] = line[2:].strip()
        elif line.strip(" -*_"):
            log.preamble.append(line)
    return log


def _own(text: str) -> Log:
    """Return a conversation in the form of SMP, whoever wrote it."""
    content = text.encode()
    found = parse_conversation(content)
    first = min((item.start for item in found.items()), default=0)
    heads = (_FIELD.fullmatch(line) for line in content[:first].decode().split("\n"))
    log = Log({(one[1] or one[2]).strip().lower(): one[3].strip() for one in heads if one})
    for record in sorted(found.records, key=lambda record: record.start):
        own = dict(record.value)
        speaker, said, time, *_ = (own.pop(name, None) for name in _OWN)
        when, type = str(time) if time else None, str(own.pop("type", "message"))
        log.turns.append(Said(str(speaker or UNKNOWN), [str(said)], when, type, own))
    log.problems = [f"line {bad.line}: {bad.problem}" for bad in found.bad]
    return log


def _without_code(lines: list[str]) -> list[bool]:
    """Return for each line whether it is outside of a block of code. An open block is none."""
    fences = [number for number, line in enumerate(lines) if line.lstrip().startswith("```")]
    is_open = [True] * len(lines)
    for first, last in zip(fences[::2], fences[1::2], strict=False):
        is_open[first : last + 1] = [False] * (last + 1 - first)
    return is_open


def _names(lines: list[str], is_open: list[bool], head: dict[str, str]) -> frozenset[str]:
    """Return who is known to speak here, in lower case."""
    fields = [found for line in lines[:60] if (found := _FIELD.fullmatch(line))]
    listed = [one[3] for one in fields if (one[1] or one[2]).strip() == "Participants"]
    every = ",".join([head.get("participants", ""), *listed]).split(",")
    people = {one.strip().lower() for one in every if one.strip()}
    free = [line.strip() for line, is_free in zip(lines, is_open, strict=True) if is_free]
    begun = map(_LINE.fullmatch, free)
    bold = Counter(one["name"].strip().lower() for one in begun if one and one["bold"])
    often = {name for name, times in bold.items() if times > 1}
    return frozenset(name for name in _SPEAKERS | people | often if name not in _LABELS)


def _speaker(line: str, known: frozenset[str], *, is_forced: bool) -> re.Match[str] | None:
    """Return the parts of a line that begins a turn. In a forced log any short name speaks."""
    found = _HEADING.fullmatch(line.strip()) or _LINE.fullmatch(line.strip())
    if found is None:
        return None
    name = found["name"].strip().lower()
    is_name = found["before"] or (is_forced and not line.lstrip().startswith("#"))
    is_short = len(name.split()) <= 3 and name not in _LABELS
    return found if name in known or (is_name and is_short) else None


# Memories that a turn marks.


def _marks(said: Said) -> Iterator[tuple[Kind, dict[str, Any]]]:
    """Yield the memories that a turn says it holds; nothing is guessed."""
    if said.type in TAGS:
        yield TAGS[said.type], _fields(TAGS[said.type], said.text, said.speaker, said.type)
        return
    lines = said.text.split("\n")
    for line, is_open in zip(lines, _without_code(lines), strict=True):
        mark = _MARK.fullmatch(line.rstrip()) if is_open else None
        if mark:
            kind = TAGS[mark["word"].lower()]
            text = mark["text"].removesuffix("**").strip()
            yield kind, _fields(kind, text, mark["by"] or said.speaker, "")


def _fields(kind: Kind, text: str, by: str, tag: str) -> dict[str, Any]:
    fields: dict[str, Any] = {kind.actor: by, kind.text: text}
    if kind is FINDING:
        fields["severity"] = "info" if tag and tag != "finding" else "medium"
    if kind is PREFERENCE:
        fields["confidence"] = "explicit" if by.lower().startswith(_USERS) else "inferred"
    if tag and tag != kind.type:
        fields |= {"category": tag, "tags": good_tags([tag])}
    return {**fields, "imported": {"layout": LAYOUT, "extracted": True}}
