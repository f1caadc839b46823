"""The conversation: turns in Markdown, each with the bytes it stands in.

A turn is a heading, a few `**Name:** value` lines, a blank line, the text as it was said, and a
closing `---`. Lines of the text that look like these are escaped with a backslash, as Markdown
itself does, so every text comes back unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from ..model.layout import FORMAT_VERSION
from ..model.record import NUMBERS, TURN
from ..model.times import parse_time, render_time, same_time
from .contents import parse_json
from .document import CUT_OFF, Bad, Located, RecordList
from .values import BadYaml, Value, decode, load, render_flow
from .version import renewed, version_in

# Stands before a turn that the library wrote. Such a turn is closed by `---`, else it is torn.
MARK = b"<!-- smp -->\n"

_OPENING = MARK + b"## Turn "
_HEADING = re.compile(
    rb"^(?:\A\xef\xbb\xbf)?(?:<!-- smp -->\r?\n)?## Turn (\d{1,15})\b[^\n]*(?:\n|\Z)", re.MULTILINE
)
_STAMP = re.compile(r"## Turn \d+\s*-\s*(.+?)\s*$")
_CLOSING = re.compile(rb"^---[ \t\r]*(?:\n|\Z)", re.MULTILINE)
_FIELD = re.compile(r"\*\*([^*:\n]{1,64}):\*\*[ \t]*(.*)(?:\n|\Z)")
_LAST_TURN = re.compile(rb"^\*\*Last-Turn:\*\*[^\n]*(?:\n|\Z)", re.MULTILINE)
_PARTICIPANTS = re.compile(rb"^\*\*Participants:\*\* ?([^\r\n]*)", re.MULTILINE)
_PARTICIPANTS_CHARACTERS = 1000  # the version behind them must stand near the top
_VERSION = re.compile(rb"^\*\*Format-Version:\*\*[^\n]*(?:\n|\Z)", re.MULTILINE)
# Every line that begins with `---`: cut off in the middle, a longer one would be nothing else.
_ESCAPE = re.compile(r"^(\\*)(?=## Turn \d|---|<!-- smp -->)", re.MULTILINE)
_UNESCAPE = re.compile(r"^\\(\\*)(?=## Turn \d|---|<!-- smp -->)", re.MULTILINE)
# Fields with a line of their own, where they have their type. Every further field of a turn is in
# one JSON object under `Fields`.
_LINES: dict[str, tuple[str, type]] = {
    "speaker": ("Speaker", str), "type": ("Type", str), "memory_refs": ("Memory-Refs", list),
    "tags": ("Tags", list), "pinned": ("Pinned", bool), "decay": ("Decay", dict),
}  # fmt: skip
_KEYS = {name: key for key, (name, _) in _LINES.items()}
_ELSEWHERE = frozenset(("id", "turn", "timestamp", "content", "decay"))
_render_json = json.JSONEncoder(ensure_ascii=False).encode


class Conversation:
    """The form of the file that holds the turns of a session."""

    def parse(self, content: bytes) -> RecordList:
        """Return the turns of a file. Bytes that cannot be read are in `bad`."""
        found = _parse_turns(content, 0)
        first = next((item.start for item in found.items()), len(content))
        for name, value in _FIELD.findall(content[:first].decode("utf-8", "replace")):
            key = {"Format-Version": "version", "Last-Turn": "last_id"}.get(name)
            if key and re.fullmatch(r"[0-9]{1,15}", value.strip()):
                found.head[key] = int(value)
        return renewed(TURN, content, found)

    def parse_tail(self, content: bytes, offset: int, indent: int) -> RecordList:
        return renewed(TURN, content, _parse_turns(content, offset))

    def find(self, content: bytes, memory_id: str) -> Located | None:
        """Return the last turn of that id: a hand-made double is appended behind the original."""
        number = memory_id.removeprefix("turn-")
        if not number.isdecimal() or str(int(number)) != number:
            return None
        headings = [one for one in _HEADING.finditer(content) if int(one[1]) == int(number)]
        for heading in reversed(headings):
            following = _HEADING.search(content, heading.end())
            item = _read_turn(content, heading, following.start() if following else len(content))
            if isinstance(item, Located):
                return renewed(TURN, content, RecordList([item])).records[0]
        return None

    def highest(self, found: RecordList, content: bytes) -> int:
        """Return the highest number that a turn has had."""
        numbers = [*(one.value["turn"] for one in found.records), found.head.get("last_id")]
        numbers += [int(bad.problem.split(":")[0].removeprefix("turn ")) for bad in found.bad]
        counted = [one for one in numbers if isinstance(one, int) and one < NUMBERS]
        return max([0, *counted])

    def render(self, turn: Mapping[str, Value], indent: int = 0) -> bytes:
        lines = [f"## Turn {turn['turn']}"]
        if isinstance(stamp := turn.get("timestamp"), str):
            lines[0] += " - " + same_time(stamp).replace("T", " ").removesuffix("Z")
        further = {key: value for key, value in turn.items() if key not in _ELSEWHERE}
        for key, (name, kind) in _LINES.items():
            if isinstance(further.get(key), kind):
                lines.append(f"**{name}:** {_render_field(further.pop(key))}")
        if further:
            lines.append(f"**Fields:** {_render_json(further)}")
        if "decay" in turn and turn["decay"] != _unread(turn):
            lines.append(f"**Decay:** {render_flow(turn['decay'])}")
        text = str(turn["content"])
        if "---" in text or "## Turn " in text or "<!-- smp -->" in text:
            text = _ESCAPE.sub(r"\1\\", text)
        return MARK + "\n".join([*lines, "", text, "", "---", "", ""]).encode()

    def opening(self, found: RecordList, content: bytes) -> bytes | None:
        """Return the bytes before an appended turn: a blank line. Its heading ends an open turn."""
        if not self.is_plain(content):
            return None
        if not content or content.endswith((b"\n\n", b"\r\n\r\n")):
            return b""
        return b"\n" if content.endswith(b"\n") else b"\n\n"

    def torn(self, found: RecordList, content: bytes) -> int | None:
        """Return where turns of ours begin that were never closed, or a part of a heading.

        None where the file ends with neither. A turn of a person need not be closed.
        """
        end = len(content)
        for heading in reversed(list(_HEADING.finditer(content))):
            is_closed = _CLOSING.search(content, heading.end(), end)
            if is_closed or not self.is_ours(content, heading.start()):
                break
            end = heading.start()
        if end < len(content):
            return end
        for at in range(max(end - len(_OPENING), 0), end):
            is_line = not at or content[at - 1 : at] == b"\n"
            if is_line and _OPENING.startswith(content[at:]):
                return at
        return None

    def is_ours(self, content: bytes, start: int) -> bool:
        return content.startswith(MARK[:-1], start)

    def with_last(self, content: bytes, highest: int) -> bytes:
        """Return the file with the highest number ever given here in its head."""
        line = b"**Last-Turn:** %d\n" % highest
        first = _HEADING.search(content)
        end = first.start() if first else len(content)
        if known := _LAST_TURN.search(content, 0, end):
            return content[: known.start()] + line + content[known.end() :]
        version = _VERSION.search(content, 0, end)
        at = version.end() if version else 0
        return content[:at] + line + content[at:]

    def is_plain(self, content: bytes) -> bool:
        return version_in(TURN.file, content) == FORMAT_VERSION

    def render_plain(self, content: bytes) -> bytes:
        """Return the whole file in the present version."""
        found = self.parse(content)
        first = next((item.start for item in found.items()), len(content))
        line = b"**Format-Version:** %d\n" % FORMAT_VERSION
        turns = [self.render(turn.value) for turn in found.records]
        return _VERSION.sub(line, content[:first], count=1) + b"".join(turns)

    def own_end(self, raw: bytes, value: Mapping[str, Value]) -> int:
        """Return where a turn ends in its span, without the lines below its closing one."""
        heading = _HEADING.match(raw)
        closing = _closing(raw, heading, len(raw)) if heading else None
        return closing.end() if closing else len(raw)

    def with_participants(self, content: bytes, names: Sequence[str]) -> bytes:
        """Return the file with these names in its head, behind those that stand there.

        A head without the line stays as it is, and so does one that would become too long.
        """
        first = _HEADING.search(content)
        line = _PARTICIPANTS.search(content, 0, first.start() if first else len(content))
        if line is None:
            return content
        known = [name.strip() for name in line[1].decode("utf-8", "replace").split(",")]
        known = [name for name in known if name]
        every = ", ".join([*known, *(name for name in names if name not in known)])
        if len(every) > _PARTICIPANTS_CHARACTERS or every == ", ".join(known):
            return content
        return content[: line.start(1)] + every.encode() + content[line.end(1) :]

    def empty(self, scope: str, started: datetime, participants: list[str]) -> bytes:
        return (
            f"# Conversation History\n**Session:** {scope}\n"
            f"**Started:** {started:%Y-%m-%d %H:%M:%S} UTC\n"
            f"**Participants:** {', '.join(participants)}\n"
            f"**Format-Version:** {FORMAT_VERSION}\n\n---\n\n"
        ).encode()


def _render_field(value: Value) -> str:
    """Return names as they are; a text that would not come back unchanged is quoted as in JSON."""
    if not isinstance(value, str):
        return render_flow(value)
    is_plain = value == value.strip() and value.isprintable() and not value.startswith('"')
    return value if is_plain and value else json.dumps(value)


def _unread(turn: Mapping[str, Value]) -> dict[str, Value]:
    """Return the decay of a turn that nobody has read yet, which is not written down."""
    stamp = turn.get("timestamp")
    return {"priority": 1.0, "last_accessed": stamp, "access_count": 0, "base_priority": 1.0}


def _parse_turns(content: bytes, offset: int) -> RecordList:
    headings = list(_HEADING.finditer(content, offset))
    found = RecordList(listed=True)
    ends = [*(heading.start() for heading in headings[1:]), len(content)]
    for heading, end in zip(headings, ends, strict=False):
        found.take(_read_turn(content, heading, end))
    return found


def _read_turn(content: bytes, heading: re.Match[bytes], end: int) -> Located | Bad:
    start, number = heading.start(), int(heading[1])
    closing = _closing(content, heading, end)
    try:
        if closing is None and end == len(content) and content.startswith(MARK[:-1], start):
            raise BadYaml(CUT_OFF)
        text = decode(content[start : closing.start() if closing else end])
        return Located(start, end, _read_fields(text, number, is_closed=closing is not None))
    except BadYaml as error:
        problem = error.problem
    except ValueError:
        problem = "its time cannot be read"
    return Bad(start, end, 1, f"turn {number}: {problem}")


def _closing(content: bytes, heading: re.Match[bytes], end: int) -> re.Match[bytes] | None:
    """Return the line that closes a turn.

    In a turn of ours `---` is escaped, so the first one closes. People write rules into theirs, so
    there only one at the end does.
    """
    closings = list(_CLOSING.finditer(content, heading.end(), end))
    if content.startswith(MARK[:-1], heading.start()):
        return closings[0] if closings else None
    return closings[-1] if closings and not content[closings[-1].end() : end].strip() else None


def _read_fields(text: str, number: int, *, is_closed: bool) -> dict[str, Value]:
    text = text.removeprefix("<!-- smp -->\r\n").removeprefix("<!-- smp -->\n")
    heading, _, rest = text.partition("\n")
    if heading.endswith("\r"):
        # An editor turned the line ends of the file around: turn those of the text back.
        rest = rest.replace("\r\n", "\n")
    fields: dict[str, Value] = {}
    at = 0
    while field := _FIELD.match(rest, at):
        at = field.end()
        fields.update(_read_field(field[1], field[2].strip()))
    body = rest[at:].removeprefix("\n")
    body = body.removesuffix("\n").removesuffix("\n") if is_closed else body.rstrip("\n")
    turn: dict[str, Value] = {"id": f"turn-{number}", "turn": number}
    if stamp := _STAMP.match(heading):
        time = parse_time(stamp[1].removesuffix(" UTC").replace(" ", "T", 1))
        turn["timestamp"] = render_time(time)
        fields.setdefault("decay", _unread(turn))
    turn |= {key: value for key, value in fields.items() if key not in turn and key != "decay"}
    turn["content"] = _UNESCAPE.sub(r"\1", body)
    return {**turn, "decay": fields["decay"]} if "decay" in fields else turn


def _read_field(name: str, value: str) -> dict[str, Value]:
    key = _KEYS.get(name)
    if name == "Fields":
        further = _read_json(value)
        return further if isinstance(further, dict) else {"fields": further}
    if key in ("memory_refs", "tags"):
        listed = load(value)
        return {key: listed if isinstance(listed, list) else [value]}
    if key in ("pinned", "decay"):
        return {key: load(value)}
    text = _read_json(value) if value.startswith('"') else value
    return {key or name.lower().replace("-", "_").replace(" ", "_"): text}


def _read_json(text: str) -> Value:
    value, problem = parse_json(text.encode())
    if problem:
        raise BadYaml(problem)
    return value  # type: ignore[no-any-return]
