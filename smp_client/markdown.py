"""The conversation: turns in Markdown, each with the bytes it stands in.

A turn is a heading, a few `**Name:** value` lines, a blank line, the text as it was said, and a closing `---`. Lines of the text
that look like these are escaped with a backslash, as Markdown itself does, so every text comes back the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime

from .document import Bad, Located, RecordList
from .timestamps import parse_time, render_time
from .values import BadYaml, Value, decode, load, render_flow

# Stands before a turn that the library wrote: such a turn is closed by `---`, so one that is not is torn.
MARK = b"<!-- smp -->\n"

_HEADING = re.compile(rb"^(?:<!-- smp -->\r?\n)?## Turn (\d{1,15})\b[^\n]*(?:\n|\Z)", re.MULTILINE)
_STAMP = re.compile(r"## Turn \d+\s*-\s*(.+?)\s*$")
_CLOSING = re.compile(rb"^---[ \t\r]*(?:\n|\Z)", re.MULTILINE)
_FIELD = re.compile(r"\*\*([^*:]{1,64}):\*\*[ \t]*(.*)")
_ESCAPE = re.compile(r"^(\\*)(?=## Turn \d|---[ \t\r]*$|<!-- smp -->)", re.MULTILINE)
_UNESCAPE = re.compile(r"^\\(\\*)(?=## Turn \d|---[ \t\r]*$|<!-- smp -->)", re.MULTILINE)
# On disk under these names; every further field of a turn is in one JSON object under `Fields`.
_NAMES = {"speaker": "Speaker", "type": "Type", "memory_refs": "Memory-Refs", "tags": "Tags", "pinned": "Pinned", "decay": "Decay"}
_KEYS = {name: key for key, name in _NAMES.items()}


def render_header(session_id: str, started: datetime, participants: list[str]) -> bytes:
    return (
        f"# Conversation History\n**Session:** {session_id}\n**Started:** {started:%Y-%m-%d %H:%M:%S} UTC\n"
        f"**Participants:** {', '.join(participants)}\n**Format-Version:** 1\n\n---\n\n"
    ).encode()


def render_turn(turn: Mapping[str, Value]) -> bytes:
    stamp = render_time(parse_time(str(turn["timestamp"]))).replace("T", " ").removesuffix("Z")
    lines = [f"## Turn {turn['turn']} - {stamp}"]
    for key, name in _NAMES.items():
        if key in turn and key != "decay":
            lines.append(f"**{name}:** {_render_field(turn[key])}")
    further = {key: value for key, value in turn.items() if key not in _NAMES and key not in ("id", "turn", "timestamp", "content")}
    if further:
        lines.append(f"**Fields:** {json.dumps(further, ensure_ascii=False)}")
    if turn.get("decay", unread := _unread(turn["timestamp"])) != unread:
        lines.append(f"**Decay:** {render_flow(turn['decay'])}")
    text = _ESCAPE.sub(r"\1\\", str(turn["content"]))
    return MARK + "\n".join([*lines, "", text, "", "---", "", ""]).encode()


def parse(content: bytes) -> RecordList:
    """Never raises on content; the head holds the highest turn number that a rewrite has written down."""
    found = parse_tail(content, 0)
    first = min((item.start for item in found.items()), default=len(content))
    for name, value in _FIELD.findall(content[:first].decode("utf-8", "replace")):
        if name in ("Format-Version", "Last-Turn") and value.strip().isdigit():
            found.head["version" if name == "Format-Version" else "last_id"] = int(value)
    return found


def parse_tail(content: bytes, offset: int) -> RecordList:
    headings = list(_HEADING.finditer(content, offset))
    found = RecordList(insert_at=len(content), listed=True)
    ends = [*(heading.start() for heading in headings[1:]), len(content)]
    for heading, end in zip(headings, ends, strict=False):
        item = _read_turn(content, heading, end)
        found.take(item)
    return found


def last_turns(content: bytes, count: int) -> list[Located]:
    """The last turns in a piece of a conversation that may begin in the middle of a turn."""
    headings = [heading.start() for heading in _HEADING.finditer(content)]
    return parse_tail(content, headings[-count]).records if len(headings) >= count > 0 else []


def find_turn(content: bytes, number: int) -> Located | None:
    heading = re.compile(rb"^(?:<!-- smp -->\r?\n)?## Turn (0*%d)\b[^\n]*(?:\n|\Z)" % number, re.MULTILINE).search(content)
    if heading is None:
        return None
    following = _HEADING.search(content, heading.end())
    item = _read_turn(content, heading, following.start() if following else len(content))
    return item if isinstance(item, Located) else None


def highest(found: RecordList) -> int:
    """The highest number that a turn has had."""
    numbers = [record.value["turn"] for record in found.records] + [found.head.get("last_id", 0)]
    numbers += [int(bad.problem.split(":")[0].removeprefix("turn ")) for bad in found.bad]
    return max(number for number in numbers if isinstance(number, int))


def torn(content: bytes) -> int | None:
    """Where a turn of ours that was never closed begins, or the beginning of a mark or heading, if the file ends with one."""
    headings = list(_HEADING.finditer(content))
    start = headings[-1].start() if headings else 0
    if headings and not _CLOSING.search(content, headings[-1].end()):
        # A turn that a person wrote may end without a closing line.
        return start if content.startswith(MARK[:-1], start) else None
    end = content.rfind(b"\n") + 1
    rest = content[end:]
    if content.endswith(MARK):
        return len(content) - len(MARK)
    return end if rest and (MARK.startswith(rest) or b"## Turn ".startswith(rest)) else None


def separator(found: RecordList, content: bytes) -> bytes:
    """What must stand before a new turn: closes one that a person left open, and makes sure of a fresh line."""
    fresh_line = b"" if not content or content.endswith(b"\n") else b"\n"
    left_open = found.records and not _CLOSING.search(content, found.records[-1].start)
    return fresh_line + (b"\n---\n\n" if left_open else b"")


def rewrite(content: bytes, changes: Mapping[str, Mapping[str, Value] | None], highest_ever: int = 0) -> bytes:
    """The conversation with some turns rendered anew or taken out; every other byte is copied."""
    pieces: list[bytes] = []
    position = 0
    for turn in parse(content).records if len(changes) > 32 else _find_turns(content, changes):
        if turn.value["id"] in changes:
            change = changes[str(turn.value["id"])]
            pieces.append(content[position : turn.start])
            pieces.append(b"" if change is None else render_turn(change).removesuffix(b"\n"))
            position = turn.end
    result = b"".join([*pieces, content[position:]])
    if not any(change is None for change in changes.values()):
        return result
    line = b"**Last-Turn:** %d\n" % highest_ever
    first = _HEADING.search(result)
    head = result[: first.start()] if first else result
    replaced, count = re.subn(rb"(?m)^\*\*Last-Turn:\*\*[^\n]*\n", line, head, count=1)
    return (replaced if count else line + head) + result[len(head) :]


def _find_turns(content: bytes, memory_ids: Iterable[str]) -> list[Located]:
    found = (find_turn(content, int(memory_id.removeprefix("turn-"))) for memory_id in memory_ids)
    return sorted((turn for turn in found if turn), key=lambda turn: turn.start)


def _read_turn(content: bytes, heading: re.Match[bytes], end: int) -> Located | Bad:
    """A turn from its heading (and mark) to its closing line, or to `end` where it has none."""
    closings = list(_CLOSING.finditer(content, heading.end(), end))
    # In a text of ours a bare `---` is escaped, so the first one closes; people write rules into theirs, so there the last.
    closing = closings[0 if heading[0].startswith(MARK[:-1]) else -1] if closings else None
    try:
        text = decode(content[heading.start() : closing.start() if closing else end])
        value = _read_fields(text, int(heading[1]), closed=closing is not None)
    except (BadYaml, ValueError) as problem:
        line = content.count(b"\n", 0, heading.start()) + 1
        return Bad(heading.start(), end, line, f"turn {heading[1].decode()}: {problem}")
    return Located(heading.start(), closing.end() if closing else end, value)


def _read_fields(text: str, number: int, *, closed: bool) -> dict[str, Value]:
    text = text.removeprefix("<!-- smp -->\r\n").removeprefix("<!-- smp -->\n")
    heading, _, rest = text.partition("\n")
    if heading.endswith("\r"):
        # An editor turned the line ends of the file around: turn those of the text back.
        rest = rest.replace("\r\n", "\n")
    stamp = _STAMP.match(heading)
    turn: dict[str, Value] = {"id": f"turn-{number}", "turn": number}
    if stamp:
        turn["timestamp"] = render_time(parse_time(stamp[1].removesuffix(" UTC").replace(" ", "T", 1) + "Z"))
    while field := _FIELD.fullmatch(line := rest.partition("\n")[0].removesuffix("\r")):
        rest = rest[len(rest.partition("\n")[0]) + 1 :]
        turn.update(_read_field(field[1], field[2].strip()))
        del line
    body = rest.removeprefix("\n")
    body = body.removesuffix("\n").removesuffix("\n") if closed else body.rstrip("\n")
    decay = {} if "decay" in turn or "timestamp" not in turn else {"decay": _unread(turn["timestamp"])}
    return {**turn, "content": _UNESCAPE.sub(r"\1", body), **decay}


def _unread(stamp: Value) -> Value:
    """The decay of a turn that nobody has read yet: not written down, so that a conversation stays pleasant to read."""
    return {"priority": 1.0, "last_accessed": stamp, "access_count": 0, "base_priority": 1.0}


def _read_field(name: str, value: str) -> dict[str, Value]:
    key = _KEYS.get(name)
    if name == "Fields":
        further = json.loads(value)
        return further if isinstance(further, dict) else {"fields": further}
    if key in ("memory_refs", "tags"):
        listed = load(value)
        return {key: listed if isinstance(listed, list) else [value]}
    if key in ("pinned", "decay"):
        return {key: load(value)}
    text = json.loads(value) if value.startswith('"') else value
    return {key or name.lower().replace("-", "_").replace(" ", "_"): text}


def _render_field(value: Value) -> str:
    """Names as they are; a text that would not come back the same is quoted as in JSON."""
    if not isinstance(value, str):
        return render_flow(value)
    plain = value == value.strip() and value.isprintable() and not value.startswith('"')
    return value if plain and value else json.dumps(value, ensure_ascii=True)
