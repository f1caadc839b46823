"""Conversations as plain text or Markdown, one file a session, and BMAD's memlogs.

A turn begins with a line that says who speaks:

    User: …     **Architect:** …     [2026-01-11 14:30] user: …     ### Assistant

A word before a colon is a speaker only where it is known as one: a usual role, or somebody named
under `Participants`. Nothing in a block of code is, also in one that is never closed.

A memlog, `.memlog.md`, is front matter and a flat list with one entry a line, none with a time:

    - (kind by who) text      - (kind) text      - (by who) text      - text

A log has no ids. The turns that the tree knows must be a prefix of the log, or the log a prefix of
them. Then the log goes on with its session; else it becomes a session of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...model.record import DECISION, FINDING, LEARNING, PREFERENCE, TURN, Kind
from ..entry import Read, memory_entry
from .shape import UNKNOWN, good_tags, participants, session_entry, session_id, time_of
from .source import Source

LAYOUT, MEMLOG = "markdown-log", ".memlog.md"
ENDINGS = (".md", ".markdown", ".txt", ".log")
Turns = dict[int, tuple[str, str]]  # speaker and text by number
# The tags that make a memory of an entry, beside its turn. Any other tag is the type of the turn.
_TAGS: dict[str, Kind] = {
    **dict.fromkeys(("decision", "direction", "constraint", "override"), DECISION),
    **dict.fromkeys(("question", "assumption", "gap", "risk", "issue", "finding"), FINDING),
    **dict.fromkeys(("insight", "learning", "lesson"), LEARNING),
    "preference": PREFERENCE,
}
_USERS = ("user", "human", "you", "me", "customer", "client")
_SPEAKERS = frozenset((
    *_USERS, "assistant", "ai", "bot", "agent", "system", "tool", "developer", "chatgpt", "gpt",
    "claude", "gemini", "copilot", "bmad-master", "architect", "analyst", "pm", "po", "sm", "dev",
    "qa", "ux-expert", "veritas",
))  # fmt: skip
_LABELS = frozenset((
    *_TAGS, "rationale", "note", "notes", "todo", "example", "warning", "important", "critical",
    "date", "session", "started", "participants", "topic", "title", "status", "summary", "result",
    "error", "info", "debug", "project", "updated", "answer", "speaker",
))  # fmt: skip
_GENERIC = ("conversation", "chat", "log", "transcript", "history", "messages", "session", "")
_NAME = r"(?P<name>[^\s*:\[\]()#`<>|{}\"][^*:\[\]()#`<>|{}\"\n]{0,63}?)"
_LINE = re.compile(
    r"(?:\[(?P<time>\d[\dTZ:.+ -]{3,31})\][ \t]*)?(?:\*\*)?"
    rf"{_NAME}(?:\*\*)?[ \t]*:(?:\*\*)?(?:[ \t]+(?P<text>.*)|[ \t]*)"
)
_HEADING = re.compile(rf"#{{1,6}}[ \t]+{_NAME}[ \t]*:?(?P<text>)(?P<time>)")
_PARTICIPANTS = re.compile(r"(?m)^(?:\*\*)?Participants:(?:\*\*)?(.*)$")
_FIELD = re.compile(r"(?:\*\*([^*:\n]{1,64}):\*\*|([A-Z][A-Za-z -]{1,31}):)[ \t]*(.*)")
_ENTRY = re.compile(
    r"- (?:\((?P<type>(?!by )[^()\n]{1,80}?)?(?:(?: |(?<=\())by (?P<by>[^()\n]{1,80}))?\) )?"
    r"(?P<text>\S.*)"
)


@dataclass
class Said:
    """A turn as it was found."""

    speaker: str
    lines: list[str]
    time: str = ""
    type: str = "message"

    @property
    def text(self) -> str:
        return "\n".join(self.lines).strip("\n")


@dataclass
class Log:
    """A conversation: the fields of its head, the text before the first turn, and the turns."""

    head: dict[str, str] = field(default_factory=dict)
    turns: list[Said] = field(default_factory=list)
    preamble: list[str] = field(default_factory=list)


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


def is_log(place: str, beginning: bytes) -> bool:
    """Return whether somebody speaks in a file."""
    turns = parsed(place, _text(beginning)).turns
    is_known = len(turns) == 1 and turns[0].speaker.lower() in _SPEAKERS
    return place.endswith(MEMLOG) or len(turns) > 1 or is_known


def read(source: Source, place: str, placer: Placer) -> Iterator[Read]:
    """Yield one session from a log."""
    content, problem = source.read(place)
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"line {line}: not UTF-8; \ufffd stands for the bytes that cannot be read"
    if problem:
        yield Read(place, None, problem)
    log = parsed(place, _text(content))
    if not log.turns:
        return
    directory, _, file = place.rpartition("/")
    stem = file.removesuffix(MEMLOG) if file.endswith(MEMLOG) else file.rpartition(".")[0]
    folder = directory.rpartition("/")[2] or source.top.name
    name = log.head.get("session") or (folder if stem.lower() in _GENERIC else stem)
    name = name.encode(errors="replace").decode() or "log"
    session = placer.place(session_id(name), log, place)
    yield Read(place, _session(name, log) | {"session": session})
    stamps = (time_of(log.head.get(name)) for name in ("started", "created", "date", "updated"))
    latest = next(filter(None, stamps), source.written_at(place))
    for number, said in enumerate(log.turns, 1):
        at = time_of(said.time)
        latest = at or latest
        stamp = {"timestamp": at} if at else {"said_at": said.time} if said.time else {}
        record: dict[str, Any] = {"id": TURN.memory_id(number), "turn": number, **stamp,
                                  "speaker": said.speaker, "type": said.type,
                                  "content": said.text}  # fmt: skip
        made: list[tuple[Kind, dict[str, Any]]] = [(TURN, record)]
        if (tagged := _TAGS.get(said.type)) is not None:
            own = {"id": f"{record['id']}/1", **stamp, "turn_ref": number}
            made.append((tagged, {**own, **_fields(tagged, said)}))
        for kind, one in made:
            entry = memory_entry(session, kind.file, kind.type, one)
            yield Read(place, entry | {"written_at": latest})


def _text(content: bytes) -> str:
    text = content.decode("utf-8", "replace").lstrip("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _session(name: str, log: Log) -> dict[str, Any]:
    people = [one.strip() for one in log.head.get("participants", "").split(",") if one.strip()]
    spoken = list(dict.fromkeys([*people, *(said.speaker for said in log.turns)]))
    users = [one for one in spoken if one.lower().startswith(_USERS)]
    agents = [one for one in spoken if one not in users and one != UNKNOWN]
    names = {"project_name": "project", "primary_topic": "topic", "title": "title", "goal": "goal"}
    context = {ours: log.head[name] for ours, name in names.items() if log.head.get(name)}
    known = participants(users[0] if users else None, agents)
    preamble = "\n".join(log.preamble).strip()
    kept = {"head": log.head, **({"preamble": preamble} if preamble else {})}
    return session_entry(LAYOUT, name, {"participants": known, "context": context}, kept)


# Forms.


def parsed(place: str, text: str) -> Log:
    """Return the turns of a log, whatever its form."""
    lines, start, log = text.split("\n"), 0, Log()
    if lines[0].rstrip() == "---" and "---" in map(str.rstrip, lines[1:]):
        start = [line.rstrip() for line in lines].index("---", 1) + 1
        fields = (line.partition(":") for line in lines[1 : start - 1] if ":" in line)
        log.head = {name.strip().lower(): value.strip().strip("\"'") for name, _, value in fields}
    if place.endswith(MEMLOG):
        for line in lines[start:]:
            if found := _ENTRY.fullmatch(line.rstrip()):
                tag, by = ((found[name] or "").strip() for name in ("type", "by"))
                turn = Said(by or UNKNOWN, [found["text"]], type=tag.lower() or "note")
                log.turns.append(turn)
            elif log.turns and line.strip():
                log.turns[-1].lines.append(line.rstrip())
        return log
    listed = [log.head.get("participants", ""), *_PARTICIPANTS.findall(text)[:1]]
    people = {one.strip().lower() for one in ",".join(listed).split(",")} - {""}
    known, is_code = (_SPEAKERS | people) - _LABELS, False
    for line in lines[start:]:
        is_code ^= line.lstrip().startswith("```")
        found = _HEADING.fullmatch(line.strip()) or _LINE.fullmatch(line.strip())
        name = found["name"].strip() if found else ""
        is_short = len(name.split()) <= 3 and name.lower() not in _LABELS
        is_timed = bool(found and found["time"]) and is_short
        if found and not is_code and (name.lower() in known or is_timed):
            said = [found["text"]] if found["text"] else []
            log.turns.append(Said(name, said, found["time"] or ""))
        elif log.turns:
            log.turns[-1].lines.append(line)
        elif one := _FIELD.fullmatch(line):
            log.head.setdefault((one[1] or one[2]).strip().lower(), one[3].strip())
        elif line.startswith("# ") and "title" not in log.head:
            log.head["title"] = line[2:].strip()
        elif line.strip(" -*_"):
            log.preamble.append(line)
    return log


def _fields(kind: Kind, said: Said) -> dict[str, Any]:
    """Return the memory that a tag of a memlog makes of an entry."""
    fields: dict[str, Any] = {kind.actor: said.speaker, kind.text: said.text}
    if kind is FINDING:
        fields["severity"] = "medium" if said.type == "finding" else "info"
    if kind is PREFERENCE:
        is_user = said.speaker.lower().startswith(_USERS)
        fields["confidence"] = "explicit" if is_user else "inferred"
    if said.type != kind.type:
        fields |= {"category": said.type, "tags": good_tags([said.type])}
    return {**fields, "imported": {"layout": LAYOUT, "extracted": True}}
