"""A conversation log as turns, and the session that it becomes or goes on with.

A log has no ids. Beside its turns it yields the memories that they state. The turns that the tree
knows must be a prefix of the log, or the log a prefix of them. Then the log goes on with its
session; else it becomes a session of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...model.record import FINDING, PREFERENCE, TURN, Kind
from ...text.values import Value
from ..entry import IMPORTED, Read, memory_entry
from .extraction import Statement, statements
from .reader import Destination
from .shape import UNKNOWN, good_tags, participants, session_entry, session_id, time_of
from .source import Source

LAYOUT = "markdown-log"
USERS = ("user", "human", "you", "me", "customer", "client")
_STAMPS = ("started", "created", "date", "updated")  # fields of a head that say when it was
_GENERIC = ("conversation", "chat", "log", "transcript", "history", "messages", "session", "")
_CONTEXT = {"project_name": "project", "primary_topic": "topic", "title": "title", "goal": "goal"}
_RULE = "---"
_MOST_SESSIONS = 1000  # of one name, each with a number behind it
_NAME_CHARACTERS = 58  # of a name that gets a number behind it


@dataclass
class Said:
    """A turn as it was found."""

    speaker: str
    lines: list[str]
    time: str = ""
    type: str = "message"
    kind: Kind | None = None  # of the memory that its tag makes, beside the turn
    number: int | None = None  # that the log gives it; else its place in the log
    fields: dict[str, Value] = field(default_factory=dict)  # further ones of the turn

    @property
    def text(self) -> str:
        return "\n".join(self.lines).strip("\n")


@dataclass
class Log:
    """A conversation: the fields of its head, the text before the first turn, and the turns."""

    head: dict[str, str] = field(default_factory=dict)
    turns: list[Said] = field(default_factory=list)
    preamble: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # turns that cannot be read

    def numbered(self) -> Iterator[tuple[int, Said]]:
        """Yield the turns with their numbers."""
        for place, said in enumerate(self.turns, 1):
            yield said.number or place, said


Parse = Callable[[list[str]], Log]


def lines_of(content: bytes) -> list[str]:
    text = content.decode("utf-8", "replace").lstrip("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def front_matter(lines: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the fields between two lines of `---` at the top, and the lines behind them."""
    bare = [line.rstrip() for line in lines]
    if bare[0] != _RULE or _RULE not in bare[1:]:
        return {}, lines
    end = bare.index(_RULE, 1)
    head: dict[str, str] = {}
    for line in lines[1:end]:
        name, colon, value = line.partition(":")
        if colon:
            head[name.strip().lower()] = value.strip().strip("\"'")
    return head, lines[end + 1 :]


def read(
    source: Source, place: str, name: str, parse: Parse, destination: Destination
) -> Iterator[Read]:
    """Yield one session from a log; `name` is its name, unless its head has one."""
    content, problem = source.read(place)
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"line {line}: not UTF-8; \ufffd stands for the bytes that cannot be read"
    if problem:
        yield Read(place, None, problem)
    log = parse(lines_of(content))
    for problem in log.problems:
        yield Read(place, None, problem)
    if not log.turns:
        return
    named = (log.head.get("session") or name).encode(errors="replace").decode() or "log"
    session = _placed(session_id(named), log, place, destination)
    yield Read(place, _session(named, log) | {"session": session})
    stamps = (time_of(log.head.get(name)) for name in _STAMPS)
    written_at = next(filter(None, stamps), source.written_at(place))
    stated = 0
    for number, said in log.numbered():
        written_at = time_of(said.time) or written_at
        memories = [(TURN, _turn(number, said))]
        if destination.extract:
            memories += _extracted(number, said)
            stated += 0 if said.kind else len(memories) - 1
        for kind, record in memories:
            entry = memory_entry(session, kind.file, kind.type, record)
            yield Read(place, entry | {"written_at": written_at})
    if stated:
        are = "a memory" if stated == 1 else f"{stated:,} memories"
        destination.notes.append(
            f"{place} states {are} beside its turns; --no-extract leaves them out"
        )


def name_of(source: Source, place: str, ending: str) -> str:
    """Return the name of a log: that of its file, or that of its folder if the first says nothing.

    `ending` is the end of the file's name that does not belong to the name.
    """
    folder, _, file = place.rpartition("/")
    stem = file.removesuffix(ending)
    if stem.lower() in _GENERIC:
        return folder.rpartition("/")[2] or source.top.name
    return stem


def _turn(number: int, said: Said) -> dict[str, Any]:
    return {
        "id": TURN.memory_id(number),
        "turn": number,
        **_stamp(said),
        "speaker": said.speaker,
        "type": said.type,
        "content": said.text,
        **said.fields,
    }


def _stamp(said: Said) -> dict[str, str]:
    """Return the time of a turn. A time that cannot be read stays as it was said."""
    if at := time_of(said.time):
        return {"timestamp": at}
    return {"said_at": said.time} if said.time else {}


def _extracted(number: int, said: Said) -> Iterator[tuple[Kind, dict[str, Any]]]:
    """Yield the memory that the tag of a turn makes; without one, those that its text states."""
    if said.kind is not None:
        found = [(Statement(said.kind, said.text, 1, _degree_of_tag(said)), _of_tag(said))]
    else:
        found = [(statement, {}) for statement in statements(said.text)]
    for statement, further in found:
        kind = statement.kind
        yield (
            kind,
            {
                "id": statement.id or f"{TURN.memory_id(number)}/{statement.line}",
                **_stamp(said),
                "turn_ref": number,
                kind.actor: said.speaker,
                kind.text: statement.text,
                **_degree(statement, said.speaker),
                **further,
                IMPORTED: {"layout": LAYOUT, "extracted": True},
            },
        )


def _degree(statement: Statement, speaker: str) -> dict[str, str]:
    """Return how severe or how sure it is. A preference that the user states is explicit."""
    degree = statement.degree
    if statement.kind is FINDING:
        return {"severity": degree or "medium"}
    if statement.kind is PREFERENCE:
        is_user = speaker.lower().startswith(USERS)
        return {"confidence": degree or ("explicit" if is_user else "inferred")}
    return {"confidence": degree} if degree else {}


def _degree_of_tag(said: Said) -> str:
    return "info" if said.kind is FINDING and said.type != FINDING.name else ""


def _of_tag(said: Said) -> dict[str, Any]:
    """Return the tag of an entry as a category, unless it is the kind itself."""
    if said.kind is None or said.type == said.kind.type:
        return {}
    return {"category": said.type, "tags": good_tags([said.type])}


def _placed(wanted: str, log: Log, where: str, destination: Destination) -> str:
    """Return the first session of this name, or with a number, that the log goes on with."""
    turns = {
        number: (said.speaker, destination.clean(said.text)) for number, said in log.numbered()
    }
    name = wanted
    for number in range(2, _MOST_SESSIONS):
        known = destination.claimed.get(name) or destination.known_turns(name)
        if known is None or all(turns.get(at, said) == said for at, said in known.items()):
            break
        name = f"{wanted[:_NAME_CHARACTERS]}-{number}"
    if name != wanted and known is None:
        destination.notes.append(
            f"{where} does not go on with session {wanted}: it became the new session {name}"
        )
    if len(turns) >= len(known or {}):
        destination.claimed[name] = turns
    return name


def _session(name: str, log: Log) -> dict[str, Any]:
    named = [one.strip() for one in log.head.get("participants", "").split(",") if one.strip()]
    people = list(dict.fromkeys([*named, *(said.speaker for said in log.turns)]))
    users = [one for one in people if one.lower().startswith(USERS)]
    agents = [one for one in people if one not in users and one != UNKNOWN]
    context = {ours: log.head[name] for ours, name in _CONTEXT.items() if log.head.get(name)}
    metadata = {
        "created_at": time_of(log.head.get("started")) or time_of(log.head.get("created")),
        "participants": participants(users[0] if users else None, agents),
    }
    kept: dict[str, Any] = {"head": log.head}
    if preamble := "\n".join(log.preamble).strip():
        kept["preamble"] = preamble
    return session_entry(LAYOUT, name, {**metadata, "context": context}, kept)
